"""Between which ranks tensors go, and which of these may be activations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from ddpcheck import evidence as ev
from ddpcheck.facts.passes import AVERAGING
from ddpcheck.judging import happens_before
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.tensor_kinds import elements_in
from ddpcheck.judging.world import World

FEW = 4
"""Elements of a tensor that is a loss or a count."""
_EMPTY = ("barrier", "monitored_barrier", "new_group", "wait", "join")
_GIVING = ("gather", "all_to_all", "broadcast", "scatter")

Ranks = frozenset[int]


@once_per_world
def between(world: World) -> list[Ranks]:
    """Sets of ranks between which more than a few numbers go: of calls that are alike, those of one.

    What goes between them after their last step has no part in what they have trained.
    """
    last = {rank.rank: max((step.n for step in rank.of(ev.Step)), default=math.inf) for rank in world}
    return list(dict.fromkeys(ranks for ranks, op, detail in _calls(world, until=last) if not _is_small(op, detail)))


@once_per_world
def activations(world: World) -> list[Ranks]:
    """Those that give each other tensors as they are once training has begun, without adding them up.

    What FSDP gathers among the ranks that it was given is none of that, nor are objects.
    """
    own = averaging(world)
    found = {
        ranks: None
        for ranks, op, detail in _calls(world, _begun(world))
        if gives(op) and not any(ranks <= its for its in own) and not _is_small(op, detail)
    }
    return list(found)


@once_per_world
def averaging(world: World) -> set[Ranks]:
    """Those over which FSDP and its like were told to bring gradients together."""
    return {frozenset(one.ranks) for _, one in world.of(ev.Parallelised) if one.how in AVERAGING}


def reach(world: World, ranks: Ranks) -> Ranks:
    """Those that give each other activations with these, from one to another."""
    return closure(ranks, lambda _: activations(world))


def closure(ranks: Ranks, sets: Callable[[int], Iterable[Ranks]]) -> Ranks:
    """All that are reached from these, by the sets of each of them."""
    while (more := ranks.union(*(one for rank in ranks for one in sets(rank) if one & ranks))) != ranks:
        ranks = more
    return ranks


@once_per_world
def of_the_program(world: World) -> list[Ranks]:
    """Those between which more than a few numbers go once training has begun, but for what DDP and FSDP reduce."""
    found = {
        ranks: None
        for ranks, op, detail in _calls(world, _begun(world))
        if not op.startswith("ddp-") and not _is_small(op, detail) and not any(ranks <= one for one in averaging(world))
    }
    return list(found)


def gives(op: str) -> bool:
    """Whether an operation hands tensors on as they are."""
    return (any(part in op for part in _GIVING) or op in ev.PAIRWISE) and "reduce" not in op and "object" not in op


def parties(world: World, rank: int, group: str, peer: int | None, op: str) -> Ranks:
    """The ranks that take part in a rank's call."""
    if op in ev.PAIRWISE and peer is not None:
        return frozenset((rank, peer))
    return frozenset(one for one in happens_before.members(group, world.world_size) if one is not None)


def _begun(world: World) -> dict[int, float]:
    """By rank, when its first step was made."""
    return {rank.rank: min((step.n for step in rank.of(ev.Step)), default=math.inf) for rank in world}


def _calls(
    world: World, since: Mapping[int, float] | None = None, until: Mapping[int, float] | None = None
) -> set[tuple[Ranks, str, str]]:
    """Each kind of call between two records of every rank."""
    found = set()
    for rank in world:
        first = since[rank.rank] if since is not None else 0
        last = until[rank.rank] if until is not None else math.inf
        for op, group, peer, detail in {
            (one.op, one.group, one.peer, one.detail) for one in rank.of(ev.Call) if first < one.n < last
        }:
            if op in _EMPTY:
                continue
            found.add((parties(world, rank.rank, group, peer, op), op, detail))
    return found


def is_of_tensors(call: ev.Call) -> bool:
    """Whether a call is one of the program's own over more than a few numbers."""
    return call.op not in _EMPTY and not call.op.startswith("ddp-") and not _is_small(call.op, call.detail)


def _is_small(op: str, detail: str) -> bool:
    """Whether it is over a few numbers, as far as its tensor's shape shows."""
    if "scatter" in op:  # what it shows is a part
        return False
    return 0 < elements_in(detail) <= FEW
