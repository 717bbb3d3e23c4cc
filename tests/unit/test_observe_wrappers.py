"""Which group the construction of a wrapper is put on record on."""

from __future__ import annotations

from typing import Any

import pytest
from torch.nn.parallel import DistributedDataParallel

from ddpcheck.observe import membership, operands, wrappers


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
    monkeypatch.setitem(membership._keys, GROUP, "0,1#1")
    places = operands.places(DistributedDataParallel.__init__)
    before: list[Any] = [None] * places["process_group"]
    assert wrappers._group_of(places, (*before, *args), given) == expected
