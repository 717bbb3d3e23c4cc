"""Stages of one pipeline on several ranks: all of them add up the gradients of the same micro-batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ddpcheck import evidence as ev
from ddpcheck.judging import declared_windows as declared
from ddpcheck.judging.world import Rank, World

ENOUGH = 3
"""Windows."""

Zeroed = tuple[Rank, int, list[ev.Window], int]
"""A rank, its optimizer, the windows, and of how many micro-batches each is to be made."""


def zeroed(world: World) -> Iterator[Zeroed]:
    """Ranks that zero their gradients in every micro-batch, and send to one that keeps its own throughout.

    The rank that has the loss says how many micro-batches make a step; the
    others have no loss to divide.
    """
    windows = {rank.rank: declared.by_optimizer(rank) for rank in world}
    ranks = {rank.rank: rank for rank in world}
    for rank in world:
        for optimizer, mine in windows[rank.rank].items():
            if not _all_zeroed(mine):
                continue
            peers = {call.peer for call in rank.of(ev.Call) if call.op in ev.PAIRWISE and call.peer is not None}
            for peer in sorted(peers & ranks.keys()):
                number = _kept(windows[peer].values())
                if number and all(one.backwards == number for one in mine):
                    yield rank, optimizer, mine, number
                    break


def _all_zeroed(windows: Sequence[ev.Window]) -> bool:
    """Whether each step is made on the last micro-batch alone, because of zero_grad() between any two."""
    return len(windows) >= ENOUGH and all(
        one.between and one.alone and all(b.became == "zeroed" and b.after == b.before for b in one.between)
        for one in windows
    )


def _kept(each: Iterable[list[ev.Window]]) -> int:
    """How many micro-batches a rank adds up for each step, as it says itself; 0 where it does not."""
    for windows in each:
        numbers = {declared.divided_by(one) for one in windows}
        kept = all(b.became == "kept" for one in windows for b in one.between)
        if len(windows) >= ENOUGH and len(numbers) == 1 and kept:
            number = numbers.pop()
            if number and all(one.backwards == number for one in windows):
                return number
    return 0
