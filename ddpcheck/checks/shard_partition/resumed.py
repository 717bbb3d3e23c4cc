"""A pass that goes on after a load: does it leave out what the ranks had read when the state was saved?"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.checks.shard_partition.causes import loop_lines, place, subject
from ddpcheck.judging.loader_passes import Line, Pass
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count

BY_CHANCE = 1e-3
"""How likely a pass may be to leave out, of samples that were read, as many by chance as it does."""

UNKNOWN = "state was loaded, and it was not seen whether the next pass goes on where the ranks were when it was saved"
"""Why nothing was checked."""

Passes = Mapping[int, Pass]
"""One of each rank."""


class _Resumed(NamedTuple):
    """Two passes through one dataset, of which the second begins after a load, and what both were given."""

    line: Line
    """That of the second one."""
    passes: Passes
    size: int
    """Of the dataset."""
    read: frozenset[int]
    """On any rank, when the state was saved."""
    left_out: frozenset[int]
    """On every rank, in the second pass."""


def judge(world: World, training: Sequence[Line]) -> list[Finding]:
    """What was found of pairs of passes.

    A pass that leaves out samples, all of which had been read, means to go on
    from there; so does one that leaves out all that had been read. A pass that
    begins anew leaves out nothing, or other samples.
    """
    return [one for one in map(_finding, _pairs(world, training)) if one is not None]


def unknown(world: World, training: Sequence[Line]) -> str:
    """Why it is not known that passes after a load read what was left to read; empty where it is.

    A state that was saved between two passes leaves nothing.
    """
    pairs = [one for one in _pairs(world, training) if one.left_out == one.read]
    going_on = {(rank, one.begun.n) for pair in pairs for rank, one in pair.passes.items()}
    saved_between: list[bool] = []
    resumed = False
    for rank in world:
        passes = sorted((one for line in training for one in line.passes.get(rank.rank, ())), key=lambda p: p.begun.n)
        for load in rank.of(ev.StateLoaded):
            after = next((one for one in passes if one.begun.n > load.n), None)
            if load.owner != "optimizer" or after is None or (rank.rank, after.begun.n) in going_on:
                continue
            resumed = True
            saved = max((one.n for one in rank.of(ev.SaveBegan) if one.n < load.n), default=None)
            if saved is not None:
                before = [one for one in passes if one.begun.n < saved]
                saved_between.append(all(one.end < saved and one.exhausted for one in before[-1:]))
    return UNKNOWN if resumed and not (saved_between and all(saved_between)) else ""


def _pairs(world: World, training: Sequence[Line]) -> Iterator[_Resumed]:
    rounds = [(line, passes) for line in training for _, passes in line.rounds() if len(passes) > 1]
    rounds.sort(key=lambda one: min(p.begun.n for p in one[1].values()))
    for (_, before), (line, after) in pairwise(rounds):
        loaders = {rank: one.loader for rank, one in after.items()}
        first = next(iter(loaders.values()))
        if before.keys() != after.keys() or len(after) < world.world_size or first is None or not first.size:
            continue
        if any(one.exhausted for one in before.values()) or not all(one.whole for one in after.values()):
            continue
        both = [(before[rank], after[rank]) for rank in after]
        if not all(_is_one_dataset(*each) and _is_loaded(*each) for each in both):
            continue
        given = [s.place for one in after.values() for s in one.samples]
        read = _read(before, after)
        left_out = frozenset(range(first.size)).difference(given)
        if None in given or len(set(given)) < len(given) or not read:
            continue
        yield _Resumed(line, after, first.size, left_out if left_out in read else read[0], left_out)


def _is_one_dataset(before: Pass, after: Pass) -> bool:
    one, other = before.loader, after.loader
    if one is None or other is None or one.size != other.size or one.repeats or other.repeats:
        return False
    return one.dataset_id == other.dataset_id


def _is_loaded(before: Pass, after: Pass) -> bool:
    """Whether state was loaded between them."""
    return any(before.begun.n < one.n < after.begun.n for one in after.rank.of(ev.StateLoaded))


def _read(before: Passes, after: Passes) -> list[frozenset[int]]:
    """What all ranks had read of the first pass at the save before the second, and what less a batch taken in advance.

    None where that is not known: several saves are told apart by nothing, nor are batches that wait in a queue.
    """
    taken: set[int] = set()
    for rank, one in before.items():
        batches = [batch.n for batch in one.batches]
        saves = [s.n for s in one.rank.of(ev.SaveBegan) if one.begun.n < s.n < after[rank].begun.n]
        taken.update(bisect_left(batches, n) for n in saves)
    if len(taken) != 1:
        return []
    (number,) = taken
    if any(one.backwards < one.taken - 1 for one in before.values()):
        return []  # a thread takes some in advance, say: how many had been trained on is not known
    ended = next(iter(before.values())).ended
    if ended is not None and ended.backwards == ended.batches - 1 == number - 1:
        number -= 1  # a loop that counts takes a batch before it breaks off
    return [one for one in (_first(before, number), _first(before, number - 1)) if one]


def _first(passes: Passes, number: int) -> frozenset[int]:
    """The samples of so many batches of each rank; none where some are not known."""
    found: list[int | None] = []
    for one in passes.values():
        if len(one.batches) < number or one.every > 1 or one.in_part:
            return frozenset()
        samples = sum(batch.samples for batch in one.batches[: max(number, 0)])
        found += [s.place for s in one.samples[:samples]]
    return frozenset(p for p in found if p is not None) if None not in found else frozenset()


def _finding(one: _Resumed) -> Finding | None:
    read, left_out = len(one.read), len(one.left_out)
    again = one.read - one.left_out
    if not again or not left_out or one.left_out - one.read or _chance(read, one.size, left_out) >= BY_CHANCE:
        return None
    loaders = {rank: its.loader for rank, its in one.passes.items()}
    first = next(iter(loaders.values()))
    return Finding(
        rule="samples-read-again",
        severity="warning",
        ranks=tuple(sorted(one.passes)),
        subject=subject(first),
        expected=f"the pass that goes on after a load to leave out the {count(read, 'sample')} that the ranks had read "
        "when the state was saved",
        found=f"{len(again):,} of them to be read again: it leaves out {left_out:,}, all of which had been read",
        cause="what one rank has read was counted, and taken off the order of all ranks"
        if left_out * len(one.passes) == read
        else "the position that was saved is not the one that the ranks had come to",
        advice="Count what all ranks have read where the order of all of them is cut, or cut each rank's own share.",
        where=place(one.line, loaders),
        proof=loop_lines(one.line, tuple(one.passes)),
        links=(one.line.link,),
    )


def _chance(within: int, size: int, drawn: int) -> float:
    """That so many samples, drawn from all, come from a part of them."""
    if drawn > within:
        return 0.0
    return math.exp(_ways(within, drawn) - _ways(size, drawn))


def _ways(size: int, drawn: int) -> float:
    """The logarithm of how many ways there are to draw so many: the number itself may have millions of digits."""
    return math.lgamma(size + 1) - math.lgamma(drawn + 1) - math.lgamma(size - drawn + 1)
