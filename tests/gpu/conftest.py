"""What all tests on GPUs have in common."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddpcheck.pytest_plugin import setting
from tests.gpu import failed_tests
from tests.inner import InnerProject

FOLDER = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    """Where the run is recorded, keep what failed."""
    recorded = failed_tests.plugin()
    if recorded is not None:
        config.pluginmanager.register(recorded, "ddpcheck-gpu-record")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let warnings be warnings here: those of a driver or of NCCL differ from machine to machine."""
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("default"))


@pytest.fixture
def simulated(request: pytest.FixtureRequest) -> bool:
    """Whether the GPUs are simulated ones."""
    return setting(request.config, "ddp_simulate_gpus", int) is not None


@pytest.fixture
def project(tmp_path: Path) -> Iterator[InnerProject]:
    """A folder of tests for a pytest session of their own, of which nothing is left on the GPU."""
    inner = InnerProject(tmp_path / "project")
    yield inner
    for line in inner.leftover_processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(line.split()[0]), signal.SIGKILL)
