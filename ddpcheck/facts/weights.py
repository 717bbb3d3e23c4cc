"""Ledger 4: how much each element of a loss counts in a step, by what its backward() gives it and what the step takes.

An element's weight is the gradient that it gets in its own backward(), times the share that this backward() has in
what is stepped on. A mean over all elements of a step gives each the same, and all together 1.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.facts import exchanges, moments, reductions, sketches
from ddpcheck.facts.reductions import Family, Made, Ranks, Sums
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite

NEAR = 0.01
"""How far apart factors may be, over the larger, that are one."""
SAME = 1e-5
"""The same of the values of a loss over one batch."""


class Batch(NamedTuple):
    """What one backward() gives to one part of the loss."""

    rank: int
    turn: int
    """Among the backward() calls of its line before the step, from 0."""
    term: ev.Term
    weight: float
    """How much each element counts in the step."""
    sharers: int
    """The ranks that go back from the same batch, this one included."""

    @property
    def total(self) -> float:
        """What all of its elements count together; of a batch that several ranks have, this rank's part of that."""
        return self.term.elements * self.weight / self.sharers


class Part(NamedTuple):
    """One part of the loss at one line."""

    line: CallSite | None
    place: int
    """Among the parts of that loss."""
    alone: bool
    """The loss has no other."""
    batches: tuple[Batch, ...]
    accumulates: bool
    """Every backward() of a rank is of a batch of its own: a loader has handed one out, or no_sync() says so."""

    @property
    def counted(self) -> list[Batch]:
        """Those in which something counts: a batch without a valid target, say, has no weight to compare."""
        return [one for one in self.batches if one.term.elements and one.weight]


class Weighed(NamedTuple):
    """What counts in one step of some tensors."""

    number: int
    """The step."""
    ranks: Ranks
    """Those that step them."""
    over: Ranks
    """Those whose contributions are added up for them."""
    factor: float
    """By what these are multiplied."""
    tensors: list[int]
    """By number in the family."""
    parts: list[Part]
    why: str
    """Why other parts are not known, as a clause."""
    are_batches_known: bool
    """Which ranks share a batch is known."""
    is_of_all: bool
    """No rank has copies of these tensors whose contributions are not added up for them."""


class Weights(NamedTuple):
    """What counts in the steps of a family of optimizers."""

    family: Family
    windows: list[list[Weighed]]
    """Step by step: what is treated alike."""


UNSHARED = "the gradients of the step before are in what was stepped on"
ADDED = "gradients were added up over ranks on their way through a backward()"
CONTINUED = "a backward() has begun with gradients that the program has brought there itself"
UNKNOWN = "what one rank's backward() counts in the step of another is not known"


@once_per_world
def of(world: World) -> list[Weights]:
    """What counts in all steps whose gradients are known as sums."""
    losses = {rank.rank: {one.backward: one for one in rank.of(ev.LossWeights)} for rank in world}
    ranks = {rank.rank: rank for rank in world}
    found = []
    for family in reductions.of(world):
        windows = [list(_weighed(world, ranks, losses, family, sums)) for sums in family.windows]
        found.append(Weights(family, windows))
    return found


@once_per_world
def _held_back(world: World) -> set[tuple[int, int, int]]:
    """The steps before which a rank was in a no_sync(): rank, optimizer and step."""
    return {
        (rank.rank, step.optimizer, step.number)
        for rank, step in world.of(ev.Step)
        if any(usage.no_sync for usage in step.usage)
    }


_Losses = Mapping[int, Mapping[int, ev.LossWeights]]


class _Treated(NamedTuple):
    """Tensors that are treated alike."""

    made: Made
    over: Ranks
    earlier: float
    ranks: set[int]
    tensors: list[int]


def _treated(sums: Sums) -> list[_Treated]:
    found: list[_Treated] = []
    for (ranks, place), made in sums.by.items():
        answer = sums.answers[made.answer]
        if answer.crossed:  # what it was made of counts for another tensor
            continue
        same = next(
            (
                one
                for one in found
                if one.over == answer.over and _are_near(one.made, made) and one.earlier == answer.earlier
            ),
            None,
        )
        if same is None:
            same = _Treated(made, answer.over, answer.earlier, set(), [])
            found.append(same)
        same.ranks.update(ranks)
        if place not in same.tensors:
            same.tensors.append(place)
    return [one for one in found if one.over]


def _are_near(one: Made, other: Made) -> bool:
    if abs(one.factor - other.factor) > NEAR * max(abs(one.factor), abs(other.factor)):
        return False
    mine, yours = dict(one.shares), dict(other.shares)
    largest = max(map(abs, (*mine.values(), *yours.values())), default=0.0)
    return mine.keys() == yours.keys() and all(abs(mine[at] - yours[at]) <= NEAR * largest for at in mine)


def _weighed(world: World, ranks: Mapping[int, Rank], losses: _Losses, family: Family, sums: Sums) -> Iterator[Weighed]:
    for one in _treated(sums):
        found = _Found(ranks, losses, family, sums, one, _held_back(world), exchanges.of_the_program(world))
        for rank in sorted(one.over & sums.calls.keys()):
            found.add_own(rank)
        for rank in sorted(found.others(world)):
            found.add_other(rank)
        yield found.weighed()


class _Found:
    """The losses of one step, rank by rank."""

    def __init__(
        self,
        ranks: Mapping[int, Rank],
        losses: _Losses,
        family: Family,
        sums: Sums,
        treated: _Treated,
        held_back: set[tuple[int, int, int]],
        exchanging: Sequence[Ranks],
    ) -> None:
        self.ranks, self.losses, self.family, self.sums, self.treated = ranks, losses, family, sums, treated
        self.held_back, self.exchanging = held_back, exchanging
        self.why = UNSHARED if treated.earlier else ""
        self.each: dict[int, list[tuple[ev.LossWeights, float]]] = defaultdict(list)
        """By rank: its losses, and by what their gradients are multiplied."""
        self.continued: set[int] = set()
        """Ranks of which a backward() goes on with gradients that another one has computed."""

    def add_own(self, rank: int) -> None:
        """The losses of a rank whose contributions are in the step."""
        reaching = self._reaching(rank)
        shares = dict(self.treated.made.shares)
        lost = self.sums.answers[self.treated.made.answer].lost
        for turn, backward in enumerate(self.sums.calls[rank]):
            if backward in reaching:
                factor = shares.get((rank, turn), 0.0) if shares else self.treated.made.factor
                self._add(rank, backward, 0.0 if turn in lost else factor)

    def _reaching(self, rank: int) -> set[int]:
        """The backward() calls that have contributed to one of these tensors anything but zeros."""
        return {one.backward for one in self._contributions(rank)}

    def _contributions(self, rank: int) -> Iterator[moments.Contribution]:
        if (window := self.sums.ranks.get(rank)) is None:
            return
        held = [self.family.tensors[place].held.get(rank) for place in self.treated.tensors]
        pieces = [piece.piece for one in held if one is not None for piece in one.pieces]
        for piece in pieces:
            yield from (one for one in window.contributions.get(piece, ()) if one.sketch.any())

    def others(self, world: World) -> Ranks:
        """The ranks whose losses come to these tensors by what is exchanged within backward() calls, or by stages.

        What ranks add up there are the gradients of all their losses. Where these are copies of one loss, they may be
        its parts, as DTensor declares, or the same several times: that is not known.
        """
        over, averaging = self.treated.over, exchanges.averaging(world)
        own = {rank: {call for one in self._contributions(rank) for call in one.calls} for rank in over}

        def calls(rank: int) -> set[tuple[str, str, int | None]]:
            window = self.sums.ranks.get(rank)
            each = window.backwards if window is not None else ()
            return own[rank] if rank in own else {call for one in each for call in one.calls}

        def partners(rank: int) -> list[Ranks]:
            return [exchanges.parties(world, rank, group, peer, op) for op, group, peer in calls(rank)]

        found = exchanges.closure(over, partners)
        for rank in found:
            for op, group, peer in calls(rank):
                ranks = exchanges.parties(world, rank, group, peer, op)
                is_known = exchanges.gives(op) or op.startswith("functional.") or any(ranks <= one for one in averaging)
                if not is_known and self._share(ranks):
                    self.why = self.why or ADDED
        if self.continued:
            staged = {rank.rank for rank, one in world.of(ev.Parallelised) if one.stage is not None}
            if self.continued <= staged:
                found |= exchanges.reach(world, over)
            else:
                self.why = self.why or CONTINUED
        if found > over and self.treated.made.shares:
            self.why = self.why or UNKNOWN
            return frozenset()
        return found - over

    def _share(self, ranks: Ranks) -> bool:
        """Whether some of these ranks go back from the same batch, or are not known not to."""
        each = [[(self.losses.get(rank, {}).get(call), 1.0) for call in self._calls(rank)] for rank in ranks]
        known = [[(loss, one) for loss, one in its if loss is not None and loss.value is not None] for its in each]
        if any(len(its) < len(all_of_it) for its, all_of_it in zip(known, each, strict=True)):
            return True
        return any(_are_same(one, other) for place, one in enumerate(known) for other in known[:place])

    def _calls(self, rank: int) -> Sequence[int]:
        """The backward() calls of a rank before the step."""
        if rank in self.sums.calls:
            return self.sums.calls[rank]
        windows = [
            tuple(record.backward for record in window.backwards if record.how == "backward")
            for each in (moments.windows(self.ranks[rank]).values() if rank in self.ranks else ())
            for window in each
            if window.number == self.sums.number
        ]
        if len(set(windows)) != 1:
            self.why = self.why or UNKNOWN
        return windows[0] if windows else ()

    def add_other(self, rank: int) -> None:
        """The losses of another rank that come to these tensors."""
        for backward in self._calls(rank):
            self._add(rank, backward, self.treated.made.factor)

    def _add(self, rank: int, backward: int, factor: float) -> None:
        loss = self.losses.get(rank, {}).get(backward)
        if loss is None:
            self.why = self.why or "not every loss of the step was looked at"
        elif loss.why:
            self.why = self.why or loss.why
        elif loss.continued:
            self.continued.add(rank)
        else:
            self.each[rank].append((loss, factor))

    def weighed(self) -> Weighed:
        """What counts in it."""
        sharing, are_known = self._sharing()
        by_line: dict[CallSite | None, dict[int, list[tuple[ev.LossWeights, float]]]] = defaultdict(dict)
        for rank, its in self.each.items():
            for loss, factor in its:
                by_line[self.ranks[rank].where(loss.site)].setdefault(rank, []).append((loss, factor))
        parts: list[Part] = []
        why = self.why
        for line, by_rank in by_line.items():
            shapes = {tuple((t.by, t.kind) for t in loss.terms) for its in by_rank.values() for loss, _ in its}
            if len(shapes) > 1:
                why = why or "the loss is not made of the same parts on all ranks and in all micro-batches"
                continue
            (shape,) = shapes
            accumulates = self._is_held_back() or all(loss.fresh for its in by_rank.values() for loss, _ in its[1:])
            for place in range(len(shape)):
                batches = tuple(
                    Batch(rank, turn, term, abs(factor) * term.weight * times, sharers)
                    for rank, its in by_rank.items()
                    for turn, (loss, factor) in enumerate(its)
                    for term in [loss.terms[place]]
                    for sharers, times in [sharing[rank]]
                )
                parts.append(Part(line, place, len(shape) == 1, batches, accumulates))
        treated = self.treated
        return Weighed(
            self.sums.number,
            frozenset(treated.ranks),
            treated.over,
            treated.made.factor,
            treated.tensors,
            parts,
            why,
            are_known,
            all(
                self.family.holders[place][rank].ranks <= treated.over
                for place in treated.tensors
                for rank in treated.ranks
                if rank in self.family.holders[place]
            ),
        )

    def _is_held_back(self) -> bool:
        """Whether all ranks were in a no_sync() before the step."""
        optimizers, number = self.family.optimizers, self.sums.number
        return all((rank, optimizers.get(rank, -1), number) in self.held_back for rank in self.each)

    def _sharing(self) -> tuple[dict[int, tuple[int, int]], bool]:
        """By rank, how many have the same batches, and how many times their elements count for it.

        Ranks that share a batch and contribute the same each count its elements; those that contribute parts of one
        gradient count them together.
        """
        found: dict[int, tuple[int, int]] = {}
        sets: list[list[int]] = []
        for rank, its in self.each.items():
            same = next((ranks for ranks in sets if _are_same(self.each[ranks[0]], its)), None)
            if same is None:
                sets.append([rank])
            else:
                same.append(rank)
        for ranks in sets:
            if len(ranks) == 1 or self._contribute_alike(ranks):
                found |= dict.fromkeys(ranks, (len(ranks), len(ranks)))
            else:
                # Parts of one gradient take an exchange: without one, the loss was averaged before backward().
                among = any(len(one.intersection(ranks)) > 1 for one in self.exchanging)
                found |= dict.fromkeys(ranks, (len(ranks) if among else 1, 1))
        is_known = len(self.each) < 2 or all(loss.value is not None for its in self.each.values() for loss, _ in its)
        return found, is_known

    def _contribute_alike(self, ranks: Sequence[int]) -> bool:
        first, *others = [self.sums.contributed(frozenset({rank}))[self.treated.tensors] for rank in ranks]
        return set(ranks) <= self.treated.over and all(sketches.are_alike(first, other) for other in others)


def _are_same(mine: Sequence[tuple[ev.LossWeights, float]], yours: Sequence[tuple[ev.LossWeights, float]]) -> bool:
    """Whether two ranks go back from the same batches, by the values of their losses."""
    return len(mine) == len(yours) and all(
        one.value is not None
        and other.value is not None
        and math.isclose(one.value, other.value, rel_tol=SAME)
        and [term.elements for term in one.terms] == [term.elements for term in other.terms]
        for (one, _), (other, _) in zip(mine, yours, strict=True)
    )
