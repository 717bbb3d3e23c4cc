"""Among which ranks FSDP deals out each of its parameters, and which of them hold the same part."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch.distributed as dist

from ddpcheck.probes.digests import readable_memory
from ddpcheck.probes.recording.missing_seams import attribute
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


def note(wrapper: Any) -> None:
    """An FSDP wrapper was built: its parameters are those that no wrapper within it has."""
    ranks = _ranks(attribute(wrapper, "process_group", None))
    if not ranks:
        return
    strategy = getattr(attribute(wrapper, "sharding_strategy", None), "name", "")
    if strategy == WHOLE:
        dealt = Dealt((), ranks)
    else:
        copies = _ranks(getattr(wrapper, "_inter_node_pg", None)) if "HYBRID" in strategy else ()
        dealt = Dealt(ranks, copies or (dist.get_rank(),))
    for parameter in wrapper.parameters():
        if readable_memory.is_of_fsdp(parameter) and id(parameter) not in _dealt:
            _dealt[id(parameter)] = dealt
            reference(parameter).when_gone(partial(_dealt.pop, id(parameter), None))


def of(parameter: Any) -> Dealt | None:
    """How a parameter was dealt out; None where that was not seen."""
    return _dealt.get(id(parameter))


def _ranks(group: Any) -> tuple[int, ...]:
    return tuple(sorted(dist.get_process_group_ranks(group))) if group is not None else ()
