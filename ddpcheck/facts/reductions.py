"""Ledger 2: what each step was made of, by how much each rank's contribution counts in it.

Gradients are sums of what backward() calls have contributed. The smallest sum that fits one within rounding is the
one that was made: of one set of ranks, then with the gradient of the step before, then with a number for each
backward(), then with one for each rank. It is known only if whatever it leaves out would show.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ddpcheck import evidence as ev
from ddpcheck.evidence.sketches import NUMBERS
from ddpcheck.facts import logical_tensors, moments, sketches
from ddpcheck.facts.logical_tensors import Tensor
from ddpcheck.facts.sketches import Numbers
from ddpcheck.judging import happens_before, step_alignment
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.world import Rank, World

ROUNDING = {"float64": 1e-6, "float32": 1e-3, "float16": 1e-2, "bfloat16": 3e-2}
"""By type, how far a sum of contributions may be from the gradient, over its size."""
SHOWS = 10.0
"""A contribution that is left out would show if it is so many times as large as what the sum is off by."""
SMALL = 0.02
"""A coefficient counts as none that is so much smaller than the largest."""
ALIKE = 1e-5
"""How far apart contributions are, over their size, that cannot be told apart."""
APART = 1e-4
"""The smallest singular value of contributions that can be told apart."""
MOST = 4
"""Unknowns that one tensor's sketch can tell."""

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


class Sums(NamedTuple):
    """What one step was made on, by tensor and stepping ranks."""

    number: int
    """The step."""
    answers: list[Answer]
    by: dict[tuple[Ranks, int], tuple[int, float]]
    """By stepping ranks and tensor: the answer, and by what the contributions were multiplied."""
    unknown: dict[tuple[Ranks, int], str]
    """The same, for what is not known: why."""
    ranks: dict[int, moments.Window]
    """By rank, what was looked at."""


class Family(NamedTuple):
    """The optimizers of all ranks that step the same tensors, and what they stepped on."""

    tensors: list[Tensor]
    optimizers: dict[int, int]
    """By rank, its own number."""
    windows: list[Sums]


@once_per_world
@np.errstate(all="ignore")
def of(world: World) -> list[Family]:
    """What is known of all optimizers, in the order in which each rank has built its own."""
    found = []
    for optimizers, tensors in _optimizers(world):
        found.append(Family(tensors, optimizers, list(_windows(world, tensors, optimizers))))
    return found


def _optimizers(world: World) -> Iterator[tuple[dict[int, int], list[Tensor]]]:
    """By rank, the optimizer that steps some tensors, or whose steps end the windows in which it contributes to them.

    Where several optimizers of a rank step one tensor, the first ones of all ranks belong together, and so on.
    """
    owned = {rank.rank: _owned(rank) for rank in world}
    found: dict[tuple[tuple[int, int], ...], list[Tensor]] = defaultdict(list)
    for tensor in logical_tensors.of(world):
        owners = {
            rank: [number for number, its in owned[rank].items() if any(one.piece in its for one in held.pieces)]
            for rank, held in tensor.held.items()
        }
        for turn in range(max(map(len, owners.values()))):
            at_turn = {
                rank: its[turn] if turn < len(its) else next(iter(owned[rank]), None) if not its else None
                for rank, its in owners.items()
            }
            found[tuple((rank, number) for rank, number in at_turn.items() if number is not None)].append(tensor)
    for optimizers, tensors in found.items():
        yield dict(optimizers), tensors


def _owned(rank: Rank) -> dict[int, set[int]]:
    """By optimizer that lasts, the pieces that it steps."""
    lasting = [phases[0][0].optimizer for phases in step_alignment.lasting(rank)]
    windows = moments.windows(rank)
    return {
        number: {piece for window in windows[number] for piece in window.places}
        for number in lasting
        if number in windows
    }


def _windows(world: World, tensors: list[Tensor], optimizers: Mapping[int, int]) -> Iterator[Sums]:
    windows = {
        rank.rank: {one.number: one for one in moments.windows(rank)[optimizers[rank.rank]]}
        for rank in world
        if rank.rank in optimizers
    }
    groups = {rank.rank: _groups(world, rank) for rank in world}
    steppers = _steppers(tensors)
    before: _Look | None = None
    for number in sorted(set().union(*windows.values())):
        each = {rank: its[number] for rank, its in windows.items() if number in its}
        look = _Look(number, each, tensors, steppers, groups)
        yield look.sums(before)
        before = look


def _groups(world: World, rank: Rank) -> list[Ranks]:
    """The ranks over which this one may have added something up."""
    names = dict.fromkeys(one.group for one in rank.of(ev.Call) if "reduce" in one.op or one.op == "ddp-gradients")
    names |= dict.fromkeys(one.group for one in rank.of(ev.Wrapped))
    return list(dict.fromkeys(frozenset(happens_before.members(name, world.world_size)) for name in names))


def _steppers(tensors: Sequence[Tensor]) -> dict[Ranks, list[int]]:
    """The ranks that step a tensor between them, each a slice; one rank where it steps all of it. With the tensors."""
    found: dict[Ranks, list[int]] = defaultdict(list)
    for place, tensor in enumerate(tensors):
        for ranks in _wholes(tensor):
            found[ranks].append(place)
    return found


def _wholes(tensor: Tensor) -> Iterable[Ranks]:
    by_slice: dict[object, list[int]] = defaultdict(list)
    for rank, held in sorted(tensor.stepped.items()):
        by_slice[held.slice].append(rank)
    if by_slice.keys() <= {tensor.slice}:
        return [frozenset({rank}) for rank in tensor.stepped]
    parts = [ranks for ranks in by_slice.values() if _elements(tensor, ranks[0])]
    if sum(_elements(tensor, ranks[0]) for ranks in parts) != tensor.elements or len(set(map(len, parts))) > 1:
        return []
    return [frozenset(ranks) for ranks in zip(*parts, strict=True)]


def _elements(tensor: Tensor, rank: int) -> int:
    return math.prod(tensor.held[rank].piece.sizes)


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
                np.any([_sizes(one) != 0 for one in self.contributed[rank]], axis=0)
                if (self.contributed[rank])
                else np.zeros(self.size, dtype=bool)
            )
            gradients, present = self._laid_out(window.step.pieces, window.step.sketches, places)
            gradients[~present] = np.nan
            self.gradients[rank] = gradients
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
        found = Sums(self.number, [], {}, {}, dict(self.windows))
        numbers: dict[Answer, int] = {}
        for ranks, places in self.steppers.items():
            if not ranks <= self.windows.keys():
                continue
            for place, answer, factor in _Solver(self, before, ranks, np.array(places)).solved():
                if isinstance(answer, str):
                    found.unknown[ranks, place] = answer
                    continue
                if answer not in numbers:
                    numbers[answer] = len(found.answers)
                    found.answers.append(answer)
                found.by[ranks, place] = numbers[answer], factor
        return found


Solved = tuple[int, Answer | str, float]


class _Solver:
    """The sums that the gradients of one stepper are, tensor by tensor."""

    def __init__(self, look: _Look, before: _Look | None, ranks: Ranks, places: NDArray[np.int64]) -> None:
        self.look, self.ranks, self.places = look, ranks, places
        self.wanted = look.stepped_on(ranks)[places]
        self.size = _sizes(self.wanted)
        self.limit = look.tolerance[places]
        candidates = [ranks, *(one for rank in sorted(ranks) for one in look.groups[rank]), look.everybody]
        self.candidates = list(dict.fromkeys(one & look.everybody for one in candidates if one & look.everybody))
        self.before = (
            before.stepped_on(ranks)[places] if before is not None and ranks <= before.windows.keys() else None
        )
        self.each = {rank: look.total(frozenset({rank}))[places] for rank in sorted(look.everybody)}
        self.sizes = {rank: _sizes(one) for rank, one in self.each.items()}
        self.answers: dict[int, tuple[Answer | str, float]] = {}
        """By number among the places."""

    def solved(self) -> Iterator[Solved]:
        contributed = (
            np.any([size > 0 for size in self.sizes.values()], axis=0)
            if self.sizes
            else np.zeros(len(self.places), bool)
        )
        for n in range(len(self.places)):
            if not np.isfinite(self.size[n]):
                self._tell(n, "no gradient at the step, or one that is not finite")
            elif not self.size[n]:
                self._tell(n, "nothing but zeros")
            elif not contributed[n]:
                self._tell(n, "no contribution seen")
            elif not all(np.isfinite(size[n]) for size in self.sizes.values()):
                self._tell(n, "a contribution is not finite")
        self._of_one_set()
        for model in (self._with_earlier, self._by_backward, self._by_rank):
            if self.left:
                model()
        for n in self.left:
            self._tell(n, "no sum of contributions fits")
        for n, place in enumerate(self.places):
            yield (int(place), *self.answers[n])

    @property
    def left(self) -> list[int]:
        return [n for n in range(len(self.places)) if n not in self.answers]

    def _tell(self, n: int, answer: Answer | str, factor: float = 0.0) -> None:
        self.answers.setdefault(n, (answer, factor))

    def _in_it(self, n: int, ranks: Ranks) -> Ranks:
        """Those that have contributed to it anything but zeros."""
        return frozenset(rank for rank in ranks if self.sizes[rank][n] > 0)

    def _shows(self, n: int, rank: int, factor: float, off: float) -> bool:
        return bool(abs(factor) * self.sizes[rank][n] > SHOWS * max(off, 1e-12) * self.size[n])

    def _left_out(self, n: int, ranks: Ranks, factor: float, off: float) -> Ranks:
        return frozenset(
            rank
            for rank in self.look.everybody - ranks
            if self.sizes[rank][n] > 0 and self._shows(n, rank, factor, off)
        )

    def _of_one_set(self) -> None:
        """One number for all contributions of one set of ranks."""
        fits: dict[int, dict[Ranks, tuple[float, float]]] = defaultdict(dict)
        usual: Counter[tuple[Ranks, float]] = Counter()
        for ranks in self.candidates:
            total = self.look.total(ranks)[self.places]
            factors, off = _fit(self.wanted, total[None])
            for n in np.flatnonzero((off < self.limit) & (factors[0] != 0)):
                fits[int(n)].setdefault(self._in_it(int(n), ranks), (float(factors[0][n]), float(off[n])))
        for n, by_ranks in fits.items():
            if len(by_ranks) == 1:
                ((ranks, (factor, off)),) = by_ranks.items()
                self._tell(n, Answer(ranks, self._left_out(n, ranks, factor, off)), factor)
                usual[ranks, factor] += 1
        for n, by_ranks in fits.items():
            # Few elements, or equal contributions, fit in several ways: it is treated as most are, if that fits as well.
            for (ranks, factor), _ in usual.most_common(1) if n not in self.answers else ():
                own, off = by_ranks.get(ranks, (np.nan, 0.0))
                if abs(own - factor) < self.limit[n] * abs(factor):
                    self._tell(n, Answer(ranks, self._left_out(n, ranks, factor, off)), factor)
            self._tell(n, "ranks have contributed alike")

    def _with_earlier(self) -> None:
        """With what the step before was made on."""
        if self.before is None:
            return
        for ranks in [frozenset[int](), *self.candidates]:
            left = self.left
            columns = [self.before[left]]
            if ranks:
                columns.append(self.look.total(ranks)[self.places[left]])
            found, off = _fit(self.wanted[left], np.stack(columns))
            for at, n in enumerate(left):
                old, new = found[0][at], found[1][at] if ranks else 0.0
                if off[at] < self.limit[n] and abs(old) > SMALL * max(abs(old), abs(new)) and (not ranks or new):
                    its = self._in_it(n, ranks)
                    self._tell(n, Answer(its, frozenset(), earlier=round(float(old), 3)), float(new))

    def _by_backward(self) -> None:
        """A number for each backward() of one set of ranks."""
        for ranks in self.candidates:
            left = self.left
            counts = {len(self.look.contributed[rank]) for rank in ranks}
            if len(counts) != 1 or not max(counts) > 1 or not left:
                continue
            places = self.places[left]
            columns = [
                np.sum([self.look.contributed[rank][m][places] for rank in ranks], axis=0) for m in range(max(counts))
            ]
            for n, found, off in _joint(self.wanted[left], np.stack(columns), self.limit[left]):
                largest = float(np.abs(found).max())
                if not largest:
                    continue
                lost = frozenset(int(m) for m in np.flatnonzero(np.abs(found) < SMALL * largest))
                weights = tuple(round(float(one / largest), 3) for one in found)
                its = self._in_it(left[n], ranks)
                without = self._left_out(left[n], ranks, largest, off)
                self._tell(left[n], Answer(its, without, lost, weights), largest)

    def _by_rank(self) -> None:
        """A number for each rank."""
        left = self.left
        ranks = [rank for rank in self.each if any(self.sizes[rank][n] > 0 for n in left)]
        if len(ranks) < 2:
            return
        columns = np.stack([self.each[rank][left] for rank in ranks])
        for n, found, off in _joint(self.wanted[left], columns, self.limit[left]):
            largest = float(np.abs(found).max())
            over, without = set(), set()
            for rank, factor in zip(ranks, found, strict=True):
                if abs(factor) > SMALL * largest:
                    over.add(rank)
                elif self._shows(left[n], rank, largest, off):
                    without.add(rank)
            if over:
                self._tell(
                    left[n],
                    Answer(self._in_it(left[n], frozenset(over)), self._in_it(left[n], frozenset(without))),
                    largest,
                )


def _sizes(rows: Numbers) -> Numbers:
    found: Numbers = np.sqrt(np.einsum("tk,tk->t", rows, rows))
    return found


def _fit(wanted: Numbers, columns: Numbers) -> tuple[Numbers, Numbers]:
    """By tensor, the numbers by which the columns make it, and how far they are off; columns are alike: none fits."""
    sizes = np.sqrt(np.einsum("ctk,ctk->ct", columns, columns))
    unit = columns / np.where(sizes > 0, sizes, 1)[..., None]
    gram = np.einsum("atk,btk->tab", unit, unit)
    right = np.einsum("atk,tk->ta", unit, wanted)
    good = np.isfinite(gram).all(axis=(1, 2)) & np.isfinite(right).all(axis=1)
    gram[~good], right[~good] = np.eye(len(columns)), 0
    smallest = np.linalg.eigvalsh(gram)[:, 0]
    found = np.einsum("tab,tb->ta", np.linalg.pinv(gram, hermitian=True), right)
    off = _sizes(np.einsum("ta,atk->tk", found, unit) - wanted) / _sizes(wanted)
    off[(smallest < APART**2) | ~good] = np.inf
    return (found / np.where(sizes > 0, sizes, 1).T).T, off


def _joint(wanted: Numbers, columns: Numbers, limit: Numbers) -> Iterator[tuple[int, Numbers, float]]:
    """The same numbers for many tensors, which are treated alike; those that do not fit are left out, and tried alone."""
    if len(columns) <= MOST:
        factors, off = _fit(wanted, columns)
        for n in np.flatnonzero(off < limit):
            yield int(n), factors[:, n], float(off[n])
        return
    left = np.arange(len(wanted))
    for _ in range(MOST):
        apart: list[int] = []
        while len(left) * NUMBERS >= len(columns) + MOST:
            y = (wanted[left] / _sizes(wanted[left])[:, None]).reshape(-1)
            x = (columns[:, left] / _sizes(wanted[left])[:, None]).reshape(len(columns), -1)
            size = np.linalg.norm(x, axis=1)
            if not (np.isfinite(x).all() and (size > 0).all()):
                return
            found, _, _, singular = np.linalg.lstsq((x / size[:, None]).T, y, rcond=1e-9)
            if singular[-1] < APART:
                return
            factors = found / size
            off = _sizes((factors @ x - y).reshape(len(left), NUMBERS))
            fits = off < limit[left]
            if fits.all():
                yield from ((int(n), factors, float(of)) for n, of in zip(left, off, strict=True))
                break
            worst = np.argsort(off)[max(1, len(left) // 2) :]
            apart += [int(n) for n in left[worst]]
            left = np.delete(left, worst)
        else:
            return
        left = np.array(apart, dtype=int)
        if not len(left):
            return
