"""Where the first number came up that is not finite, of those that a run has kept since.

A loss that is finite again later, and parameters that stayed finite, are none of these: the program has thrown that
step away, as a scaler of gradients does. What follows from the first such number is not counted.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from ddpcheck import evidence as ev
from ddpcheck.facts import moments
from ddpcheck.facts.moments import Value
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite

Moment = Literal["loss", "contribution", "gradient", "rate", "step", "between", "begun", "unseen"]
"""What was not finite first: a loss, what backward() has made, that by the time of the step, a learning rate, what the
step has made of finite gradients, a parameter that was finite when the step before had returned, or one at the first
forward of all. Or it was a parameter since some step, or one before it, that was not looked at."""


class First(NamedTuple):
    """The first numbers that are not finite."""

    moment: Moment
    number: int
    """The step of their window."""
    ranks: tuple[int, ...]
    finite_on: tuple[int, ...]
    """Ranks of which the same was finite in that window."""
    names: tuple[str, ...]
    """Of parameters."""
    finite: tuple[str, ...]
    """The names of those that are finite there."""
    before: Literal[True] | None
    """What came before it in that window was looked at, and was finite: the losses before what backward() has
    contributed, and that before a gradient. Else None."""
    is_nan: bool
    origin: ev.Origin
    """Of a loss: where the first such number of its forward came up."""
    module: str
    line: CallSite | None
    times: int
    is_kept: bool
    """The parameters are not finite since; else that is not known."""


class Finite(NamedTuple):
    """What was looked at, of all ranks, and what of it was not finite."""

    losses: int
    met: int
    first: First | None


class _Trained:
    """The parameters of one optimizer of a rank, window by window."""

    def __init__(self, rank: Rank, windows: Sequence[moments.Window]) -> None:
        self.rank, self.windows = rank, windows
        self._known = moments.pieces(rank)

    def first(self) -> tuple[moments.Window, bool] | None:
        """The window since which a parameter is not finite that was; and whether it became so in that very window.

        What has never been finite is as it is meant to be, unless the loss says otherwise. And a finite loss after
        the only look that has seen it may be one of parameters that were taken back.
        """
        if not self.windows:
            return None
        last = self.windows[-1]
        lost = _lost(last.after) or (_lost(last.before) if not last.after else set())
        known: set[int] = set()
        for one in self.windows:
            was = _kept(one.before)
            known |= was
            gone = lost & known & (_lost(one.after) | _lost(one.before))
            if gone:
                finite = max((losses.last_finite for losses in self.rank.of(ev.Losses)), default=0)
                return None if one is last and finite > one.step.backwards else (one, bool(gone & was))
            known |= _kept(one.after)
        return None

    def names(self, pieces: Iterable[int]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._known[one].path for one in sorted(pieces) if one in self._known))

    def of(self, number: int) -> moments.Window | None:
        return next((one for one in self.windows if one.number == number), None)

    def around(self, backward: int) -> moments.Window | None:
        """The window that this backward() is in."""
        return next((one for one in self.windows if one.step.since[0] < backward <= one.step.backwards), None)

    def begins_lost(self, window: moments.Window) -> set[int]:
        """The parameters that are not finite when a window begins, and were not always so."""
        earlier = [_lost(one.after) | _lost(one.before) for one in self.windows if one.number < window.number]
        return _lost(window.before).difference(*earlier)

    def begins(self, number: int) -> Moment:
        """Since when parameters are not finite that are so when a window begins."""
        before = self.of(number - 1)
        if number and (before is None or not before.after):
            return "unseen"
        return "between" if number else "begun"

    def stays_finite(self, since: int) -> bool:
        """Whether its parameters were looked at from a step on, and were finite."""
        after = [one.after for one in self.windows if one.number >= since and one.after]
        return bool(after) and not any(map(_lost, after))

    def is_finite_after(self, since: int, until: int) -> bool:
        """Whether all parameters were finite after some step between these."""
        return any(since <= one.number <= until and one.after and not _lost(one.after) for one in self.windows)


@once_per_world
def of(world: World) -> Finite:
    """What is not finite."""
    seen = [record for rank in world.ranks for record in rank.of(ev.Losses)]
    trained = {
        (rank.rank, optimizer): _Trained(rank, windows)
        for rank in world.ranks
        for optimizer, windows in moments.windows(rank).items()
        if optimizer is not None
    }
    unlike = [
        _Unlike(rank, _place(rank, loss.optimizer), loss)
        for rank in world.ranks
        if (last := rank.last(ev.Losses)) is not None
        for loss in last.unlike
    ]
    losses = sum(one.finite for one in seen) + sum(one.loss.times for one in unlike)
    return Finite(losses, sum(one.met for one in seen), _first(world, trained, unlike))


class _Unlike(NamedTuple):
    rank: Rank
    place: int
    loss: ev.NotFinite


def _place(rank: Rank, optimizer: int) -> int:
    """The place of an optimizer among those of a rank that make steps, which other ranks may number otherwise."""
    stepping = list(dict.fromkeys(step.optimizer for step in rank.of(ev.Step)))
    return stepping.index(optimizer) if optimizer in stepping else -1


_Trainings = dict[tuple[int, int], _Trained]
"""By rank and optimizer."""


def _first(world: World, trained: _Trainings, unlike: Sequence[_Unlike]) -> First | None:
    lost = {key: found for key, one in trained.items() if (found := one.first()) is not None}
    losses = [(one, is_kept) for one in unlike if (is_kept := _is_kept(one, trained, lost.keys())) is not False]
    places = {key: _place(trained[key].rank, key[1]) for key in lost}
    begins = [(one.loss.number, 0, one.place, n) for n, (one, _) in enumerate(losses)]
    begins += [(window.number, 1, places[key], key[0]) for key, (window, _) in lost.items()]
    if not begins:
        return None
    number, kind, place, which = min(begins)
    if not kind:
        return _of_loss(world, trained, losses, *losses[which])
    same = {key: is_seen for key, (window, is_seen) in lost.items() if (places[key], window.number) == (place, number)}
    optimizer = next(key[1] for key in same if key[0] == which)
    return _of_rates(world, trained, optimizer, number) or _of_parameters(
        {key[0]: trained[key] for key in same}, optimizer, number, is_seen=all(same.values())
    )


def _is_kept(one: _Unlike, trained: _Trainings, lost: Collection[tuple[int, int]]) -> bool | None:
    """Whether the parameters of a step on this loss are not finite since; None where that is not known."""
    key = one.rank.rank, one.loss.optimizer
    if one.loss.kept or key in lost:
        return True
    return False if key in trained and trained[key].stays_finite(one.loss.number) else None


def _of_rates(world: World, trained: _Trainings, optimizer: int, last: int) -> First | None:
    """The first step of an optimizer, of those until one, that was made at a learning rate which is not finite."""
    steps = {
        rank.rank: step
        for rank in world.ranks
        for step in reversed(rank.of(ev.Step))
        if step.optimizer == optimizer and step.number <= last and not all(map(math.isfinite, step.rates))
    }
    if not steps or any(
        one.is_finite_after(min(step.number for step in steps.values()), last)
        for key, one in trained.items()
        if key[1] == optimizer
    ):
        return None
    number = min(step.number for step in steps.values())
    same = {rank: step for rank, step in steps.items() if step.number == number}
    first = min(same)
    return First(
        moment="rate",
        number=number,
        ranks=tuple(sorted(same)),
        finite_on=(),
        names=(),
        finite=(),
        before=None,
        is_nan=any(map(math.isnan, same[first].rates)),
        origin="unseen",
        module="",
        line=next(rank for rank in world.ranks if rank.rank == first).where(same[first].site),
        times=1,
        is_kept=True,
    )


def _of_loss(
    world: World, trained: _Trainings, losses: Sequence[tuple[_Unlike, bool | None]], one: _Unlike, is_kept: bool | None
) -> First | None:
    number, optimizer = one.loss.number, one.loss.optimizer
    if is_kept and number and (of_rate := _of_rates(world, trained, optimizer, number - 1)) is not None:
        return of_rate
    line = one.rank.where(one.loss.site)
    of_line = [each for each, _ in losses if _is_at(each.rank.where(each.loss.site), line) and each.place == one.place]
    same = {each.rank.rank: each.loss for each in of_line if each.loss.number == number}
    first = same[min(same)]
    others = tuple(rank.rank for rank in world.ranks if rank.rank not in same and _is_all_finite(rank, losses))
    begun = {
        key: (window, lost)
        for key, each in trained.items()
        if (window := each.of(number) if key[0] != one.rank.rank else each.around(one.loss.backward)) is not None
        and (lost := each.begins_lost(window))
    }
    # What another rank has as well, with a loss that is finite, is by right.
    if any(key[0] in others for key in begun):
        begun = {}
    key = min(begun, default=(one.rank.rank, optimizer))
    names = dict.fromkeys(name for its, (_, lost) in begun.items() for name in trained[its].names(lost))
    kept = dict.fromkeys(
        name for its, (window, _) in begun.items() for name in trained[its].names(_kept(window.before))
    )
    return First(
        moment=trained[key].begins(begun[key][0].number) if begun else "loss",
        number=number,
        ranks=tuple(sorted({rank for rank, _ in begun} or same)),
        finite_on=() if begun else others,
        names=tuple(names),
        finite=tuple(kept),
        before=None,
        is_nan=first.is_nan,
        origin=first.origin,
        module=_name(first),
        line=line,
        times=sum(each.loss.times for each in of_line),
        is_kept=bool(is_kept),
    )


def _name(loss: ev.NotFinite) -> str:
    named = f"{loss.module} ({loss.kind})" if loss.module else loss.kind or "a module that is gone by now"
    return f"{named}, which was called with infinite numbers" if loss.given_infinite else named


def _is_at(line: CallSite | None, other: CallSite | None) -> bool:
    return line == other or (
        line is not None and other is not None and (line.file, line.line) == (other.file, other.line)
    )


def _is_all_finite(rank: Rank, losses: Sequence[tuple[_Unlike, bool | None]]) -> bool:
    """Whether every loss of a rank was looked at, and was finite until one of these that is not."""
    lost = sum(one.lost for one in rank.of(ev.Losses))
    return _knows_losses(rank) and lost == sum(one.loss.times for one, _ in losses if one.rank is rank)


def _of_parameters(trained: dict[int, _Trained], optimizer: int, number: int, is_seen: bool) -> First:
    """What made parameters that are not finite, in a window that was looked at; and where none was, that."""
    windows = {rank: window for rank, one in trained.items() if (window := one.of(number)) is not None}
    contributed = {rank: _contributed(one) for rank, one in windows.items()}
    own = [rank for rank, one in contributed.items() if is_seen and not all(one.values())]
    reduced = [rank for rank, one in windows.items() if is_seen and _lost(one.gradients)]
    first = min(own or reduced or windows)
    window = windows[first]
    moment: Moment = "contribution" if own else "gradient" if reduced else "step" if is_seen else "unseen"
    lost, kept = _lost(window.after) or _lost(window.before), _kept(window.after)
    site = next((step.site for step in trained[first].rank.of(ev.Step) if _is_step(step, optimizer, number)), 0)
    if own:
        lost, kept = (
            {piece for piece, is_fine in contributed[first].items() if is_fine is one} for one in (False, True)
        )
        site = window.backwards[-1].site
    elif reduced:
        lost, kept = _lost(window.gradients), _kept(window.gradients)
    is_known = all(_knows_losses(trained[rank].rank) for rank in own) if own else lost <= set(contributed[first])
    return First(
        moment=moment,
        number=number,
        ranks=tuple(sorted(own or reduced or windows)),
        finite_on=tuple(rank for rank in windows if own and rank not in own and contributed[rank]),
        names=trained[first].names(lost),
        finite=trained[first].names(kept),
        before=is_known or None,
        is_nan=True,
        origin="unseen",
        module="",
        line=trained[first].rank.where(site),
        times=1,
        is_kept=True,
    )


def _knows_losses(rank: Rank) -> bool:
    """Whether every loss of a rank was looked at."""
    seen = rank.of(ev.Losses)
    return sum(one.met for one in seen) == sum(one.finite + one.lost for one in seen) > 0


def _is_step(step: ev.Step, optimizer: int, number: int) -> bool:
    return (step.optimizer, step.number) == (optimizer, number)


def _contributed(window: moments.Window) -> dict[int, bool]:
    """By piece, whether all that backward() has contributed is finite."""
    each = window.contributions.items()
    return {piece: all(np.isfinite(one.sketch).all() for one in its) for piece, its in each}


def _lost(values: Mapping[int, Value]) -> set[int]:
    """The pieces that are not finite; of what has no sketch nothing is known."""
    return {piece for piece, one in values.items() if one.digest != ev.UNSEEN and not np.isfinite(one.sketch).all()}


def _kept(values: Mapping[int, Value]) -> set[int]:
    return {piece for piece, one in values.items() if np.isfinite(one.sketch).all()}
