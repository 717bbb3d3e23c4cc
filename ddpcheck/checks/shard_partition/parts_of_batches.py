"""Ranks that load the same samples on purpose, and give their models different parts of them.

A part is told by its size: that of noise or of an augmentation of each rank's
own is the size of the whole batch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.facts import sketches
from ddpcheck.facts.datasets import Identity, by_index
from ddpcheck.facts.model_inputs import Contributions, contributions
from ddpcheck.facts.passes import Pass
from ddpcheck.judging.values_by_key import by_key

ROUNDS = 8
"""Passes that are looked at."""

Window = tuple[Hashable, ...]
"""Pass, batch, wrapper, and the line of the forward."""


class _Extent(NamedTuple):
    """How far an input reaches along one dimension, and the batch that it was taken from."""

    dimension: int
    part: int
    whole: int


def sharers(there: Mapping[int, Sequence[Pass]], identity: Identity, wrapped: bool) -> set[int]:
    """The ranks that share their batches with a lower rank, each of which gives its model another part of them.

    Where nothing reduces gradients within backward(), what it contributes shows whether models were given the same.
    """
    alike: list[list[int]] = []
    for rank in sorted(there):
        known = next((ones for ones in alike if _same_samples(there[ones[0]], there[rank], identity)), None)
        if known is None:
            alike.append([rank])
        else:
            known.append(rank)
    found: set[int] = set()
    for ones in alike:
        if len(ones) < 2:
            continue
        if _have_parts([_windows(there[rank]) for rank in ones]):
            found.update(ones[1:])
        elif not wrapped:
            lowest, *others = [contributions(there[rank][0].rank) for rank in ones]
            found.update(rank for rank, own in zip(ones[1:], others, strict=True) if _differ(lowest, own))
    return found


def _differ(mine: Contributions, yours: Contributions) -> bool:
    """Whether two ranks have contributed different gradients, in half of what can be compared at least."""
    common = mine.keys() & yours.keys()
    differing = sum(not sketches.are_alike(mine[key], yours[key]) for key in common)
    return 0 < len(common) <= 2 * differing


def _same_samples(mine: Sequence[Pass], yours: Sequence[Pass], identity: Identity) -> bool:
    """Whether two ranks were handed the same samples in the same order, as far as both are known."""
    compared = False
    for one, other in zip(mine[:ROUNDS], yours[:ROUNDS], strict=False):
        indexed = by_index([one, other], identity)
        keys = [[s.place if indexed else s.print_ for s in each.samples] for each in (one, other)]
        length = min(map(len, keys))
        if keys[0][:length] != keys[1][:length] or None in keys[0][:length]:
            return False
        compared = compared or length > 0
    return compared


def _windows(passes: Sequence[Pass]) -> dict[Window, list[ev.Inputs]]:
    """What went into the forwards at one line for one batch, as far as all of it is on record."""
    rank = passes[0].rank
    numbers = {(one.begun.loader, one.begun.number): place for place, one in enumerate(passes[:ROUNDS])}
    found: dict[Window, list[ev.Inputs]] = defaultdict(list)
    cut: set[Window] = set()
    for one in rank.of(ev.Inputs):
        place = numbers.get((one.loader, one.pass_)) if one.loader is not None else None
        if place is not None and one.number < ev.EVERY_INPUT:
            window = (place, one.batch, one.wrapper, rank.where(one.site))
            found[window].append(one)
            if one.number == ev.EVERY_INPUT - 1:  # there may have been more
                cut.add(window)
    return {window: given for window, given in found.items() if window not in cut}


def _have_parts(each: Sequence[Mapping[Window, list[ev.Inputs]]]) -> bool:
    """Whether the ranks' forwards were given parts of their batches, in half of what can be compared at least."""
    parts = compared = 0
    for window in set(each[0]).intersection(*each[1:]):
        given = [one[window] for one in each]
        if len({len(one) for one in given}) == 1 and all(f.digest for one in given for f in one):
            compared += 1
            parts += _are_parts(given)
    return 0 < compared <= 2 * parts


def _are_parts(given: Sequence[Sequence[ev.Inputs]]) -> bool:
    """Whether what the ranks' models were given fits side by side into the batch that all of them had."""
    if len({tuple(f.digest for f in one) for one in given}) == 1:
        return False
    ranks = len(given)
    along = by_key((extent, total) for one in given for extent, total in _totals(one).items())
    for (dimension, whole), parts in along.items():
        if len(parts) < ranks:
            continue
        # Ranks that take one sample less than others may have padded.
        fits = sum(parts) <= whole + ranks - 1
        if fits and (dimension == 0 or sum(parts) >= whole - ranks):
            return True
    return False


def _totals(forwards: Sequence[ev.Inputs]) -> dict[tuple[int, int], int]:
    """How much of a batch the forwards of one line were given, one after the other, by dimension and its whole size.

    That of micro-batches is all of it in the end.
    """
    found: dict[tuple[int, int], int] = defaultdict(int)
    for forward in forwards:
        extents = set(_extents(forward))
        for extent in extents:
            found[extent.dimension, extent.whole] += extent.part
    return found


def _extents(forward: ev.Inputs) -> list[_Extent]:
    """Where one input is smaller than the batch, in one dimension alone."""
    found = []
    for shape in filter(None, forward.shapes):
        related = False
        for given in filter(None, forward.given):
            differing = [d for d, size in enumerate(given) if d >= len(shape) or shape[d] != size]
            if len(differing) == 1 and differing[0] < len(shape) and shape[differing[0]] < given[differing[0]]:
                found.append(_Extent(differing[0], shape[differing[0]], given[differing[0]]))
            related = related or len(differing) < 2
        # What was computed from the batch, or put together of samples that are no tensors.
        if not related and shape[0] < forward.samples and forward.samples not in shape[1:]:
            found.append(_Extent(0, shape[0], forward.samples))
    whole = any(shape and shape[0] == forward.samples for shape in forward.shapes)
    return [one for one in found if one.dimension or not whole]
