"""While a graph is captured or a function compiled, no probe looks at anything; a report says what was not seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from ddpcheck.judging.evidence_folder import Folder
from ddpcheck.probes.ddp import conversions, module_calls
from ddpcheck.probes.digests import readable_memory
from ddpcheck.probes.optimizers import steps
from ddpcheck.probes.randomness import random_states
from ddpcheck.probes.recording import patching, recorder, unwatchable_moments


@pytest.fixture
def capturing(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether torch says that the current stream is captured: a stand-in, for want of a GPU."""
    captured = [True]
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: captured[0])
    monkeypatch.setattr(unwatchable_moments, "_noted", set())
    return captured


@pytest.fixture
def recorded(tmp_path: Path) -> Any:
    """What this process has put down so far."""
    recorder.begin(tmp_path, 1 << 20)

    def records() -> list[Any]:
        folder = Folder(tmp_path)
        folder.read()
        return [record for process in folder.processes.values() for record in process.records]

    yield records
    recorder.stop()


class Owner:
    """Something that is probed."""

    def call(self) -> str:
        return "its own"


def probed(seen: list[str]) -> None:
    def make(original: Any) -> Any:
        def call(self: Owner) -> str:
            seen.append("probe")
            return str(original(self))

        return call

    patching.around(Owner, "call", make)


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Owner, "call", Owner.call)
    monkeypatch.setattr(torch.nn.Module, "__call__", torch.nn.Module.__call__)


def test_a_probe_is_asleep_during_a_capture(capturing: list[bool], recorded: Any) -> None:
    """The function is called as it is; afterwards the probe is there again, and the capture is noted once."""
    seen: list[str] = []
    probed(seen)
    hook = patching.shielded(lambda: seen.append("hook"))
    for _ in range(2):
        assert Owner().call() == "its own"
        assert hook() is None
    assert seen == []
    assert [one.what for one in recorded()] == ["capture"]
    capturing[0] = False
    Owner().call()
    hook()
    assert seen == ["probe", "hook"]


def test_a_stream_is_not_asked_before_cuda_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """The question would initialise CUDA, after which no process may be forked."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: pytest.fail("it was asked"))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert not unwatchable_moments.asleep()


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self) -> str:
        return "its own"


class Replaying(torch.optim.Optimizer):
    """An optimizer whose step queues a kernel."""

    def step(self, closure: Any = None) -> None:
        pass


@pytest.mark.parametrize("captured", [True, False])
def test_nothing_is_looked_at_during_a_capture(
    capturing: list[bool], recorded: Any, monkeypatch: pytest.MonkeyPatch, captured: bool
) -> None:
    """No tensor, at an optimizer's step and at a module's call, and no generator; without a capture all of them are."""
    looked: set[str] = set()

    def looking(name: str, answer: Any) -> Any:
        return lambda *_: (looked.add(name), answer)[1]

    capturing[0] = captured
    for name, answer in (("memory", None), ("strided", None), ("unseen", ""), ("is_shared", False)):
        monkeypatch.setattr(readable_memory, name, looking("a tensor", answer))
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_rng_state", looking("a generator", torch.zeros(1)))
    monkeypatch.setattr(random_states, "digest", lambda state: "")
    module_calls.watch()
    net = Net()
    optimizer = Replaying(net.parameters(), {})
    optimizer.register_step_pre_hook(patching.shielded(steps._before))
    optimizer.register_step_post_hook(patching.shielded(steps._after))

    with torch.no_grad():
        assert net() == "its own"
    called = set(looked)
    optimizer.step()
    random_states.digests()
    kinds = {type(one).__name__ for one in recorded()}
    if captured:
        assert (looked, kinds) == (set(), {"Overlooked"})
    else:
        assert (called, looked) == ({"a tensor"}, {"a tensor", "a generator"})
        assert {"Evaluated", "Step"} < kinds


@pytest.mark.parametrize("error", [torch.cuda.OutOfMemoryError("CUDA"), MemoryError()], ids=["GPU", "host"])
def test_out_of_memory_is_no_defect(capturing: list[bool], recorded: Any, error: Exception) -> None:
    """It is noted; what the program called goes on."""
    capturing[0] = False

    def make(original: Any) -> Any:
        def call(self: Owner) -> str:
            raise error

        return call

    patching.around(Owner, "call", make)
    assert Owner().call() == "its own"
    assert [one.what for one in recorded()] == ["memory"]


def test_a_probed_function_is_compiled_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler sees the function itself, and nothing of a probe that it would have to break the graph for."""
    seen: list[str] = []
    probed(seen)
    owner = Owner()

    def program(x: torch.Tensor) -> torch.Tensor:
        return x * len(owner.call())

    compiled = torch.compile(program, backend="eager", fullgraph=True)
    assert float(compiled(torch.tensor(1.0))) == 7.0
    assert seen == []


def test_the_module_of_a_wrapper_is_compiled_whole() -> None:
    """``ddp.module`` is watched, and does not break a graph either."""

    class Wrapper(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = torch.nn.Linear(2, 1)

    conversions._watch_module(Wrapper, own={})

    def program(wrapper: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(wrapper.module(x).sum())

    wrapper, x = Wrapper(), torch.ones(1, 2)
    compiled = torch.compile(program, backend="eager", fullgraph=True)
    assert torch.equal(compiled(wrapper, x), program(wrapper, x))
