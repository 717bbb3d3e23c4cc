"""A CUDA that is not there, for each test that asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ddpcheck.probes.devices import device_events
from tests.probes.devices import fake_cuda


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[fake_cuda.FakeCuda]:
    """One with a driver."""
    yield fake_cuda.install(monkeypatch)
    device_events._driver.cache_clear()


@pytest.fixture
def rocm(monkeypatch: pytest.MonkeyPatch) -> Iterator[fake_cuda.FakeCuda]:
    """One without."""
    yield fake_cuda.install(monkeypatch, driver=False)
    device_events._driver.cache_clear()
