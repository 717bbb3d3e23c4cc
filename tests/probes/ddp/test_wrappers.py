"""Which group the construction of a wrapper is put on record on."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from ddpcheck.probes.collectives import process_groups
from ddpcheck.probes.ddp import wrapper_usage, wrappers
from ddpcheck.probes.recording import arguments


class Group:
    """A stand-in for a process group."""


class Mesh:
    """A stand-in for a mesh of devices."""

    def __init__(self, group: Group | None, ndim: int = 1) -> None:
        self.group, self.ndim = group, ndim

    def get_group(self, dimension: int) -> Group:
        if self.group is None:
            raise RuntimeError("no groups were made")
        return self.group


GROUP = Group()


@pytest.mark.parametrize(
    ("args", "given", "expected"),
    [
        ((), {}, "world"),
        ((), {"process_group": GROUP}, "0,1#1"),
        ((GROUP,), {}, "0,1#1"),
        ((), {"device_mesh": Mesh(GROUP)}, "0,1#1"),
        ((), {"device_mesh": Mesh(GROUP, ndim=2)}, "?"),
        ((), {"device_mesh": Mesh(None)}, "?"),
    ],
)
def test_the_group_that_a_wrapper_is_given(
    monkeypatch: pytest.MonkeyPatch, args: tuple[Any, ...], given: dict[str, Any], expected: str
) -> None:
    """By name, by place, or by a mesh; a group that is not known is not taken for the default one."""
    monkeypatch.setitem(process_groups._keys, GROUP, "0,1#1")
    places = arguments.places(DistributedDataParallel.__init__)
    before: list[Any] = [None] * places["process_group"]
    assert wrappers._group_of(places, (*before, *args), given) == expected


def test_a_backward_through_an_output_is_seen() -> None:
    """Once, wherever in the output it comes through; and the tensor itself bears no mark of it."""

    class Ddp:
        require_backward_grad_sync = True

    ddp = Ddp()
    wrapper = wrapper_usage.Wrapper(0, ddp)
    weight = torch.ones(3, requires_grad=True)
    output = list((weight * 2).split([1, 2]))
    wrappers._armed(ddp, wrapper, output[:1])
    assert (wrapper.counts["armed"], wrapper.counts["reached"], wrapper.armed_now) == (1, 0, True)
    output[1].sum().backward(retain_graph=True)  # beside it
    assert wrapper.counts["reached"] == 0
    for _ in range(2):
        output[0].sum().backward(retain_graph=True)
        assert (wrapper.counts["reached"], wrapper.armed_now) == (1, False)
    assert output[0]._backward_hooks is None
