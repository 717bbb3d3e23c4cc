"""Blocks in which DDP does not synchronise: whatever torch's own can be used as."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ddpcheck.probes.ddp import no_sync
from ddpcheck.probes.ddp.wrapper_usage import WRAPPERS, Wrapper
from ddpcheck.probes.recording import recorder


class Model:
    """A stand-in for a wrapper, with torch's own block."""

    def __init__(self) -> None:
        self.inside = 0

    @contextlib.contextmanager
    def own(self) -> Iterator[None]:
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(Model, "no_sync", no_sync._around_no_sync(Model.own), raising=False)
    return Model()


def test_as_a_block_and_as_a_decorator(model: Any, tmp_path: Path) -> None:
    """One that decorates is entered anew at each call."""
    recorder.begin(tmp_path, 1 << 20)
    WRAPPERS.all[model] = wrapper = Wrapper(0, model)
    seen = []

    @model.no_sync()
    def accumulate() -> None:
        seen.append((model.inside, wrapper.depth))

    accumulate()
    accumulate()
    with model.no_sync():
        seen.append((model.inside, wrapper.depth))
    recorder.stop()
    assert seen == [(1, 1)] * 3
    assert (model.inside, wrapper.depth) == (0, 0)


def test_it_is_left_by_an_exception(model: Any) -> None:
    """It goes on to the program, and the block is closed."""
    with pytest.raises(StopIteration, match="of the program"), model.no_sync():
        raise StopIteration("of the program")
    assert model.inside == 0
    assert isinstance(model.no_sync(), type(model.own()))
