"""What a probe does with tensors, no mode and no class of the program's sees; what the program does, they all see."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import ddpcheck
from ddpcheck.probes.ddp import module_calls
from ddpcheck.probes.recording import out_of_sight, patching, recorder, thread_state

seen: list[str] = []


class Calls(TorchFunctionMode):
    """Sees functions, and what is asked of tensors."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        seen.append("mode")
        return func(*args, **(kwargs or {}))


class Operations(TorchDispatchMode):
    """Sees operators."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        seen.append("dispatch")
        return func(*args, **(kwargs or {}))


class Kind(torch.Tensor):
    """Sees what is done with its own."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        seen.append("class")
        return super().__torch_function__(func, types, args, kwargs or {})


def use() -> None:
    """Something that all three see."""
    tensor = torch.ones(2).as_subclass(Kind)
    seen.clear()
    _ = tensor.requires_grad, tensor + 1


SEEN_BY_ALL = {"mode", "dispatch", "class"}


def stacks() -> tuple[list[Any], list[Any]]:
    """The modes that are entered in this thread."""
    functions = [torch._C._get_function_stack_at(place) for place in range(torch._C._len_torch_function_stack())]
    dispatch = [torch._C._get_dispatch_stack_at(place) for place in range(torch._C._len_torch_dispatch_stack())]
    return functions, dispatch


def looked(told: list[set[str]]) -> Any:
    """A probe's look, that tells who has seen it."""

    def look(*_: Any) -> None:
        use()
        told.append(set(seen))

    return look


class Owner:
    """Something with methods that are watched."""

    def called(self, told: list[set[str]], fails: bool) -> None:
        use()
        told.append(set(seen))
        if fails:
            raise KeyError

    def recursive(self, told: list[set[str]]) -> None:
        looked(told)()


@pytest.mark.parametrize("fails", [False, True])
def test_a_probe_is_hidden_and_what_it_stands_around_is_not(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    """Before the call and after it; and the modes are as they were, in their order."""
    monkeypatch.setattr(Owner, "called", Owner.called)

    def make(original: Any) -> Any:
        def called(self: Owner, told: list[set[str]], fails: bool) -> None:
            looked(told)()
            try:
                original(self, told, fails)
            finally:
                looked(told)()

        return called

    patching.around(Owner, "called", make)
    told: list[set[str]] = []
    with Calls(), Operations(), Calls(), Operations():
        before = stacks()
        if fails:
            with pytest.raises(KeyError):
                Owner().called(told, True)
        else:
            Owner().called(told, False)
        assert stacks() == before
        use()
    assert told == [set(), SEEN_BY_ALL, set()]
    assert set(seen) == SEEN_BY_ALL


def test_a_probe_that_fails_puts_all_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Owner, "recursive", Owner.recursive)

    def look(*_: Any) -> None:
        raise ZeroDivisionError

    patching.beforehand(Owner, "recursive", look)
    told: list[set[str]] = []
    with Calls(), Operations():
        before = stacks()
        Owner().recursive(told)
        patching.shielded(look)()
        assert stacks() == before
    assert told == [SEEN_BY_ALL]


def test_looks_and_hooks_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Owner, "recursive", Owner.recursive)
    told: list[set[str]] = []
    patching.beforehand(Owner, "recursive", lambda self, told: looked(told)())
    with Calls(), Operations():
        Owner().recursive(told)
        patching.shielded(looked(told))()
    assert told == [set(), SEEN_BY_ALL, set()]


def test_a_look_at_a_modules_call_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the call is not."""
    monkeypatch.setattr(torch.nn.Module, "__call__", torch.nn.Module.__call__)
    told: list[set[str]] = []
    monkeypatch.setattr(module_calls, "_note", looked(told))

    class Using(torch.nn.Module):
        def forward(self) -> None:
            looked(told)()

    module_calls.watch()
    with Calls(), Operations():
        before = stacks()
        Using()()
        assert stacks() == before
    assert told == [set(), SEEN_BY_ALL]


def test_what_the_program_has_switched_off_stays_so_in_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call from within a class's own function is not seen by it."""
    monkeypatch.setattr(Owner, "called", Owner.called)
    patching.around(Owner, "called", lambda original: lambda self, told, fails: original(self, told, fails))
    told: list[set[str]] = []
    with Calls(), Operations(), torch._C.DisableTorchFunction():
        Owner().called(told, False)
    assert told == [{"dispatch"}]


class Interrupted(Exception):
    """What a signal handler of the program's raises."""


def interrupting(number: int, files: tuple[str, ...]) -> Any:
    """A trace function that raises at one of the places where a handler might, in these files."""
    met = iter(range(number))

    def handler(frame: Any, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.endswith(files):
            return None
        if event in ("call", "line") and next(met, None) is None:
            raise Interrupted
        return handler

    return handler


FILES = ("out_of_sight.py", "patching.py", "recorder.py", "module_calls.py", "thread_state.py")


@pytest.mark.parametrize("what", ["function", "hook", "module"])
def test_an_exception_from_anywhere_leaves_all_as_it_was(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """A signal handler may raise in the midst of a probe: its exception comes out, and nothing stays hidden."""

    def make(original: Any) -> Any:
        def called(self: Owner, told: list[set[str]], fails: bool) -> None:
            with recorder.silence():
                original(self, told, fails)

        return called

    monkeypatch.setattr(Owner, "called", Owner.called)
    patching.around(Owner, "called", make)
    monkeypatch.setattr(torch.nn.Module, "__call__", torch.nn.Module.__call__)
    module_calls.watch()
    called = {
        "function": lambda: Owner().called([], False),
        "hook": patching.shielded(lambda: recorder.silence().__enter__()),
        "module": torch.nn.Identity(),
    }[what]
    state: Any = vars(thread_state.here)
    places = 0
    for places in range(1000):
        with Calls(), Operations():
            before = stacks()
            sys.settrace(interrupting(places, FILES))
            try:
                called(*[torch.ones(1)] * (what == "module"))
            except Interrupted:
                met = True
            else:
                met = False
            finally:
                sys.settrace(None)
            assert stacks() == before
            assert torch._C._is_torch_function_enabled()
            assert not state.get("module")
            if not met:
                break
            assert not state.get("silent")
            state.clear()
    assert 20 < places < 999
    state.clear()


def test_a_thread_of_ours_is_hidden_for_good() -> None:
    told: list[set[str]] = []

    def body() -> None:
        out_of_sight.hide(out_of_sight.Outside())
        looked(told)()

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert told == [set()]
    use()
    assert set(seen) == {"class"}


def test_simulated_devices_are_looked_at_as_devices() -> None:
    """They are modes, too: without them a probe would see tensors of the CPU."""
    told: list[str] = []

    def look(tensor: torch.Tensor) -> None:
        use()
        told.extend([str(torch.ones(1, device=tensor.device).device), *seen])

    with ddpcheck.simulated_devices(2), Calls(), Operations():
        before = stacks()
        patching.shielded(look)(torch.ones(1, device="cuda:1"))
        assert stacks() == before
    assert told == ["cuda:1"]


def test_torchs_own_modes_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake tensor can be looked at with its mode alone, and probes ask for it."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    told: list[Any] = []
    with FakeTensorMode() as mode, Operations():
        patching.shielded(lambda: told.append(stacks()[1]))()
    assert told == [[mode]]


def test_this_torch_has_what_is_used() -> None:
    for kind in ("function", "dispatch"):
        for do in ("len", "pop", "push_on"):
            assert hasattr(torch._C, f"_{do}_torch_{kind}_stack")


def test_a_torch_without_stacks_of_modes(monkeypatch: pytest.MonkeyPatch) -> None:
    count, *_ = out_of_sight._stack("other")
    assert count() == 0
