"""What passes through the operators of c10d, and how: nothing of ours changes what comes of a call."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional

from ddpcheck.evidence import Overlooked
from ddpcheck.probes.collectives import every_call, operators
from ddpcheck.probes.collectives.exchange import Exchange, is_of_a_group
from ddpcheck.probes.recording import recorder, unwatchable_moments


@pytest.fixture(scope="module", autouse=True)
def _world() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def refused() -> None:
    """A reduction that gloo does not have."""
    dist.all_reduce(torch.ones(2), op=dist.ReduceOp.BAND)


def raised_by(call: Callable[[], None]) -> tuple[type[BaseException], str, list[str]]:
    """The type and words of what it raises, and the functions that its traceback names, but for ours."""
    try:
        call()
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        return type(error), str(error), [one.name for one in frames if "/ddpcheck/probes/" not in one.filename]
    raise AssertionError("nothing was raised")


BEFORE: dict[str, Any] = {}
SEEN: list[str] = []
PASSED: list[int] = []
FAILS = [False]


def around(original: Any, name: str, names: list[str]) -> Any:
    def operator(keys: Any, *args: Any, **kwargs: Any) -> Any:
        exchange = Exchange.of(name, names, args, kwargs)
        SEEN.append(exchange.op)
        assert exchange.group is dist.group.WORLD
        if FAILS[0]:
            raise ValueError("ours")
        result = original(keys, *args, **kwargs)
        if FAILS == [False, "later"]:
            raise ValueError("ours, later")
        return result

    return operator


@pytest.fixture(scope="module", autouse=True)
def _watched(_world: None) -> None:
    BEFORE["refused"] = raised_by(refused)
    pass_on = operators._pass_on
    operators._pass_on = lambda *args, **kwargs: PASSED.append(1) or pass_on(*args, **kwargs)
    operators.watch("c10d", around, is_of_a_group)


@pytest.fixture(autouse=True)
def _anew() -> None:
    SEEN.clear()
    PASSED.clear()
    FAILS[:] = [False]


def test_an_error_is_what_it_is_without_us() -> None:
    """Its type, its words and the frames that it has come through."""
    assert raised_by(refused) == BEFORE["refused"]
    assert SEEN == ["all_reduce"]


@pytest.mark.parametrize("fails", [[True], [False, "later"]])
def test_a_call_is_passed_on_once_whatever_fails_in_ours(fails: list[Any]) -> None:
    """Before it, or when it is over: what comes of the call is the program's."""
    FAILS[:] = fails
    dist.all_reduce(torch.ones(2))
    assert len(SEEN) == len(PASSED) == 1
    assert raised_by(refused) == BEFORE["refused"]
    assert len(SEEN) == len(PASSED) == 2


def test_whoever_calls() -> None:
    """Functions, methods of a group, functional collectives, C++, and whatever mode is in force."""
    t = torch.ones(2)
    dist.all_reduce(t)
    dist.group.WORLD.allreduce([t]).wait()
    functional.all_reduce(t, "sum", dist.group.WORLD).sum()
    dist._broadcast_coalesced(dist.group.WORLD, [t], 1 << 20, 0)
    assert SEEN == ["all_reduce", "all_reduce", "all_reduce", "broadcast"]
    with torch.inference_mode():
        dist.all_reduce(torch.ones(2))
    with torch.no_grad():
        dist.all_gather_object([None], 1)
    assert SEEN[4:] == ["all_reduce", "all_gather_object", "all_gather_object"]


@pytest.mark.skipif(not hasattr(torch.ops.symm_mem, "one_shot_all_reduce"), reason="not on this torch")
def test_symmetric_memory_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes by it passes through no operator of c10d; that it is refused here is torch's own error."""
    writer = recorder.InMemory()
    monkeypatch.setattr(recorder, "_recorder", writer)
    monkeypatch.setattr(unwatchable_moments, "_noted", set())
    operators.watch("symm_mem", every_call._around_another, lambda names: "group_name" in names)
    with pytest.raises(RuntimeError):
        torch.ops.symm_mem.one_shot_all_reduce(torch.ones(2), "sum", "no group of this name")
    assert [one.what for one in writer.kept if isinstance(one, Overlooked)] == ["calls"]


@pytest.mark.parametrize("kind", [dist.ProcessGroup, type("Own", (dist.ProcessGroup,), {})])
def test_a_group_that_is_written_in_python_is_noted(monkeypatch: pytest.MonkeyPatch, kind: type) -> None:
    """It may call no operator at all."""
    writer = recorder.InMemory()
    monkeypatch.setattr(recorder, "_recorder", writer)
    monkeypatch.setattr(unwatchable_moments, "_noted", set())
    monkeypatch.setattr(every_call.c10d, "_world", SimpleNamespace(pg_map={kind(0, 1): None}))
    every_call._look_at_groups()
    noted = [one.what for one in writer.kept if isinstance(one, Overlooked)]
    assert noted == ([] if kind is dist.ProcessGroup else ["calls"])
