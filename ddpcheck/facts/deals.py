"""One dataset that is dealt out to all ranks: they train one model, unless something says otherwise."""

from __future__ import annotations

from ddpcheck import evidence as ev
from ddpcheck.facts.datasets import identity_of
from ddpcheck.facts.passes import Line, loops
from ddpcheck.judging.indirect_exchanges import by_files
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.world import Rank, World


@once_per_world
def dealt(world: World) -> list[Line]:
    """The training loops in which every rank goes through its shard of one dataset."""
    return [line for line in loops(world) if line.training and _is_dealt(world, line) and not _is_own(line)]


def _is_dealt(world: World, line: Line) -> bool:
    loaders = [ones[0].loader for ones in line.passes.values()]
    sharded = all(one is not None and one.distributed and one.replicas == world.world_size for one in loaders)
    return len(line.passes) == len(world) and sharded


def _is_own(line: Line) -> bool:
    """Whether each rank has other data at the same indices, as one that trains for its own site."""
    return identity_of(one for passes in line.passes.values() for one in passes).different


@once_per_world
def without_meeting(world: World) -> Line | None:
    """The same, where all that went between ranks is on record, and no file may bring their models together."""
    line = next(iter(dealt(world)), None)
    if line is None or not world.complete or by_files(world) or not all(map(_is_whole, world)):
        return None
    return line


def _is_whole(rank: Rank) -> bool:
    """Whether all of its calls are on record: what is not might bring models together."""
    if rank.process.incomplete or rank.process.lacks(rank.start, rank.end) or rank.last(ev.Transfers) is None:
        return False
    by_group: dict[str, list[int]] = {}
    for call in rank.of(ev.Call):
        if call.op not in ("wait", *ev.PAIRWISE) and not call.joined:
            by_group.setdefault(call.group, []).append(call.number)
    return all(len(numbers) == max(numbers) - min(numbers) + 1 for numbers in by_group.values())
