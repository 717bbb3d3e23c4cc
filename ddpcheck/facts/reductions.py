"""Ledger 2: what each step was made of, by how much each rank's contribution counts in it.

Gradients are sums of what backward() calls have contributed. The smallest sum that fits one within rounding is the
one that was made: of one set of ranks, then with the gradient of the step before, then with a number for each
backward(), then with one for each rank. It is known only if whatever it leaves out would show.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ddpcheck import evidence as ev
from ddpcheck.evidence.sketches import NUMBERS
from ddpcheck.facts import copies, deals, exchanges, least_squares, logical_tensors, moments, sketches
from ddpcheck.facts.copies import Holders
from ddpcheck.facts.logical_tensors import Tensor
from ddpcheck.facts.passes import Line
from ddpcheck.facts.sketches import Numbers
from ddpcheck.judging import happens_before, step_alignment
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite

ROUNDING = {"float64": 1e-6, "float32": 1e-3, "float16": 1e-2, "bfloat16": 3e-2}
"""By type, how far a sum of contributions may be from the gradient, over its size."""
EXACT = 1e-5
"""And what rounding makes of a share of nothing."""
EXACT_FACTOR = 1e-3
"""How far apart the factors of two steps may be that are one, over their size."""
SHOWS = 10.0
"""A contribution that is left out would show if it is so many times as large as what the sum is off by."""
SMALL = 0.02
"""A coefficient counts as none that is so much smaller than the largest."""
MOST_PARTS = 64
"""Contributions of one window whose shares are asked for one by one."""
MOST_WAYS = 4096
"""Ways to take one contribution of each rank, to any tensor of one shape, that are tried."""
SPARE = 3
"""How many more numbers a sketch must have than the best of so many ways would fit by chance."""

BECAME = ("prepared", "zeroed", "lost", "overwritten", "clipped", "rescaled")
"""What may become of gradients between two backward() calls, the more telling first."""

NO_SUM = "no sum of contributions fits"

Ranks = frozenset[int]
Bools = NDArray[np.bool_]


class Answer(NamedTuple):
    """What a gradient is a sum of."""

    over: Ranks
    """The ranks whose contributions are in it."""
    without: Ranks
    """Those that have contributed, and are not in it."""
    lost: frozenset[int] = frozenset()
    """The backward() calls of the window, counted from 0, that are not in it, though others of these ranks are."""
    weights: tuple[float, ...] = ()
    """Of several backward() calls that count unequally, how much each does, over the largest."""
    earlier: float = 0.0
    """How much of the gradient that the step before was made on is in it."""
    crossed: tuple[tuple[int, int], ...] = ()
    """The ranks of which it holds what they have contributed to another tensor of its shape, and that tensor."""


class Made(NamedTuple):
    """What one gradient is."""

    answer: int
    """By number, the sum that it is."""
    factor: float
    """By what the contributions were multiplied, or the largest of them."""
    shares: tuple[tuple[tuple[int, int], float], ...] = ()
    """By rank and backward() call of the window, what each was multiplied by, where this is not one number for all."""


class Sums(NamedTuple):
    """What one step was made on, by tensor and stepping ranks."""

    number: int
    """The step."""
    answers: list[Answer]
    by: dict[tuple[Ranks, int], Made]
    """By stepping ranks and tensor."""
    unknown: dict[tuple[Ranks, int], str]
    """The same, for what is not known: why."""
    ranks: dict[int, moments.Window]
    """By rank, what was looked at."""
    calls: dict[int, list[int]]
    """By rank, its backward() calls, by number."""
    sites: dict[int, list[int]]
    """Their lines."""
    moved: set[int]
    """The ranks on which something has written to a parameter between these."""
    contributed: Callable[[Ranks], Numbers]
    """By tensor, what ranks have contributed together."""

    def used(self) -> Iterator[tuple[int, set[int]]]:
        """By rank, the backward() calls that went into some gradient, as far as is known, or may have."""
        for answer in {self.answers[one.answer] for one in self.by.values()}:
            for rank in answer.over & self.calls.keys():
                yield rank, {call for place, call in enumerate(self.calls[rank]) if place not in answer.lost}
        for rank in {rank for (ranks, _), why in self.unknown.items() if why == NO_SUM for rank in ranks}:
            yield rank, set(self.calls.get(rank, ()))


class Family(NamedTuple):
    """The optimizers of all ranks that step the same tensors, and what they stepped on."""

    tensors: list[Tensor]
    holders: list[dict[int, Holders]]
    """By tensor and rank, who has copies of what the rank has."""
    optimizers: dict[int, int]
    """By rank, its own number."""
    windows: list[Sums]
    joined: list[Ranks]
    """Sets of ranks whose contributions are added up for anything in the whole program."""
    between: list[Ranks]
    """Sets of ranks between which more than a few numbers go."""
    exchanging: list[Ranks]
    """Sets of ranks that give each other tensors, as activations: one may contribute for the others' samples."""
    dealt: Line | None
    """The loop in which one dataset is dealt out to all ranks, while nothing makes one model of what they train."""
    used: dict[int, set[int]]
    """By rank, the backward() calls that went into any step."""

    def are_equal(self, place: int, ranks: Ranks, sums: Sums, at: Literal["before", "after"]) -> bool:
        """Whether these ranks hold the same of a tensor before a step, or after it, as far as that was looked at."""
        by_slice: dict[object, list[list[bytes]]] = defaultdict(list)
        for rank in ranks & sums.ranks.keys():
            window, held = sums.ranks[rank], self.tensors[place].held[rank]
            values = window.before if at == "before" else window.after
            digests = [values[one.piece].digest for one in held.stepped if one.piece in values]
            if digests:
                by_slice[held.slice].append(digests)
        several = [each for each in by_slice.values() if len(each) > 1]
        return bool(several) and all(one == each[0] for each in several for one in each)

    def is_mesh_copy(self, place: int) -> bool:
        """Whether each rank holds what it steps of a tensor as a DTensor, of which others have copies."""
        tensor = self.tensors[place]
        layouts = [held.piece.layout for held in tensor.held.values()]
        return all(one is not None and one.ground == "DTensor" for one in layouts) and all(
            held.slice == tensor.slice for held in tensor.held.values()
        )

    @property
    def dataset(self) -> str:
        """The class of the dataset that is dealt out."""
        return self.dealt.loader.dataset if self.dealt is not None and self.dealt.loader is not None else "dataset"

    def between_calls(self, rank: int, number: int) -> tuple[str, CallSite | None]:
        """What became of gradients between the backward() calls before a step, in a word, and the line of that."""
        windows = sorted(self._windows_on_record(rank), key=lambda one: one.number == number)
        sites: dict[str, int] = {}
        for between in (one for window in windows for one in window.between if one.became not in ("kept", "other")):
            is_clipped = between.became == "rescaled" and between.clip != ev.NO_SITE
            word = "prepared" if between.prepared else "clipped" if is_clipped else between.became
            sites[word] = between.clip if between.clip != ev.NO_SITE else between.after
        first = next((word for word in BECAME if word in sites), "")
        holder = self._holder(rank)
        return first, holder.where(sites[first]) if first and holder is not None else None

    def _holder(self, rank: int) -> Rank | None:
        return next((tensor.held[rank].rank for tensor in self.tensors if rank in tensor.held), None)

    def _windows_on_record(self, rank: int) -> list[ev.Window]:
        holder = self._holder(rank)
        each = holder.of(ev.Window) if holder is not None else []
        return [one for one in each if one.optimizer == self.optimizers.get(rank)]

    def is_left_over(self, rank: int) -> bool:
        """Whether a first backward() was seen to add to the gradients that the step before was made on."""
        return any(one.leftover for one in self._windows_on_record(rank))

    def line(self, rank: int, number: int) -> CallSite | None:
        """The line of a rank's step."""
        holder = self._holder(rank)
        steps = holder.of(ev.Step) if holder is not None else []
        own = (one for one in steps if (one.optimizer, one.number) == (self.optimizers[rank], number))
        return next((holder.where(one.site) for one in own if holder is not None), None)


@once_per_world
@np.errstate(all="ignore")
def of(world: World) -> list[Family]:
    """What is known of all optimizers, in the order in which each rank has built its own."""
    tensors = logical_tensors.of(world)
    known = copies.of(world)
    each = []
    for optimizers, places in _optimizers(world, tensors):
        stepped = [tensors[place] for place in places]
        each.append((optimizers, places, _windows(world, stepped, optimizers)))
    joined = {one.over: None for *_, windows in each for sums in windows for one in sums.answers if len(one.over) > 1}
    used: dict[int, set[int]] = defaultdict(set)
    for *_, windows in each:
        for sums in windows:
            for rank, backwards in sums.used():
                used[rank] |= backwards
    line = deals.without_meeting(world)
    return [
        Family(
            [tensors[place] for place in places],
            [known[place] for place in places],
            optimizers,
            windows,
            list(joined),
            exchanges.between(world),
            exchanges.activations(world),
            line,
            used,
        )
        for optimizers, places, windows in each
    ]


def _optimizers(world: World, tensors: Sequence[Tensor]) -> Iterator[tuple[dict[int, int], list[int]]]:
    """By rank, the optimizer that steps some tensors, or whose steps end the windows in which it contributes to them.

    Where several optimizers of a rank step one tensor, the first ones of all ranks belong together, and so on.
    """
    owned = {rank.rank: _owned(rank) for rank in world}
    found: dict[tuple[tuple[int, int], ...], list[int]] = defaultdict(list)
    for place, tensor in enumerate(tensors):
        owners = {
            rank: [number for number, its in owned[rank].items() if any(one.piece in its for one in held.pieces)]
            for rank, held in tensor.held.items()
        }
        for turn in range(max(map(len, owners.values()))):
            at_turn = {
                rank: its[turn] if turn < len(its) else next(iter(owned[rank]), None) if not its else None
                for rank, its in owners.items()
            }
            found[tuple((rank, number) for rank, number in at_turn.items() if number is not None)].append(place)
    for optimizers, places in found.items():
        yield dict(optimizers), places


def _owned(rank: Rank) -> dict[int, set[int]]:
    """By optimizer that lasts, the pieces that it steps."""
    lasting = [phases[0][0].optimizer for phases in step_alignment.lasting(rank)]
    windows = moments.windows(rank)
    return {
        number: {piece for window in windows[number] for piece in window.places}
        for number in lasting
        if number in windows
    }


def _windows(world: World, tensors: list[Tensor], optimizers: Mapping[int, int]) -> list[Sums]:
    windows = {
        rank.rank: {one.number: one for one in moments.windows(rank)[optimizers[rank.rank]]}
        for rank in world
        if rank.rank in optimizers
    }
    groups = {rank.rank: _groups(world, rank) for rank in world}
    steppers = logical_tensors.steppers(tensors)
    before: _Look | None = None
    found: list[Sums] = []
    weak: list[list[tuple[Ranks, int]]] = []
    for number in sorted(set().union(*windows.values())):
        each = {rank: its[number] for rank, its in windows.items() if number in its}
        look = _Look(number, each, tensors, steppers, groups)
        found.append(look.sums(before))
        weak.append(look.weak)
        before = look
    for sums, its in zip(found, weak, strict=True):
        for key in its:
            if not any(_are_one(sums, other, key) for other in found if other is not sums):
                del sums.by[key]
                sums.unknown[key] = "two numbers alone speak for a sum, and in one step only"
    return found


def _are_one(one: Sums, other: Sums, key: tuple[Ranks, int]) -> bool:
    """Whether a tensor is the same sum in two steps."""
    if key not in one.by or key not in other.by:
        return False
    mine, yours = one.by[key], other.by[key]
    same = one.answers[mine.answer].over == other.answers[yours.answer].over
    return same and abs(mine.factor - yours.factor) <= EXACT_FACTOR * abs(mine.factor)


def _groups(world: World, rank: Rank) -> list[Ranks]:
    """The ranks over which this one may have added something up."""
    names = dict.fromkeys(one.group for one in rank.of(ev.Call) if "reduce" in one.op or one.op == "ddp-gradients")
    names |= dict.fromkeys(one.group for one in rank.of(ev.Wrapped))
    return list(dict.fromkeys(frozenset(happens_before.members(name, world.world_size)) for name in names))


class _Look:
    """One step on all ranks that have looked at it, as arrays: ranks, tensors, numbers of a sketch."""

    def __init__(
        self,
        number: int,
        windows: Mapping[int, moments.Window],
        tensors: Sequence[Tensor],
        steppers: Mapping[Ranks, list[int]],
        groups: Mapping[int, list[Ranks]],
    ) -> None:
        self.number, self.windows, self.tensors, self.steppers, self.groups = number, windows, tensors, steppers, groups
        self.size = len(tensors)
        self.contributed: dict[int, list[Numbers]] = {}
        """By rank, what each backward() of it has contributed."""
        self.has: dict[int, Bools] = {}
        """By rank, the tensors to which it has contributed anything."""
        self.gradients: dict[int, Numbers] = {}
        """By rank; not a number where there is none."""
        self.present: dict[int, Bools] = {}
        """By rank, the tensors of which it has a gradient."""
        for rank, window in windows.items():
            places = {
                piece.piece: place
                for place, tensor in enumerate(tensors)
                if rank in tensor.held
                for piece in tensor.held[rank].pieces
            }
            self.contributed[rank] = [
                self._laid_out(one.pieces, one.sketches, places)[0] for one in window.backwards if one.how == "backward"
            ]
            self.has[rank] = (
                np.any([least_squares.sizes(one) != 0 for one in self.contributed[rank]], axis=0)
                if (self.contributed[rank])
                else np.zeros(self.size, dtype=bool)
            )
            gradients, present = self._laid_out(window.step.pieces, window.step.sketches, places)
            otherwise = [
                places[piece]
                for row, piece in enumerate(window.step.pieces)
                if row in window.step.layouts and piece in places
            ]  # such as partial sums
            gradients[~present], gradients[otherwise] = np.nan, np.nan
            self.present[rank] = present
            self.gradients[rank] = gradients
        self.weak: list[tuple[Ranks, int]] = []
        """Stepping ranks and tensors of which two numbers alone say what they are a sum of."""
        self.everybody = frozenset(rank for rank, has in self.has.items() if has.any())

    def _laid_out(self, pieces: Sequence[int], data: bytes, places: Mapping[int, int]) -> tuple[Numbers, Bools]:
        """The sketches of a record, tensor by tensor; several pieces of one are added up."""
        found, present = np.zeros((self.size, NUMBERS)), np.zeros(self.size, dtype=bool)
        known = [(row, places[piece]) for row, piece in enumerate(pieces) if piece in places]
        if known:
            rows, where = np.array(known).T
            np.add.at(found, where, sketches.unpacked(data)[rows])
            present[where] = True
        return found, present

    @cached_property
    def tolerance(self) -> Numbers:
        """By tensor."""
        kinds = [{piece.dtype for held in one.held.values() for piece in held.pieces} for one in self.tensors]
        return np.array([max((ROUNDING.get(kind, 0.0) for kind in one), default=0.0) for one in kinds])

    def total(self, ranks: Ranks) -> Numbers:
        """What these ranks have contributed."""
        if ranks not in self._totals:
            each = [row for rank in sorted(ranks) for row in self.contributed.get(rank, ())]
            self._totals[ranks] = np.sum(each, axis=0) if each else np.zeros((self.size, NUMBERS))
        return self._totals[ranks]

    @cached_property
    def _totals(self) -> dict[Ranks, Numbers]:
        return {}

    def stepped_on(self, ranks: Ranks) -> Numbers:
        """The whole gradients that these step on between them."""
        found: Numbers = np.sum([self.gradients[rank] for rank in ranks], axis=0)
        return found

    # --- sums

    def sums(self, before: _Look | None) -> Sums:
        """What all that steps here was made of."""
        each = {rank: [one for one in w.backwards if one.how == "backward"] for rank, w in self.windows.items()}
        calls = {rank: [one.backward for one in its] for rank, its in each.items()}
        sites = {rank: [one.site for one in its] for rank, its in each.items()}
        moved = {rank for rank, window in self.windows.items() if _has_moved(window)}
        found = Sums(self.number, [], {}, {}, dict(self.windows), calls, sites, moved, self.total)
        numbers: dict[Answer, int] = {}
        for ranks, places in self.steppers.items():
            if not ranks <= self.windows.keys():
                continue
            solver = _Solver(self, before, ranks, np.array(places))
            for place, answer, factor, shares in solver.solved():
                if isinstance(answer, str):
                    found.unknown[ranks, place] = answer
                    continue
                if answer not in numbers:
                    numbers[answer] = len(found.answers)
                    found.answers.append(answer)
                found.by[ranks, place] = Made(numbers[answer], factor, shares)
            self.weak += [(ranks, place) for place in solver.weak]
        return found


def _has_moved(window: moments.Window) -> bool:
    versions: dict[int, int] = {}
    for record in window.backwards:
        for piece, version in zip(record.pieces, record.versions, strict=True):
            if versions.setdefault(piece, version) != version:
                return True
    return False


Shares = tuple[tuple[tuple[int, int], float], ...]
Solved = tuple[int, Answer | str, float, Shares]


class _Solver:
    """The sums that the gradients of one stepper are, tensor by tensor."""

    def __init__(self, look: _Look, before: _Look | None, ranks: Ranks, places: NDArray[np.int64]) -> None:
        self.look, self.ranks, self.places = look, ranks, places
        self.wanted = look.stepped_on(ranks)[places]
        self.size = least_squares.sizes(self.wanted)
        self.absent: Bools = np.asarray(np.all([~look.present[rank][places] for rank in ranks], axis=0))
        self.limit = look.tolerance[places]
        candidates = [ranks, *(one for rank in sorted(ranks) for one in look.groups[rank]), look.everybody]
        self.candidates = list(dict.fromkeys(one & look.everybody for one in candidates if one & look.everybody))
        self.before = (
            before.stepped_on(ranks)[places] if before is not None and ranks <= before.windows.keys() else None
        )
        self.may_be_again = (
            before is not None
            and before.number + 1 == look.number
            and all(look.windows[rank].is_idle for rank in ranks)
            and not any(before.windows[rank].is_idle for rank in ranks & before.windows.keys())
        )
        self.each = {rank: look.total(frozenset({rank}))[places] for rank in sorted(look.everybody)}
        self.sizes = {rank: least_squares.sizes(one) for rank, one in self.each.items()}
        self.equations = np.array([min(NUMBERS, look.tensors[place].elements) for place in places])
        zeros = [size == 0 for size in self.sizes.values()] or [np.zeros(len(places), dtype=bool)]
        self.has_zeros: Bools = np.asarray(np.any(zeros, axis=0))
        self.answers: dict[int, tuple[Answer | str, float, Shares]] = {}
        """By number among the places."""
        self.weak: list[int] = []
        """Tensors of which two numbers alone say what they are a sum of."""

    def solved(self) -> Iterator[Solved]:
        sizes = np.stack([*self.sizes.values(), np.zeros(len(self.places))])
        is_finite: Bools = np.asarray(np.isfinite(sizes).all(axis=0))
        contributed: Bools = np.asarray((sizes > 0).any(axis=0))
        self._again([n for n in range(len(self.places)) if not contributed[n] and np.isfinite(self.size[n])])
        for n in range(len(self.places)):
            if self.absent[n] and contributed[n]:  # the step leaves it as it is, whatever was contributed
                self._tell(n, Answer(frozenset(), self._in_it(n, self.look.everybody)))
            elif not np.isfinite(self.size[n]):
                self._tell(n, "no gradient at the step, or one that is not finite")
            elif not self.size[n]:
                self._tell(n, "nothing but zeros")
            elif not contributed[n]:
                self._tell(n, "no contribution seen")
            elif not is_finite[n]:
                self._tell(n, "a contribution is not finite")
        self._of_one_set()
        models = self._with_earlier, self._by_backward, self._by_rank, self._by_rank_and_backward, self._crossed
        for model in models:
            if self.left:
                model()
        calls = max((len(its) for its in self.look.contributed.values()), default=0)
        for n in self.left:
            self._tell(n, NO_SUM if self.equations[n] > calls else "more unknowns than numbers")
        for n, place in enumerate(self.places):
            yield (int(place), *self.answers[n])

    @property
    def left(self) -> list[int]:
        return [n for n in range(len(self.places)) if n not in self.answers]

    def _tell(self, n: int, answer: Answer | str, factor: float = 0.0, shares: Shares = ()) -> None:
        self.answers.setdefault(n, (answer, factor, shares))

    def _in_it(self, n: int, ranks: Ranks) -> Ranks:
        """Those that have contributed to it anything but zeros."""
        if not self.has_zeros[n]:
            return ranks
        return frozenset(rank for rank in ranks if self.sizes[rank][n] > 0)

    def _shows(self, n: int, rank: int, factor: float, off: float) -> bool:
        return bool(abs(factor) * self.sizes[rank][n] > SHOWS * max(off, 1e-12) * self.size[n])

    def _left_out(self, n: int, ranks: Ranks, factor: float, off: float) -> Ranks:
        """Those that are not in a sum of these: one that has contributed the same as they might as well be in it."""
        total = self.look.total(ranks)[self.places[n]]
        return frozenset(
            rank
            for rank in self.look.everybody - ranks
            if self.sizes[rank][n] > 0
            and self._shows(n, rank, factor, off)
            and not _are_alike(self.each[rank][n], total, float(self.limit[n]))
        )

    def _of_one_set(self) -> None:
        """One number for all contributions of one set of ranks."""
        fits: dict[int, dict[Ranks, tuple[float, float]]] = defaultdict(dict)
        usual: Counter[tuple[Ranks, float]] = Counter()
        for ranks in self.candidates:
            total = self.look.total(ranks)[self.places]
            factors, off = least_squares.fit(self.wanted, total[None])
            for n in map(int, np.flatnonzero((off < self.limit) & (factors[0] != 0))):
                fits[n].setdefault(self._in_it(n, ranks), (float(factors[0][n]), float(off[n])))
        for n, by_ranks in fits.items():
            if len(by_ranks) == 1 and self.equations[n] > 1:
                ((its, (factor, limit)),) = by_ranks.items()
                if not self._is_borne_out(n, its, factor, fits):
                    self.weak.append(int(self.places[n]))
                self._tell(n, Answer(its, self._left_out(n, its, factor, limit)), factor)
                usual[its, factor] += 1
        for n, by_ranks in fits.items():
            # Few elements, or equal contributions, fit in several ways: it is treated as most are, if that fits too.
            for (its, factor), _ in usual.most_common(1) if n not in self.answers else ():
                own, limit = by_ranks.get(its, (np.nan, 0.0))
                if abs(own - factor) < self.limit[n] * abs(factor):
                    self._tell(n, Answer(its, self._left_out(n, its, factor, limit)), factor)
            self._tell(n, "ranks have contributed alike")

    def _is_borne_out(
        self, n: int, ranks: Ranks, factor: float, fits: Mapping[int, Mapping[Ranks, tuple[float, float]]]
    ) -> bool:
        """Whether more than two numbers say so, with those of other tensors: two fit by chance now and then."""
        if self.equations[n] > 2:
            return True
        alike = [
            m for m, its in fits.items() if ranks in its and abs(its[ranks][0] - factor) < self.limit[m] * abs(factor)
        ]
        return bool(self.equations[alike].sum() > 2)

    def _again(self, left: list[int]) -> None:
        """What the step before was made on, and nothing else: no backward() came between."""
        if self.before is None or not left or not self.may_be_again:
            return
        (factors,), off = least_squares.fit(self.wanted[left], self.before[left][None])
        for n, factor, by in zip(left, factors, off, strict=True):
            if by < self.limit[n] and self.equations[n] > 1 and factor > 0:
                self._tell(n, Answer(frozenset(), frozenset(), earlier=round(float(factor), 3)))

    def _with_earlier(self) -> None:
        """With what the step before was made on."""
        if self.before is None:
            return
        for ranks in self.candidates:
            left = self.left
            columns = [self.before[left], self.look.total(ranks)[self.places[left]]]
            found, off = least_squares.fit(self.wanted[left], np.stack(columns))
            for at, n in enumerate(left):
                old, new = found[0][at], found[1][at]
                if off[at] < self.limit[n] and self.equations[n] > len(columns) and old > SMALL * abs(new) and new:
                    its = self._in_it(n, ranks)
                    self._tell(n, Answer(its, frozenset(), earlier=round(float(old), 3)), float(new))

    def _by_backward(self) -> None:
        """A number for each backward() of one set of ranks."""
        for ranks in self.candidates:
            counts = {len(self.look.contributed[rank]) for rank in ranks}
            if len(counts) == 1 and max(counts) > 1:
                self._with_shares([[(rank, m) for rank in sorted(ranks)] for m in range(max(counts))])

    def _by_rank(self) -> None:
        """A number for each rank."""
        if len(self.each) > 1:
            self._with_shares([[(rank, m) for m in range(len(self.look.contributed[rank]))] for rank in self.each])

    def _by_rank_and_backward(self) -> None:
        """A number for each backward() of each rank."""
        parts = [[(rank, m)] for rank in self.each for m in range(len(self.look.contributed[rank]))]
        if len(parts) <= MOST_PARTS:
            self._with_shares(parts)

    def _crossed(self) -> None:
        """One number for all of a set of ranks, of which some have contributed it to another tensor of the shape."""
        alike: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for place, tensor in enumerate(self.look.tensors):
            alike[tensor.shape].append(place)
        for ranks in self.candidates:
            totals = [self.look.total(frozenset({rank})) for rank in sorted(ranks)]
            for n in self.left:
                others = alike[self.look.tensors[self.places[n]].shape]
                number = len(others) ** len(ranks)
                if len(ranks) < 2 or not 1 < number <= MOST_WAYS or not 0 < self.limit[n] < 1:
                    continue
                if self.equations[n] < SPARE + math.log(number) / -math.log(self.limit[n]):
                    continue
                ways = list(product(others, repeat=len(ranks)))
                sums = np.sum([total[[way[k] for way in ways]] for k, total in enumerate(totals)], axis=0)
                (factors,), off = least_squares.fit(np.broadcast_to(self.wanted[n], sums.shape), sums[None])
                best = int(np.argmin(off))
                if off[best] < self.limit[n] and factors[best] > 0:
                    pairs = zip(sorted(ranks), ways[best], strict=True)
                    crossed = tuple((rank, at) for rank, at in pairs if at != self.places[n])
                    self._tell(n, Answer(ranks, frozenset(), crossed=crossed), float(factors[best]))

    def _with_shares(self, columns: Sequence[Sequence[tuple[int, int]]]) -> None:
        """A number for each of these sets of contributions: of a rank, by its backward()."""
        left = self.left
        if not left:
            return
        places = self.places[left]
        sums = [np.sum([self.look.contributed[rank][m][places] for rank, m in parts], axis=0) for parts in columns]
        for at, found, off in least_squares.shares(
            self.wanted[left], np.stack(sums), self.limit[left], self.equations[left]
        ):
            shares = {part: float(one) for parts, one in zip(columns, found, strict=True) for part in parts}
            largest = max(map(abs, shares.values()))
            if largest:
                self._tell(left[at], self._answer(left[at], shares, largest, off), largest, tuple(shares.items()))

    def _answer(self, n: int, shares: Mapping[tuple[int, int], float], largest: float, off: float) -> Answer:
        over = self._in_it(n, frozenset(rank for (rank, _), share in shares.items() if abs(share) > SMALL * largest))
        counts = {len(self.look.contributed[rank]) for rank in over}
        weights: tuple[float, ...] = ()
        lost = frozenset[int]()
        if len(counts) == 1 and (calls := range(counts.pop())) and len(calls) > 1:
            shown = {
                (rank, m): self._is_shown(n, rank, m, shares[rank, m], largest, off) for rank in over for m in calls
            }
            lost = frozenset(m for m in calls if not any(shown[rank, m] for rank in over))
            first = np.abs([shares[min(over), m] for m in calls])
            if (
                all(is_shown for (_, m), is_shown in shown.items() if m not in lost)
                and np.ptp(first) > SMALL * first.max()
            ):
                weights = tuple(round(float(share), 3) for share in first / first.max())
        return Answer(over, self._left_out(n, over, largest, off), lost, weights)

    def _is_shown(self, n: int, rank: int, m: int, share: float, largest: float, off: float) -> bool:
        """Whether what a backward() has contributed, by its share, is more than rounding and what the sum is off by."""
        if abs(share) <= self.limit[n] * largest:
            return False
        contributed = np.linalg.norm(self.look.contributed[rank][m][self.places[n]])
        return bool(abs(share) * contributed > (off + EXACT) * self.size[n])


def _are_alike(one: Numbers, other: Numbers, limit: float) -> bool:
    """Whether one is a multiple of the other."""
    sizes = float(np.linalg.norm(one) * np.linalg.norm(other))
    return not sizes or bool(1 - abs(one @ other) / sizes < limit**2)
