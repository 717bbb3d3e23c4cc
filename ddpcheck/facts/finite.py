"""Where the first number came up that is not finite, of those that a run has kept since.

A loss that is finite again later, and parameters that stayed finite, are none of these: the program has thrown that
step away, as a scaler of gradients does. What follows from the first such number is not counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
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
    optimizer: int
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
    """The parameters are not finite since, or no loss is; else nothing is known of what came after."""
    is_harmless: bool
    """The parameters stay finite, as far as was looked at."""


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

        What has never been finite is as it is meant to be, unless the loss says otherwise.
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
                return one, bool(gone & was)
            known |= _kept(one.after)
        return None

    def begins_lost(self, number: int) -> set[int] | None:
        """The parameters that are not finite when a window begins, and were not always so; None if not looked at."""
        window = self.of(number)
        if window is None or not window.before:
            return None
        earlier = [_lost(one.after) | _lost(one.before) for one in self.windows if one.number < number]
        return _lost(window.before).difference(*earlier)

    def names(self, pieces: Iterable[int]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._known[one].path for one in sorted(pieces) if one in self._known))

    def of(self, number: int) -> moments.Window | None:
        return next((one for one in self.windows if one.number == number), None)

    def kept(self, number: int) -> tuple[str, ...]:
        """The names of the parameters that are finite when a window begins."""
        window = self.of(number)
        return self.names(_kept(window.before)) if window is not None else ()

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
    unlike = {
        (rank.rank, loss.optimizer): loss
        for rank in world.ranks
        if (last := rank.last(ev.Losses)) is not None
        for loss in sorted(last.unlike, key=lambda one: one.backward, reverse=True)
    }
    losses = sum(one.finite for one in seen) + sum(one.times for one in unlike.values())
    return Finite(losses, sum(one.met for one in seen), _first(world, trained, unlike))


_Trainings = dict[tuple[int, int], _Trained]
"""By rank and optimizer."""
_Losses = dict[tuple[int, int], ev.NotFinite]


def _first(world: World, trained: _Trainings, unlike: _Losses) -> First | None:
    lost = {key: found for key, one in trained.items() if (found := one.first()) is not None}
    begins = [(one.backward, 0, *key) for key, one in unlike.items()]
    begins += [(window.step.backwards, 1, *key) for key, (window, _) in lost.items()]
    if not begins:
        return None
    _, kind, rank, optimizer = min(begins)
    if not kind:
        return _of_loss(world, trained, unlike, bool(lost), unlike[rank, optimizer])
    number = lost[rank, optimizer][0].number
    same = {key: is_seen for key, (window, is_seen) in lost.items() if (key[1], window.number) == (optimizer, number)}
    return _of_rates(world, optimizer, number) or _of_parameters(
        {key[0]: trained[key] for key in same}, optimizer, number, is_seen=all(same.values())
    )


def _of_rates(world: World, optimizer: int, last: int) -> First | None:
    """The first step of an optimizer, of those until one, that was made at a learning rate which is not finite."""
    steps = {
        rank.rank: step
        for rank in world.ranks
        for step in reversed(rank.of(ev.Step))
        if step.optimizer == optimizer and step.number <= last and not all(map(math.isfinite, step.rates))
    }
    if not steps:
        return None
    number = min(step.number for step in steps.values())
    same = {rank: step for rank, step in steps.items() if step.number == number}
    first = min(same)
    return First(
        moment="rate",
        optimizer=optimizer,
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
        is_harmless=False,
    )


def _of_loss(world: World, trained: _Trainings, unlike: _Losses, is_lost: bool, loss: ev.NotFinite) -> First | None:
    same = {key[0]: one for key, one in unlike.items() if (key[1], one.number) == (loss.optimizer, loss.number)}
    its = [one for rank in same if (one := trained.get((rank, loss.optimizer))) is not None]
    is_harmless = len(its) == len(same) and all(one.stays_finite(loss.number) for one in its)
    is_kept = is_lost or any(one.times > 1 for one in unlike.values())
    if is_harmless and not is_kept:
        return None
    number = loss.number
    if number and (of_rate := _of_rates(world, loss.optimizer, number - 1)) is not None:
        return of_rate
    read = {rank: one for (rank, optimizer), one in trained.items() if optimizer == loss.optimizer}
    begun = {rank: each for rank, one in read.items() if (each := one.begins_lost(number))}
    lost = [name for rank, each in begun.items() for name in read[rank].names(each)]
    ranks = {rank.rank: rank for rank in world.ranks}
    first = min(same)
    return First(
        moment=read[min(begun)].begins(number) if begun else "loss",
        optimizer=loss.optimizer,
        number=number,
        ranks=tuple(sorted(begun or same)),
        finite_on=tuple(n for n, rank in ranks.items() if n not in same and _knows_losses(rank)),
        names=tuple(dict.fromkeys(lost)),
        finite=tuple(dict.fromkeys(name for rank in begun for name in read[rank].kept(number))),
        before=None,
        is_nan=same[first].is_nan,
        origin=same[first].origin,
        module=same[first].module,
        line=ranks[first].where(same[first].site),
        times=sum(one.times for one in unlike.values()),
        is_kept=is_kept,
        is_harmless=is_harmless,
    )


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
        optimizer=optimizer,
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
        is_harmless=False,
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
