"""R3: every element of the loss counts the same in a step, and all together as much as one mean over them.

By how much they count otherwise is a quotient that names the cause: the elements of a rank or of a micro-batch, the
number of micro-batches, the size of a group.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from ddpcheck.facts.reductions import Ranks
from ddpcheck.facts.weights import Batch, Part, Weighed, Weights

TOLERANCE = 0.02
"""By how much of itself a weight may differ: as much as arithmetic in 16 bits makes of one."""
NEAR = 5e-3
"""By how much of itself a number may be off to be called a whole one."""
ENOUGH = 3
"""Windows, of which each is divided by the number of the same micro-batch: so many are not by chance."""

Pattern = Literal[
    "ranks", "groups", "calls", "part", "added", "scaled", "times", "short", "one call", "sum", "tensors", "factor",
    "lacking",
]  # fmt: skip
"""Elements count differently on different ranks; in different groups of ranks; in different micro-batches; on different
ranks, while another part of the loss is divided by those of all; each micro-batch counts as a whole; all count several
times too much or too little, though each rank divides by those of all; the same, where ranks have equally many; those
of a window with few micro-batches count too little; the window is divided by the elements of one of its micro-batches;
nothing divides them; they count otherwise in some tensors, for which other ranks' gradients are added up, or though
each rank divides by those of all; in others; one part lacks a factor."""

WEIGHTED = "ddpcheck saw elements of the loss with different weights, which do not follow from their numbers"
APART = "ddpcheck saw the same elements count more in some parameters than in others"
NOTHING_COUNTS = "ddpcheck saw a part of the loss whose elements count in one backward() at most"


class Deviation(NamedTuple):
    """How elements count otherwise."""

    weights: Weights
    pattern: Pattern
    part: Part
    steps: list[int]
    """Those at which it is so."""
    weighed: Weighed
    """The first of them."""
    heavy: Batch
    light: Batch
    """One whose elements count most, and one whose elements count least."""
    size: float = 1.0
    """How many times all of them count, or the number that they are divided by."""
    other: _Total | None = None
    """That of the tensors in which they count as usual."""

    @property
    def names(self) -> list[str]:
        """Of the tensors."""
        return list(dict.fromkeys(self.weights.family.tensors[place].path for place in self.weighed.tensors))

    @property
    def ranks(self) -> tuple[int, ...]:
        """Those that have these losses; of what all elements count, also those whose gradients are added up."""
        is_of_elements = self.pattern in ("ranks", "groups", "calls", "part")
        return tuple(sorted({one.rank for one in self.part.batches} | (set() if is_of_elements else self.weighed.over)))


class Alikeness(NamedTuple):
    """What the comparison gave."""

    windows: set[tuple[int, int]]
    """Those of which all was compared: an optimizer's number, and that of its step."""
    deviations: list[Deviation]
    whys: list[str]
    """Why others were not."""


def alikeness(all_of_it: Sequence[Weights], sizes: Mapping[int, Collection[Ranks]]) -> Alikeness:
    """Compare what elements count; ``sizes``: groups of ranks, by how many these are."""
    windows: set[tuple[int, int]] = set()
    missed: set[tuple[int, int]] = set()
    whys: list[str] = []
    found: dict[tuple[object, ...], Deviation] = {}
    otherwise: set[tuple[object, int]] = set()
    """Parts of which some elements have weights that do not follow from their numbers: by chance others may seem to."""
    for weights, weighed in ((one, weighed) for one in all_of_it for each in one.windows for weighed in each):
        uneven = list(_uneven(weighed, sizes))
        window = (weights.family.optimizers[min(weighed.ranks)], weighed.number)
        if weighed.why or any(pattern is None for pattern, *_ in uneven):
            whys.append(weighed.why or WEIGHTED)
            missed.add(window)
        elif not all(_is_compared(part) for part in weighed.parts):
            whys.append(NOTHING_COUNTS)
        elif weighed.parts:
            windows.add(window)
        for pattern, part, heavy, light in uneven:
            if pattern is None:
                otherwise.add((part.line, part.place))
            else:
                one = Deviation(weights, pattern, part, [], weighed, heavy, light)
                key = (id(weights), pattern, part.line, part.place)
                steps = found.setdefault(key, one).steps
                if weighed.number not in steps:
                    steps.append(weighed.number)
    totals = _Totals(all_of_it)
    later = (*_scaled(totals, sizes), *_tensors(totals, sizes), *(d for one in all_of_it for d in _lacking(one, sizes)))
    for one in later:
        if one.pattern == "factor":
            whys.append(APART)
            missed |= {(one.weights.family.optimizers[min(one.weighed.ranks)], step) for step in one.steps}
    of_elements = [one for one in found.values() if (one.part.line, one.part.place) not in otherwise]
    return Alikeness(windows - missed, [*of_elements, *later], whys)


def _is_compared(part: Part) -> bool:
    return len({(one.rank, one.turn) for one in part.counted}) > 1


# --- elements against each other


def _uneven(
    weighed: Weighed, sizes: Mapping[int, Collection[Ranks]]
) -> Iterator[tuple[Pattern | None, Part, Batch, Batch]]:
    """Parts whose elements do not all count the same; without a pattern where that is not by their numbers."""
    even = [part for part in weighed.parts if _is_even(part)]
    for part in weighed.parts:
        counted = part.counted
        if not counted or not _differ(counted):
            continue
        heavy, light = max(counted, key=_weight), min(counted, key=_weight)
        pattern: Pattern | None = None
        is_read_alike = len({one.sharers for one in counted}) == 1  # what some ranks read twice counts twice
        if is_read_alike and (_are_means(counted) or _are_shared_means(counted)):
            turns = {one.turn for one in counted}
            is_apart = any(_differ([one for one in counted if one.turn == turn]) for turn in turns)
            pattern = "ranks" if is_apart else "calls"
            if pattern == "ranks" and heavy.term.kind != "mean" and any(one.line == part.line for one in even):
                pattern = "part"
        elif is_read_alike and any(_are_means_of(counted, groups) for groups in sizes.values()):
            pattern = "groups"
        yield pattern, part, heavy, light


def _is_even(part: Part) -> bool:
    """Whether an element counts the same on all ranks, though these have unequally many: the loss is to be one mean."""
    counted = part.counted
    several = len({one.rank for one in counted}) > 1 and len({one.term.elements for one in counted}) > 1
    return several and not _differ(counted) and counted[0].term.kind != "mean"


def _are_means(counted: Sequence[Batch]) -> bool:
    """Whether each batch counts as much as any other, or, where a rank's elements have one weight, each rank."""
    by_rank = [[one for one in counted if one.rank == rank] for rank in {one.rank for one in counted}]
    if _are_equal([one.total for one in counted]):
        return True
    if any(_differ(its) for its in by_rank):
        return False
    return _are_equal([math.fsum(one.total for one in its) for its in by_rank])


def _are_means_of(counted: Sequence[Batch], groups: Collection[Ranks]) -> bool:
    """Whether each of the groups that part the ranks counts as much as any other, and its elements the same."""
    ranks = frozenset(one.rank for one in counted)
    share = math.fsum(one.total for one in counted) / len(ranks)
    even = []
    for group in (one for one in groups if one < ranks):
        batches = [one for one in counted if one.rank in group]
        if not _differ(batches) and _are_equal([math.fsum(one.total for one in batches), len(group) * share]):
            even.append(group)
    return _can_be_parted(ranks, even)


def _can_be_parted(ranks: Ranks, groups: Sequence[Ranks]) -> bool:
    """Whether some of these groups are all of the ranks, each once."""
    left = [one for one in groups if one <= ranks]
    return not ranks or any(_can_be_parted(ranks - one, left) for one in left if min(ranks) in one)


def _are_shared_means(counted: Sequence[Batch]) -> bool:
    """Whether each micro-batch counts as much as any other, its elements being spread over ranks with one weight."""
    turns = [[one for one in counted if one.turn == turn] for turn in {one.turn for one in counted}]
    return _are_equal([math.fsum(one.total for one in its) for its in turns]) and not any(map(_differ, turns))


# --- all elements together


class _Total(NamedTuple):
    """What all elements of a step count together, where the loss has one part."""

    weights: Weights
    weighed: Weighed
    part: Part
    value: float

    @property
    def calls(self) -> list[float]:
        """The elements of each micro-batch that was not thrown away, over all ranks."""
        found: dict[int, float] = defaultdict(float)
        for one in self.part.batches:
            if one.weight or not one.term.elements:
                found[one.turn] += one.term.elements / one.sharers
        return [found[turn] for turn in sorted(found)]


class _Totals:
    """Those of all steps, of all tensors that a line's backward() comes to."""

    def __init__(self, all_of_it: Sequence[Weights]) -> None:
        self.by_line: dict[object, dict[int, list[_Total]]] = defaultdict(lambda: defaultdict(list))
        for weights, weighed in ((one, weighed) for one in all_of_it for each in one.windows for weighed in each):
            if (total := _total(weights, weighed)) is not None:
                self.by_line[total.part.line][weighed.number].append(total)
        self.apart = [
            one
            for windows in self.by_line.values()
            for its in windows.values()
            for one in its
            if not is_near(one.value, _usual(its).value)
        ]

    def even(self) -> Iterator[list[_Total]]:
        """By line, one for each step; of a line that counts the same in all tensors."""
        lines = {one.part.line for one in self.apart}
        yield from ([its[0] for its in of.values()] for line, of in self.by_line.items() if line not in lines)


def _usual(its: Sequence[_Total]) -> _Total:
    return max(its, key=lambda one: (is_near(one.value, 1), len(one.weighed.over)))


def _total(weights: Weights, weighed: Weighed) -> _Total | None:
    if weighed.why or len(weighed.parts) != 1 or not (weighed.are_batches_known and weighed.is_of_all):
        return None
    (part,) = weighed.parts
    counted = part.counted
    if not part.alone or not counted or any(one.term.scaled for one in counted):
        return None
    return _Total(weights, weighed, part, math.fsum(one.total for one in counted))


def _scaled(all_totals: _Totals, sizes: Collection[int]) -> Iterator[Deviation]:
    for totals in all_totals.even():
        if len(totals) > 1:
            yield from _of_totals(totals, sizes)


def _of_totals(totals: Sequence[_Total], sizes: Collection[int]) -> Iterator[Deviation]:
    first = totals[0]
    numbers = {len(one.calls) for one in totals}
    is_steady = all(is_near(one.value, first.value) for one in totals)
    size = whole(first.value) if is_steady else None
    if size is not None:
        calls = numbers.pop() if len(numbers) == 1 else 0
        if first.value > 1 and size == calls:  # means that are added up: those of one batch may well be
            if first.part.accumulates and _is_mean_of_ranks(first):
                yield _deviation("added", totals, size)
        elif size in sizes and not all(is_near(one.term.weight, 1) for one in first.part.counted):  # no plain sum
            if any(_is_even(one.part) for one in totals):
                yield _deviation("scaled", totals, first.value)
            elif not any(_differ(one.part.counted) for one in totals):
                yield _deviation("times", totals, first.value)
        return
    most = max(numbers)
    full = [one for one in totals if len(one.calls) == most]
    short = [one for one in totals if len(one.calls) < most]
    if len(full) > 1 and short and all(is_near(one.value, 1) for one in full):
        if all(is_near(one.value, len(one.calls) / most) for one in short):
            yield _deviation("short", short, most)
        return
    if any(_differ(one.part.counted) for one in totals) or is_steady:
        return
    divisors = [math.fsum(one.calls) / one.value for one in totals]
    if most > 1 and len(numbers) == 1 and len(totals) >= ENOUGH:
        of = [m for m in range(most) if all(is_near(d, one.calls[m]) for d, one in zip(divisors, totals, strict=True))]
        if len(of) == 1 and len({one.calls[of[0]] for one in totals}) > 1:
            yield _deviation("one call", totals, of[0])
            return
    if all(is_near(divisor, 1) for divisor in divisors):
        yield _deviation("sum", totals, 1)


def _is_mean_of_ranks(total: _Total) -> bool:
    """Whether each micro-batch, over all ranks, counts as one mean."""
    turns: dict[int, float] = defaultdict(float)
    for one in total.part.batches:
        turns[one.turn] += one.total
    return all(is_near(value, 1) for value in turns.values())


def _deviation(pattern: Pattern, totals: Sequence[_Total], size: float) -> Deviation:
    first = totals[0]
    counted = first.part.counted
    heavy, light = max(counted, key=_elements), min(counted, key=_elements)
    steps = [one.weighed.number for one in totals]
    return Deviation(first.weights, pattern, first.part, steps, first.weighed, heavy, light, size)


# --- tensors against each other


def _tensors(all_totals: _Totals, sizes: Collection[int]) -> Iterator[Deviation]:
    """Tensors that the same elements reach, and in which they count a whole number of times as much."""
    met: dict[tuple[object, ...], Deviation] = {}
    for one in all_totals.apart:
        weights, weighed, part, value = one
        usual = _usual(all_totals.by_line[part.line][weighed.number])
        size = whole(value / usual.value)
        if size is None or size not in sizes or _batches(one) != _batches(usual):
            continue
        is_meant = weighed.over == usual.weighed.over and not _is_even(part)
        pattern: Pattern = "factor" if is_meant else "tensors"  # as a part of a model that is to learn half as fast
        heavy = part.counted[0]
        where = part._replace(line=weights.family.line(min(weighed.ranks), weighed.number))
        made = Deviation(weights, pattern, where, [], weighed, heavy, heavy, value / usual.value, usual)
        steps = met.setdefault((where.line, pattern, size), made).steps
        if weighed.number not in steps:
            steps.append(weighed.number)
    yield from (one for one in met.values() if len(one.steps) > 1)


def _batches(total: _Total) -> set[tuple[int, int]]:
    return {(one.rank, one.turn) for one in total.part.batches}


# --- parts against each other


def _lacking(weights: Weights, sizes: Collection[int]) -> Iterator[Deviation]:
    """A part of the loss without a factor that another part has, which with it is the mean over all elements."""
    met: dict[tuple[object, ...], Deviation] = {}
    for each in weights.windows:
        for weighed in each:
            even = [part for part in weighed.parts if _is_even(part) and not any(b.term.scaled for b in part.batches)]
            for part in even:
                if not is_near(math.fsum(one.total for one in part.counted), 1) or weighed.why:
                    continue
                for other in even:
                    size = _missing(part, other) if other.line == part.line and other is not part else None
                    if size is not None and size in sizes:
                        heavy = other.counted[0]
                        made = Deviation(weights, "lacking", other, [], weighed, heavy, heavy, size)
                        met.setdefault((other.line, other.place), made).steps.append(weighed.number)
    yield from (one for one in met.values() if len(one.steps) > 1)


def _missing(part: Part, other: Part) -> int | None:
    """The whole number that one part is multiplied by and the other is not, where they are scaled alike otherwise.

    A coefficient of its own is every part's right.
    """
    rest = list(other.batches[0].term.scales)
    left, shared = [], False
    for scale in part.batches[0].term.scales:
        same = next((s for s in rest if is_near(s, scale)), None)
        if same is None:
            left.append(scale)
        else:
            rest.remove(same)
            shared |= not is_near(scale, 1)
    left = [scale for scale in left if not is_near(scale, 1)]
    rest = [scale for scale in rest if not is_near(scale, 1)]
    if len(left) != 1 or len(rest) > 1 or left[0] < 1 or not shared:
        return None
    return whole(left[0])


# --- numbers


def whole(value: float) -> int | None:
    """The whole number, 2 or more, that a factor or its inverse is; None where it is none."""
    ratio = value if value >= 1 else 1 / value if value > 0 else 1.0
    if not math.isfinite(ratio):
        return None
    nearest = round(ratio)
    return nearest if nearest > 1 and abs(ratio - nearest) <= NEAR * nearest else None


def is_near(value: float, wanted: float) -> bool:
    """Whether two numbers are the same but for rounding."""
    return abs(value - wanted) <= NEAR * abs(wanted)


def _weight(one: Batch) -> float:
    return one.weight


def _elements(one: Batch) -> int:
    return one.term.elements


def _differ(batches: Sequence[Batch]) -> bool:
    return not _are_equal([one.weight for one in batches])


def _are_equal(values: Sequence[float]) -> bool:
    return max(values) <= (1 + TOLERANCE) * min(values)
