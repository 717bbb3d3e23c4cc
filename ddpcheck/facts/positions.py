"""Ledger 5: where a pass stands that goes on after a load: what it leaves out, and what ranks had read at the save."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, takewhile
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.facts.passes import Line, Pass, loops
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.world import World

UNKNOWN = "state was loaded, and it was not seen whether the next pass goes on where the ranks were when it was saved"
"""Why nothing was checked."""

Passes = Mapping[int, Pass]
"""One of each rank."""


class Resumption(NamedTuple):
    """Two passes through one dataset, of which the second begins after a load, and what both were given."""

    line: Line
    """That of the second one."""
    before: Passes
    passes: Passes
    size: int
    """Of the dataset."""
    read: tuple[frozenset[int], ...]
    """On any rank, when the state was saved; and without a batch that may have been taken in advance."""
    orders: list[list[int]]
    """Rank by rank, what was read, in order."""
    skipped: frozenset[int]
    """Handed out in the second pass, to be left alone before anything is trained on."""
    left_out: frozenset[int]
    """What no rank has trained on in the second pass."""
    batch: int
    """The most samples of a batch."""
    often: int
    """The backward() calls of a step, in the first of them."""


@once_per_world
def of(world: World) -> list[Resumption]:
    """Those whose samples are all known."""
    return list(_pairs(world, [line for line in loops(world) if line.training]))


def _pairs(world: World, training: Sequence[Line]) -> Iterator[Resumption]:
    rounds = [(line, passes) for line in training for _, passes in line.rounds() if len(passes) > 1]
    rounds.sort(key=lambda one: min(p.begun.n for p in one[1].values()))
    earlier: dict[int, list[int]] | None = {}
    """By rank, what passes before had read of the epoch; None where that is not known."""
    for (_, before), (line, after) in pairwise(rounds):
        if before.keys() != after.keys() or len(after) < world.world_size or not _goes_on(before, after):
            earlier = {}
            continue
        read = _read(before, after)
        places = {rank: [s.place for s in one.samples if s.place is not None] for rank, one in before.items()}
        known = earlier is not None and bool(read)
        if earlier is not None and known:
            given = {place for its in places.values() for place in its}
            had = {place for its in earlier.values() for place in its}
            if had <= given:  # it has begun anew, or hands out what it skips
                had, earlier = set(), {}
            known = not had & given
            earlier = {
                rank: [*earlier.get(rank, ()), *(place for place in its if place in read[0])]
                for rank, its in places.items()
            }
            if known and (found := _resumption(line, before, after, [had | one for one in read], earlier)):
                yield found
        earlier = earlier if known else None


def _goes_on(before: Passes, after: Passes) -> bool:
    """Whether passes may go on with an epoch that was left, after a load."""
    if any(one.exhausted for one in before.values()):
        return False
    return all(_is_one_dataset(before[rank], after[rank]) and _is_loaded(before[rank], after[rank]) for rank in after)


def _resumption(
    line: Line,
    before: Passes,
    after: Passes,
    read: Sequence[frozenset[int] | set[int]],
    orders: Mapping[int, list[int]],
) -> Resumption | None:
    """The second of two passes, where all that it gives is known."""
    first = next(iter(after.values())).loader
    skipped = [_skipped(one) for one in after.values()]
    given = [sample.place for one in after.values() for sample in one.samples]
    if first is None or not first.size or not all(one.whole for one in after.values()):
        return None
    if None in given or len(set(given)) < len(given) or None in skipped:
        return None
    places = frozenset(p for its in skipped for p in its or () if p is not None)
    left_out = frozenset(range(first.size)).difference(given) | places
    batch = max(b.samples for one in after.values() for b in one.batches)
    one = next(iter(before.values()))
    often = round(one.backwards / max(one.steps.values(), default=1))
    sets = tuple(map(frozenset, read))
    return Resumption(line, before, after, first.size, sets, list(orders.values()), places, left_out, batch, often)


def _is_one_dataset(before: Pass, after: Pass) -> bool:
    """Whether they go through one dataset, or one that was made anew at the same line."""
    one, other = before.loader, after.loader
    if one is None or other is None or one.size != other.size or one.repeats or other.repeats:
        return False
    return one.dataset_id == other.dataset_id or before.rank.where(one.site) == after.rank.where(other.site)


def _is_loaded(before: Pass, after: Pass) -> bool:
    """Whether state was loaded between them."""
    return any(before.begun.n < one.n < after.begun.n for one in after.rank.of(ev.StateLoaded))


def _skipped(one: Pass) -> list[int | None] | None:
    """The samples of the first batches, which nothing was trained on; None where that is not known.

    A loop that takes batches in advance has a backward() for each of them in the end.
    """
    number = max(0, len(list(takewhile(lambda batch: not batch.backwards, one.batches))) - 1)
    if not number or not one.backwards:
        return []
    trained = one.taken - number
    if one.every > 1 or one.backwards % trained:
        return [] if not one.backwards % one.taken else None
    return [sample.place for its in one.samples_of_batches[:number] for sample in its]


def _read(before: Passes, after: Passes) -> list[frozenset[int]]:
    """What all ranks had read of the first pass at the save before the second, and what less a batch taken in advance.

    None where that is not known: which of several saves was loaded, or how many batches wait in a queue.
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
        found += [sample.place for its in one.samples_of_batches[: max(number, 0)] for sample in its]
    return frozenset(p for p in found if p is not None) if None not in found else frozenset()


def unknown(world: World) -> str:
    """Why it is not known that passes after a load read what was left to read; empty where it is.

    A state that was saved between two passes leaves nothing.
    """
    pairs = [one for one in of(world) if one.left_out in one.read]
    going_on = {(rank, one.begun.n) for pair in pairs for rank, one in pair.passes.items()}
    training = [line for line in loops(world) if line.training]
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
