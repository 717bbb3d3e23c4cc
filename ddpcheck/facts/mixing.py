"""Ledger 3: what copies of a tensor become between two steps, of what the ranks had: averages, gossip, swaps.

What a copy is when a window begins is a sum of what the step before has left on whichever ranks: of itself alone where
nothing was written, of one set of ranks, with a number for each, or with what it was when ranks last met. The smallest
sum that fits within rounding is the one that was made. Of a window that was looked at by digests alone, or some steps
after the one before, it is known who holds the same now and has not before, and not by which numbers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from ddpcheck import evidence as ev
from ddpcheck.evidence.sketches import NUMBERS
from ddpcheck.facts import deals, exchanges, group_sizes, least_squares, logical_tensors, moments, reductions
from ddpcheck.facts.logical_tensors import Ranks
from ddpcheck.facts.reductions import Family
from ddpcheck.facts.sketches import Numbers
from ddpcheck.judging import step_alignment
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.replicated_parameters import grounds
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite

ROUNDING = {"float64": 1e-6, "float32": 3e-6, "float16": 3e-3, "bfloat16": 2e-2}
"""By type, how far a sum of copies may be from what was written, over its size."""
DIFFER = 30.0
"""Copies are told apart by numbers if they differ by so many times their rounding."""
SMALL = 0.01
"""A share counts as none that is so small."""

How = Literal["kept", "mixed", "evened", "written", "passed"]
"""It is what the step before has left; a sum of what ranks had, by known numbers; the same as on ranks from which it
had differed, by numbers that are not known; written to, in a way that is not known; still another one than on all
other ranks, after steps without a look."""


class Became(NamedTuple):
    """What one copy of a tensor is when a window begins."""

    how: How
    over: Ranks
    """The ranks whose values are in it, as far as is known."""
    shares: tuple[tuple[int, float], ...] = ()
    """By what each copy is in it, by the first of the ranks that have it."""
    earlier: float = 0.0
    """By what it is in it that it was itself when ranks last met, or when training began."""

    @property
    def total(self) -> float:
        """All shares together: one for whatever is a mean of models, or moves from one to another."""
        return sum(share for _, share in self.shares) + self.earlier


class Between(NamedTuple):
    """What the copies of a family's tensors became between two steps."""

    number: int
    """The later step."""
    is_next: bool
    """The earlier one is the step right before, of this optimizer or the one that ranks have had before."""
    by: Mapping[int, Mapping[Ranks, Became]]
    """By tensor and stepping ranks: of tensors whose copies differed when the earlier step had ended."""
    even: frozenset[int]
    """Those of them whose copies are all the same now."""
    carried: frozenset[int]
    """Tensors that went into a collective which makes the same of them on all ranks, whatever takes that."""
    lines: tuple[CallSite | None, ...]
    """Where the program exchanged tensors of some size between these steps."""
    is_evaluated: bool
    """Some rank has called a model without gradients between these steps: a mean may be for that."""
    based: frozenset[int]
    """Tensors whose copies were written to, and differ by what they differed at some moment before the step before."""

    @property
    def meeting(self) -> frozenset[int]:
        """The tensors of which some copy took over something of another one."""
        return frozenset(
            place
            for place, its in self.by.items()
            if any(one.how == "evened" or (one.how == "mixed" and one.over - ranks) for ranks, one in its.items())
        )

    @property
    def is_unknown(self) -> bool:
        """Whether some copy was written to, and nobody knows how."""
        return any(one.how == "written" for its in self.by.values() for one in its.values())


class Mixing(NamedTuple):
    """What is known of a family between its steps."""

    family: Family
    between: list[Between]
    """In the order of steps, of those before which all ranks have looked."""
    moved: Mapping[int, frozenset[int]]
    """By rank that was looked at, the tensors that were written to between any two of its steps, by whatever means."""
    is_all_seen: bool
    """What was exchanged in each of the rounds of the whole run was exchanged in one that was looked at, too."""
    is_dealt: bool
    """One dataset is dealt out to all ranks that train these: they train one model, unless something says otherwise."""
    has_other_models: bool
    """Some rank has several models with tensors of these names: a mean may be for another one."""
    meets: bool = False
    """Tensors of these meet, or may meet, under this optimizer or another one."""

    @property
    def optimizer(self) -> int:
        """Its number on the first of the ranks."""
        return self.family.optimizers[min(self.family.optimizers)]

    def is_written(self, place: int) -> bool:
        """Whether copies of a tensor were written to between steps, or may have been in what nobody looked at."""
        stepping = self.family.optimizers.keys() & self.family.tensors[place].stepped.keys()
        return any(rank not in self.moved or place in self.moved[rank] for rank in stepping)

    def may_meet(self, place: int) -> bool:
        """Whether something may bring copies of a tensor together between steps; where others meet, so should it."""
        return self.is_written(place) or self.meets

    def are_copies(self, place: int) -> bool:
        """Whether all that step a tensor have begun with the same, or are declared to hold the same."""
        stepping = frozenset(self.family.tensors[place].stepped)
        holders = [self.family.holders[place][rank] for rank in stepping]
        return all(stepping <= one.ranks and one.kind != "ignored" for one in holders)

    def is_constant(self, place: int) -> bool:
        """Whether they have begun with one number in all elements, as others may have by chance."""
        return any(one.kind == "constant" for one in self.family.holders[place].values())


@once_per_world
@np.errstate(all="ignore")
def of(world: World) -> list[Mixing]:
    """What is known of each family of optimizers."""
    groups = {ranks for its in group_sizes.groups(world).values() for ranks in its}
    families = reductions.of(world)
    each = [_mixing(world, one, families[:n], sorted(groups, key=sorted)) for n, one in enumerate(families)]
    meeting = [one for one in each if any(between.meeting or between.is_unknown for between in one.between)]
    return [one._replace(meets=any(_keys(one.family) & _keys(other.family) for other in meeting)) for one in each]


def _keys(family: Family) -> set[tuple[str, str, object]]:
    return {(one.model, one.path, one.slice) for one in family.tensors}


@once_per_world
def is_trained_apart(world: World) -> bool:
    """Whether ranks step copies each for itself, and bring them together now and then: they differ on purpose."""
    aligned = step_alignment.optimizers(world)
    return (
        any(described.apart for one in aligned for described in one.described)
        or any(grounds(world, one).moved for one in aligned)
        or any(one.even & one.meeting for mixing in of(world) for one in mixing.between)
    )


def brought_together(world: World, rank: int, optimizer: int) -> set[int]:
    """The places of parameters of a rank's optimizer whose copies are the same after every meeting of any of them."""
    found: set[int] = set()
    for mixing in _of_optimizer(world, rank, optimizer):
        if rounds := [one.even for one in mixing.between if one.meeting & one.even]:
            found |= _places(mixing, rank, frozenset.intersection(*rounds))
    return found


def mixed(world: World, rank: int, optimizer: int) -> set[int]:
    """The places of those of which copies take over something of others now and then."""
    found: set[int] = set()
    for mixing in _of_optimizer(world, rank, optimizer):
        found |= _places(mixing, rank, frozenset().union(*(one.meeting for one in mixing.between)))
    return found


def never_together(world: World, rank: int, optimizer: int) -> set[int]:
    """The places of those that go into collectives which make the same of them, and that differ after each of these."""
    found: set[int] = set()
    for mixing in _of_optimizer(world, rank, optimizer):
        made = {place for one in mixing.between for place in one.carried & one.by.keys()}
        found |= _places(mixing, rank, made.difference(*(one.even for one in mixing.between)))
    return found


def _of_optimizer(world: World, rank: int, optimizer: int) -> list[Mixing]:
    return [one for one in of(world) if one.family.optimizers.get(rank) == optimizer]


def _places(mixing: Mixing, rank: int, tensors: Collection[int]) -> set[int]:
    return {place for place, tensor in _own(mixing.family, rank).items() if tensor in tensors}


def _own(family: Family, rank: int) -> dict[int, int]:
    """By place among the parameters of a rank's optimizer, the tensor."""
    by_piece = {
        piece.piece: place
        for place, tensor in enumerate(family.tensors)
        if rank in tensor.held
        for piece in tensor.held[rank].stepped
    }
    windows = [sums.ranks[rank] for sums in family.windows if rank in sums.ranks]
    return {
        place: by_piece[piece]
        for window in windows
        for piece, place in window.places.items()
        if piece in by_piece and place >= 0 and window.optimizer == family.optimizers[rank]
    }


def _mixing(world: World, family: Family, earlier: Sequence[Family], groups: Sequence[Ranks]) -> Mixing:
    own = {rank: _own(family, rank) for rank in family.optimizers}
    ranks = {rank.rank: rank for rank in world if rank.rank in own}
    of = _common_looks(family, earlier, list(ranks.values()))
    looks = {number: _Looks(ranks[number], family, own[number], of) for number in ranks}
    solver = _Solver(family, groups, looks, bool(earlier))
    numbers = set.intersection(*(one.numbers for one in looks.values())) if looks else set[int]()
    between = [one for number in sorted(numbers) if (one := solver.between(number)) is not None]
    return Mixing(
        family,
        between,
        {number: frozenset().union(*its) for number in ranks if (its := _moved(ranks[number], family, own[number]))},
        all(one.is_all_seen(between) for one in looks.values()),
        _is_dealt(world, family),
        any(_several_models(ranks[number], family) for number in ranks),
    )


class CommonLooks(NamedTuple):
    """What all ranks of a family have looked at."""

    windows: set[int]
    ended: set[int]
    """The steps after which all elements were looked at."""
    before: Mapping[int, moments.Window]
    """By rank, the last window of the optimizer that it had before for these tensors."""
    is_last: bool
    """These are the last ones that those have made, and not the last that all ranks have looked at."""


def _common_looks(family: Family, earlier: Sequence[Family], ranks: Sequence[Rank]) -> CommonLooks:
    numbers = family.optimizers
    windows = _common_windows(family)
    ended = set.intersection(*({one.number for one in _whole(rank, numbers[rank.rank])} for rank in ranks))
    for other in reversed(earlier):
        if other.optimizers.keys() == numbers.keys() and _keys(family) & _keys(other):
            made = {rank.rank: _last_step(rank, other.optimizers[rank.rank]) for rank in ranks}
            each = {sums.number: sums.ranks for sums in other.windows}
            last = {number: of[number] for number, step in made.items() if (of := each.get(step, {})) and number in of}
            if len(last) == len(made):
                return CommonLooks(windows, ended, last, True)
            common = _common_windows(other)
            return CommonLooks(windows, ended, each[max(common)] if common else {}, False)
    return CommonLooks(windows, ended, {}, False)


def _common_windows(family: Family) -> set[int]:
    return {one.number for one in family.windows if one.ranks.keys() == family.optimizers.keys()}


def _last_step(rank: Rank, optimizer: int) -> int:
    return max((one.number for one in rank.of(ev.Step) if one.optimizer == optimizer), default=-1)


def _whole(rank: Rank, optimizer: int) -> list[ev.Step]:
    """The steps of which all elements were looked at."""
    return [one for one in rank.of(ev.Step) if one.optimizer == optimizer and one.whole and one.parameters]


def _moved(rank: Rank, family: Family, own: Mapping[int, int]) -> list[frozenset[int]]:
    """What was written to, each time that it was looked at."""
    looked = [one for one in rank.of(ev.MovedBetween) if one.optimizer == family.optimizers[rank.rank]]
    return [frozenset(own[place] for place in one.moved if place in own) for one in looked]


def _is_dealt(world: World, family: Family) -> bool:
    """Whether most of its windows lie within loops in which a dataset is dealt out."""
    for number in family.optimizers:
        spans = [(one.begun.n, one.end) for line in deals.dealt(world) for one in line.passes.get(number, ())]
        steps = [one.ranks[number].step.n for one in family.windows if number in one.ranks]
        if sum(any(begun < n < end for begun, end in spans) for n in steps) * 2 <= len(steps):
            return False
    return True


def _several_models(rank: Rank, family: Family) -> bool:
    names = {tensor.path for tensor in family.tensors}
    return sum(names <= {held.name for held in one.held} for one in rank.of(ev.Model)) > 1


class _Copy(NamedTuple):
    """What one rank, or several with a slice each, have of a tensor: after one step, and when the next one begins."""

    end: tuple[bytes, ...]
    start: tuple[bytes, ...]
    is_next: bool
    numbers: tuple[Numbers, Numbers] | None
    """Sketches of both, where they are known."""


class _Looks:
    """What one rank has looked at before and after steps that all ranks have looked at."""

    def __init__(self, rank: Rank, family: Family, own: Mapping[int, int], of: CommonLooks) -> None:
        self.number = family.optimizers[rank.rank]
        self.rank, self.tensors, self.own = rank, family.tensors, own
        self.windows = {one.number: one.ranks[rank.rank] for one in family.windows if one.number in of.windows}
        self.steps = [(one.n, one.number) for one in rank.of(ev.Step) if one.optimizer == self.number]
        self.before = dict(self._before(of))
        self.entered = {one.number: one for one in rank.of(ev.AfterExchange) if one.optimizer == self.number}
        self.ended = {one.number: one for one in _whole(rank, self.number) if one.number in of.ended}
        self.exchanged = [one for one in rank.of(ev.Exchanged) if one.optimizer == self.number]
        self.numbers = self.before.keys() | {n for n in self.entered if self._last(n) is not None}

    def _before(self, of: CommonLooks) -> Iterator[tuple[int, tuple[moments.Window, bool]]]:
        """By step, the window before it that was looked at, and whether that was right before.

        That of its own optimizer, or of the one that ranks have had before for these tensors.
        """
        others = [one for number, its in moments.windows(self.rank).items() if number != self.number for one in its]
        before, is_last = of.before.get(self.rank.rank), of.is_last
        for number in sorted(self.windows):
            window = self.windows[number]
            if before is not None:
                between = [one for one in others if before.step.n < one.step.n < window.step.n]
                is_other = any(one.places.keys() & window.places.keys() for one in between)
                is_next = number == before.number + 1 if before.optimizer == self.number else is_last and not number
                yield number, (before, is_next and not is_other)
            before = window

    def _last(self, number: int) -> int | None:
        """The last step before this one of which digests are known."""
        return max((one for one in self.ended if one < number), default=None)

    def value_after(self, place: int, number: int) -> Numbers:
        """The sketch of what a step has left of a tensor, or of what it was when the first one began, as step -1."""
        window = self.windows.get(number if number >= 0 else min(self.windows))
        values = {} if window is None else window.after if number >= 0 else window.before
        each = [
            values[one.piece].sketch for one in self.tensors[place].held[self.rank.rank].stepped if one.piece in values
        ]
        return np.sum(each, axis=0) if each else np.full(NUMBERS, np.nan)

    def copy(self, place: int, number: int) -> _Copy | None:
        """What it has of a tensor; None where that was not looked at."""
        looked, later = self._by_moments(place, number), self._by_digests(place, number)
        if looked is None or (not looked.is_next and later is not None and later.is_next):
            return later
        is_kept = looked.end == looked.start
        return later if is_kept and later is not None and later.end != later.start else looked

    def _by_moments(self, place: int, number: int) -> _Copy | None:
        if number not in self.before:
            return None
        before, is_next = self.before[number]
        end, start = before.after, self.windows[number].before
        pieces = [one.piece for one in self.tensors[place].held[self.rank.rank].stepped]
        pieces = [one for one in pieces if one in end and one in start]
        each = [(end[one], start[one]) for one in pieces]
        if not each or any(ev.UNSEEN in (one.digest, other.digest) for one, other in each):
            return None
        return _Copy(
            tuple(one.digest for one, _ in each),
            tuple(one.digest for _, one in each),
            is_next,
            (np.sum([one.sketch for one, _ in each], axis=0), np.sum([one.sketch for _, one in each], axis=0)),
        )

    def _by_digests(self, place: int, number: int) -> _Copy | None:
        last = self._last(number)
        if number not in self.entered or last is None:
            return None
        own = [at for at, tensor in self.own.items() if tensor == place]
        end = tuple(step_alignment.at(self.ended[last].parameters, at) for at in own)
        start = tuple(step_alignment.at(self.entered[number].values, at) for at in own)
        return (
            None
            if {b"", ev.UNSEEN, ev.ABSENT}.intersection(end + start)
            else _Copy(end, start, last == number - 1, None)
        )

    def _round(self, record: ev.Record) -> int:
        """The step before which something was, after the step before that; 0 for what was before all."""
        place = bisect_left(self.steps, (record.n, 0))
        return self.steps[place - 1][1] + 1 if place else 0

    @cached_property
    def rounds(self) -> dict[int, list[ev.Call]]:
        """By step, the program's exchanges of tensors of some size before it."""
        found: dict[int, list[ev.Call]] = {}
        for call in self.rank.of(ev.Call):
            if exchanges.is_of_tensors(call):
                found.setdefault(self._round(call), []).append(call)
        return found

    @cached_property
    def evaluations(self) -> set[int]:
        """The steps before which it has called a model without gradients."""
        return {self._round(one) for one in self.rank.of(ev.Evaluated)}

    def lines(self, number: int) -> tuple[CallSite | None, ...]:
        """Where it exchanged tensors of some size before a step."""
        entered, calls = self.entered.get(number), self.rounds.get(number, [])
        sites = entered.sites if entered is not None else [one.site for one in calls]
        return tuple(map(self.rank.where, dict.fromkeys(sites)))

    def is_all_seen(self, between: Sequence[Between]) -> bool:
        """Whether each round after the first step has the exchanges of one of these."""
        each = {number: {(one.op, one.group, one.detail) for one in calls} for number, calls in self.rounds.items()}
        looked = [each.get(one.number, set()) for one in between]
        return all(calls in looked for number, calls in each.items() if number)

    def carried(self, number: int) -> frozenset[int]:
        """What went into a collective before a step which makes the same of it on all of its ranks."""
        last = next((one for one in reversed(self.exchanged) if one.number <= number), None)
        each = last.carried if last is not None and not last.lost else ()
        return frozenset(
            self.own[one.place]
            for one in each
            if one.of == "parameter" and one.alike and not one.inside and one.place in self.own
        )


class _Solver:
    """The sums that copies are."""

    def __init__(self, family: Family, groups: Sequence[Ranks], looks: Mapping[int, _Looks], is_later: bool) -> None:
        self.family, self.groups, self.looks = family, groups, looks
        self.wholes = {place: tuple(logical_tensors.wholes(tensor)) for place, tensor in enumerate(family.tensors)}
        kinds = [{piece.dtype for held in one.held.values() for piece in held.pieces} for one in family.tensors]
        self.limit = np.array([max(ROUNDING.get(kind, 0.0) for kind in its) for its in kinds])
        self.equations = np.array([min(NUMBERS, one.elements) for one in family.tensors])
        self.at_meeting: dict[tuple[Ranks, int], Numbers] = {}
        """By stepping ranks and tensor, what the copy was when ranks had last met."""
        self.even = {*self.wholes} if is_later else set[int]()
        """Tensors whose copies have been the same after a meeting, or may have been under an optimizer before."""

    def between(self, number: int) -> Between | None:
        """What became of all before one step; None where no copies differed."""
        known = {place: self._copies(place, number) for place in self.wholes}
        differing = {n: its for n, its in known.items() if len({one.end for one in its.values()}) > 1}
        if not differing:
            return None
        by: dict[int, dict[Ranks, Became]] = {place: {} for place in differing}
        for wholes in dict.fromkeys(tuple(its) for its in differing.values()):
            places = [place for place, its in differing.items() if tuple(its) == wholes]
            solved: dict[tuple[object, ...], dict[int, Became]] = {}
            for ranks in wholes:
                for place, became in self._became(ranks, places, differing, solved, number).items():
                    by[place][ranks] = became
        found = Between(
            number,
            all(one.is_next for its in differing.values() for one in its.values()),
            by,
            frozenset(n for n, copies in differing.items() if len({one.start for one in copies.values()}) == 1),
            frozenset.intersection(*(one.carried(number) for one in self.looks.values())),
            next((lines for one in self.looks.values() if (lines := one.lines(number))), ()),
            any(number in one.evaluations for one in self.looks.values()),
            frozenset(n for n, its in differing.items() if n in self.even and self._is_based(n, its, number)),
        )
        self.even |= found.even
        for place in found.meeting:
            for ranks, copy in differing[place].items():
                if copy.numbers is not None:
                    self.at_meeting[ranks, place] = copy.numbers[1]
        return found

    def _copies(self, place: int, number: int) -> dict[Ranks, _Copy]:
        """Those of a tensor; none unless all of them were looked at."""
        found = {}
        for ranks in self.wholes[place]:
            parts = [self.looks[rank].copy(place, number) if rank in self.looks else None for rank in sorted(ranks)]
            known = [one for one in parts if one is not None]
            if len(known) < len(parts):
                return {}
            each = [one.numbers for one in known if one.numbers is not None]
            numbers = (np.sum([u for u, _ in each], axis=0), np.sum([w for _, w in each], axis=0))
            found[ranks] = _Copy(
                tuple(digest for one in known for digest in one.end),
                tuple(digest for one in known for digest in one.start),
                all(one.is_next for one in known),
                numbers if len(each) == len(known) else None,
            )
        return found

    def _became(
        self,
        ranks: Ranks,
        places: Sequence[int],
        differing: Mapping[int, Mapping[Ranks, _Copy]],
        solved: dict[tuple[object, ...], dict[int, Became]],
        number: int,
    ) -> dict[int, Became]:
        """What one copy of these tensors is; there are the same copies of all of them.

        ``solved``: by what they hold then, the same of other ranks.
        """
        found = {n: Became("kept", ranks) for n in places if (it := differing[n][ranks]).end == it.start}
        passed = {n for n in places if not all(one.is_next for one in differing[n].values())}
        known = [
            n
            for n in places
            if n not in found and n not in passed and all(one.numbers for one in differing[n].values())
        ]
        if known:
            holds = tuple((n, differing[n][ranks].start) for n in known)
            if holds not in solved or any(one.earlier for one in solved[holds].values()):
                solved[holds] = self._sums(ranks, known, differing, number)
            found |= solved[holds]
        for place in places:
            copies = differing[place]
            same = [one for one, copy in copies.items() if copy.start == copies[ranks].start]
            if self.family.tensors[place].elements == 1:  # one number may be bounded, or set, on each rank alike
                same = []
            how: How = "evened" if len(same) > 1 else "passed" if place in passed else "written"
            found.setdefault(place, Became(how, frozenset().union(*same) if len(same) > 1 else frozenset()))
        return found

    def _is_based(self, place: int, copies: Mapping[Ranks, _Copy], number: int) -> bool:
        """Whether copies differ by what they differed at some earlier moment, whatever they have in common since."""
        if not all(one.numbers and one.end != one.start for one in copies.values()):
            return False
        start = np.array([_numbers(one)[1] for one in copies.values()])
        now, size, limit = start - start[0], float(np.linalg.norm(start[0])), float(self.limit[place])
        differ = float(np.linalg.norm(now))
        if not differ > DIFFER * limit * size:
            return False
        for moment in range(-1, number - 1):
            had = np.array([self._whole(ranks, place, moment) for ranks in copies])
            factors, off = least_squares.fit(now.reshape(1, -1), (had - had[0]).reshape(1, 1, -1))
            if off[0] * differ < DIFFER * limit * size and abs(factors[0][0]) > SMALL:
                return True
        return False

    def _sums(
        self, ranks: Ranks, places: Sequence[int], differing: Mapping[int, Mapping[Ranks, _Copy]], number: int
    ) -> dict[int, Became]:
        wholes = list(differing[places[0]])
        had = np.array([[_numbers(differing[n][one])[0] for n in places] for one in wholes])
        wanted = np.array([_numbers(differing[n][ranks])[1] for n in places])
        nothing = np.full(NUMBERS, np.nan)  # what it is when this optimizer begins is what is asked for
        earlier = np.array([self._earlier(ranks, n) if number else nothing for n in places])
        columns = np.nan_to_num(np.concatenate([had, earlier[None]]))
        limit, equations = self.limit[places], self.equations[places]
        apart = np.max([least_squares.sizes(one - had[0]) for one in had], axis=0)
        pending = apart > DIFFER * limit * least_squares.sizes(wanted)
        found: dict[int, Numbers] = {}
        """By number among the places, by what each copy, and at last what it was itself earlier, is in it."""
        sets = self._sets(wholes)
        for members, totals in zip(sets, np.tensordot(sets, columns, axes=(1, 0)), strict=True):
            factors, off = least_squares.fit(wanted, totals[None])
            for n in np.flatnonzero(pending & (equations > 2) & (off < limit)):
                found[int(n)] = float(factors[0][n]) * members
                pending[n] = False
        for unknowns in self._models(sets, len(wholes)):
            is_many = len(unknowns) > least_squares.MOST  # several tensors have to say it together
            these = np.flatnonzero(pending & (is_many | (equations > len(unknowns) + 1)))
            if not len(these):
                continue
            each = np.tensordot(unknowns, columns[:, these], axes=(1, 0))
            for at, factors, _ in least_squares.shares(wanted[these], each, limit[these], equations[these]):
                found[int(these[at])] = factors @ unknowns
                pending[these[at]] = False
        usual = Counter(tuple(np.round(one, 3)) for one in found.values()).most_common(1)
        if usual:  # what few numbers cannot tell is treated as most are, if that fits
            sums = next(one for one in found.values() if tuple(np.round(one, 3)) == usual[0][0])
            off = least_squares.sizes(np.tensordot(sums, columns, axes=(0, 0)) - wanted)
            for n in np.flatnonzero(off < limit * least_squares.sizes(wanted)):
                found.setdefault(int(n), sums)
        return {places[n]: _of_shares(wholes, sums) for n, sums in found.items()}

    def _earlier(self, ranks: Ranks, place: int) -> Numbers:
        """What a copy was when ranks had last met, or when training began."""
        if (ranks, place) not in self.at_meeting:
            self.at_meeting[ranks, place] = self._whole(ranks, place, -1)
        return self.at_meeting[ranks, place]

    def _whole(self, ranks: Ranks, place: int, number: int) -> Numbers:
        """The sketch of what a step has left of a copy, or of what it was at first, as step -1."""
        found: Numbers = np.sum([self.looks[rank].value_after(place, number) for rank in ranks], axis=0)
        return found

    def _sets(self, wholes: Sequence[Ranks]) -> Numbers:
        """A row for each set of copies whose sum one may be: all of them, those of each group, and each of them."""
        size = len(wholes)
        sets = [range(size), *([n for n in range(size) if wholes[n] & group] for group in self.groups)]
        rows = np.zeros((len(sets) + size, size + 1))
        for row, its in zip(rows, [*sets, *([n] for n in range(size))], strict=True):
            row[list(its)] = 1.0
        return np.unique(rows[rows.any(axis=1)], axis=0)[::-1]

    def _models(self, sets: Numbers, size: int) -> Iterator[Numbers]:
        """The unknowns of each model of several, the smallest first: by what each copy, and what was earlier, is in."""
        each = np.eye(size, size + 1)
        each[1:, 0] = -1.0  # differences, as copies are nearly alike
        before = np.zeros((1, size + 1))
        before[0, -1] = 1.0
        yield each
        for one in sets[sets.sum(axis=1) > 1]:
            yield np.stack([one, before[0] - one / one.sum()])
        before[0, 0] = -1.0
        yield np.concatenate([each, before])


def _numbers(copy: _Copy) -> tuple[Numbers, Numbers]:
    return copy.numbers or (np.full(NUMBERS, np.nan), np.full(NUMBERS, np.nan))


def _of_shares(wholes: Sequence[Ranks], sums: Numbers) -> Became:
    largest = float(np.abs(sums).max())
    shares = [(ranks, float(one)) for ranks, one in zip(wholes, sums[:-1], strict=True) if abs(one) > SMALL * largest]
    over = frozenset[int]().union(*(ranks for ranks, _ in shares))
    return Became("mixed", over, tuple((min(ranks), share) for ranks, share in shares), float(sums[-1]))
