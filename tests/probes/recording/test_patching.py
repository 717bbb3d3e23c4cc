"""What stands in the place of a function that is watched: the program notices nothing of it."""

from __future__ import annotations

import gc
import inspect
import os
import signal
import time
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ddpcheck.probes.recording import patching, recorder
from ddpcheck.probes.recording.patching import around, defect


@pytest.mark.parametrize("error", [StopIteration, ValueError, None])
@pytest.mark.parametrize("depth", [1, 2])
def test_nothing_keeps_what_a_call_was_given(error: type[Exception] | None, depth: int) -> None:
    """It goes with its last reference, also after a call that raised: an iterator that is exhausted has workers."""

    class Iterator:
        def advance(self) -> Iterator:
            if error is not None:
                raise error
            return self

    for _ in range(depth):
        around(Iterator, "advance", lambda original: lambda self: original(self))
    one = Iterator()
    gone = weakref.ref(one)
    gc.disable()
    try:
        try:
            one.advance()
        except (StopIteration, ValueError):
            assert error is not None
        else:
            assert error is None
        del one
        assert gone() is None
    finally:
        gc.enable()


class Owner:
    """Something with a method that is watched."""

    def work(self, error: Exception | None = None) -> str:
        if error is not None:
            raise error
        return "done"


@pytest.fixture
def owner(monkeypatch: pytest.MonkeyPatch) -> Owner:
    monkeypatch.setattr(Owner, "work", Owner.work)
    return Owner()


def test_a_call_that_passes_without_a_probe(owner: Owner) -> None:
    """As long as it is asked to, and no longer; what it raises is the program's in any case."""
    seen, passes = [], [True]
    around(Owner, "work", lambda original: lambda self: seen.append(1) or original(self), unless=lambda: passes[0])
    assert owner.work() == "done"
    assert not seen
    passes[0] = False
    assert owner.work() == "done"
    assert seen == [1]


def test_what_a_signal_handler_raises_is_the_programs(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    """A time limit that ends in the midst of a probe is not swallowed as a failure of the probe."""

    class Late(Exception):
        pass

    def late(number: int, frame: object) -> None:
        raise Late

    def probe(self: Owner, *given: object) -> str:
        signal.raise_signal(signal.SIGALRM)
        return original(self, *given)

    original = Owner.work
    defects: list[object] = []
    monkeypatch.setattr(patching, "recorder", SimpleNamespace(always=lambda: defects.append))
    before = signal.signal(signal.SIGALRM, late)
    try:
        around(Owner, "work", lambda _: probe)
        with pytest.raises(Late):
            owner.work()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert defects == []


def test_what_a_probe_raises_itself_is_not_the_programs(owner: Owner) -> None:
    """The same exception from the probe's own code is kept from the program."""

    def probe(self: Owner, *given: object) -> str:
        raise TimeoutError

    around(Owner, "work", lambda _: probe)
    assert owner.work() == "done"


def test_an_error_of_the_programs_is_as_it_was(owner: Owner) -> None:
    """Where the probe fails because of it, the program gets its own error, with nothing of ours in it."""

    def make(original: Any) -> Any:
        def probe(*given: object) -> str:
            try:
                return original(*given)
            except ValueError:
                raise KeyError("the probe's") from None

        return probe

    around(Owner, "work", make)
    own = ValueError("the program's")
    with pytest.raises(ValueError, match="the program's") as raised:
        owner.work(own)
    assert raised.value is own
    assert (own.__context__, own.__cause__, own.__suppress_context__) == (None, None, False)


@pytest.mark.parametrize("name", ["write", "open", "close", "fstat", "pwrite", "utime"])
def test_a_program_that_replaces_what_is_written_with(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Evidence is written all the same, and a probe that fails tells of itself."""
    writer = recorder.begin(tmp_path, 1 << 20)
    try:
        monkeypatch.setattr(patching, "_told", set())
        monkeypatch.setattr(os, name, None)
        monkeypatch.setattr(time, "monotonic", None)

        class Fails:
            def call(self) -> int:
                return 7

        def make(_: Any) -> Any:
            def probe(self: Any) -> int:
                raise ValueError(f"of ours, where {name} is replaced")

            return probe

        around(Fails, "call", make)
        assert Fails().call() == 7
        size = writer.path.stat().st_size
        monkeypatch.undo()
        assert f"where {name} is replaced".encode() in writer.path.read_bytes()
        assert size > 100
    finally:
        recorder.stop()


def test_a_defect_that_cannot_be_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program goes on."""
    recorder.begin(tmp_path, 1 << 20)
    try:
        monkeypatch.setattr(recorder.Recorder, "next", None)
        defect(ValueError("of ours, and nowhere to write it"))
    finally:
        recorder.stop()


def test_the_arguments_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """By those who follow what is wrapped and by those who do not; and a call is what it was."""

    class Takes:
        def __init__(self, module: object, find_unused: bool = False, *, hook: object = None, **more: object) -> None:
            self.given = (module, find_unused, hook, more)

        def call(self, one: int, other: int = 2) -> tuple[int, int]:
            return one, other

    before = [(inspect.getfullargspec(f), inspect.signature(f), f.__defaults__, f.__kwdefaults__)
              for f in (Takes.__init__, Takes.call)]  # fmt: skip
    of_class = inspect.getfullargspec(Takes), inspect.signature(Takes)
    for name in ("__init__", "call"):
        around(Takes, name, lambda original: lambda *args, **kwargs: original(*args, **kwargs))
        around(Takes, name, lambda original: lambda *args, **kwargs: original(*args, **kwargs))
    after = [(inspect.getfullargspec(f), inspect.signature(f), f.__defaults__, f.__kwdefaults__)
             for f in (Takes.__init__, Takes.call)]  # fmt: skip
    assert after == before
    assert (inspect.getfullargspec(Takes), inspect.signature(Takes)) == of_class
    assert Takes(1).given == (1, False, None, {})
    assert Takes(1, True, hook=3, x=4).given == (1, True, 3, {"x": 4})
    assert inspect.getfullargspec(Takes(1).call).args == ["self", "one", "other"]
    assert Takes(1).call(5) == (5, 2)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        Takes(1).call()  # type: ignore[call-arg]


@pytest.mark.filterwarnings("ignore:.*jit")
def test_torchscript_knows_what_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that has an operator of TorchScript's has it under another one in its place."""
    monkeypatch.setattr(torch.autograd, "backward", torch.autograd.backward)
    around(torch.autograd, "backward", lambda original: lambda *args, **kwargs: original(*args, **kwargs))
    scripted = torch.jit.script(goes_back)
    x = torch.ones(3, requires_grad=True)
    scripted(x)
    assert x.grad is not None


def goes_back(x: torch.Tensor) -> torch.Tensor:
    y = (x * x).sum()
    torch.autograd.backward([y])
    return y
