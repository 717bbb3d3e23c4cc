"""Among which ranks FSDP deals out each of its parameters, and which of them hold the same part."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch.distributed as dist

from ddpcheck.probes.collectives.process_groups import ranks_of
from ddpcheck.probes.digests import readable_memory
from ddpcheck.probes.recording.arguments import Arguments
from ddpcheck.probes.recording.tensor_references import reference

WHOLE = "NO_SHARD"


class Dealt(NamedTuple):
    """How FSDP has dealt out a parameter."""

    among: tuple[int, ...]
    """The ranks that have a part of it each; none where each has all of it."""
    holders: tuple[int, ...]
    """Those that have the same part as this one."""


_dealt: dict[int, Dealt] = {}
"""By the id of a parameter."""


def note(wrapper: Any, given: Arguments) -> None:
    """An FSDP wrapper was built with these arguments: its parameters are those that no wrapper within it has."""
    dealt = _dealt_out(given)
    if dealt is None:
        return
    for parameter in wrapper.parameters():
        if readable_memory.is_of_fsdp(parameter) and id(parameter) not in _dealt:
            _dealt[id(parameter)] = dealt
            reference(parameter).when_gone(partial(_dealt.pop, id(parameter), None))


def _dealt_out(given: Arguments) -> Dealt | None:
    """By the strategy and the groups that were asked for; None where FSDP makes groups of its own."""
    group, mesh = given.get("process_group"), given.get("device_mesh")
    strategy = getattr(given.get("sharding_strategy"), "name", "")
    if mesh is not None:
        groups = tuple(mesh.get_group(mesh_dim=dim) for dim in reversed(range(mesh.ndim)))
    else:
        groups = tuple(group) if isinstance(group, tuple) else (group,)
    if "HYBRID" in strategy:  # the ranks that a copy is cut among, and those that have the same part
        return Dealt(ranks_of(groups[0]), ranks_of(groups[1])) if len(groups) == 2 else None
    ranks = ranks_of(groups[0])
    return Dealt((), ranks) if strategy == WHOLE else Dealt(ranks, (dist.get_rank(),))


def of(parameter: Any) -> Dealt | None:
    """How a parameter was dealt out; None where that was not seen."""
    return _dealt.get(id(parameter))
