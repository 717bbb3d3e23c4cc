"""R4: gradients are scaled by the norm of the whole: each element once, reduced, unscaled, of this window."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ddpcheck.facts.norms import ALIKE, Holders, Measure, Team, Window, are_apart

ENOUGH = 3
"""Factors that a norm of a part has to explain, where the bound is not known: so many do so by no chance."""
VARIED = 1e-2
"""By how much of themselves the factors of a clip differ from window to window, at least, where its bound is not known:
an average over ranks, a loss scale or a number of tokens comes to no bound."""
ADDED = 1e-6
"""What torch adds to a norm before it divides the bound by it."""
FAR = 100.0
"""How many times larger than the bound a scale has to be: a program may multiply its bound by the scale."""

Norms = list[float]
"""Rank by rank."""
Of = Callable[[Team, Window], "Norms | None"]


class Deviation(NamedTuple):
    """A norm that gradients were scaled by, and that is not that of the whole."""

    team: Team
    candidate: str
    """The norm that fits: ``own``, ``group``, ``copies``, ``all copies``, ``largest``, ``sum``, ``mean``, ``part``,
    ``mean square``, ``replicas``, ``scaled``, ``unreduced``; or ``none``: the factors of slices differ without one."""
    windows: list[Window]
    norms: Norms
    """In the first window, the norm that fits."""
    whole: float | None
    """And that of the whole, where it is known."""
    is_declared: bool = True


class Scaling(NamedTuple):
    """What the comparison of a team's factors with its norms gave."""

    team: Team
    compared: list[Window]
    """The windows whose factor is explained by the norm of the whole."""
    deviations: list[Deviation]


@np.errstate(all="ignore")
def scaling(team: Team) -> Scaling:
    """Compare the factors by which gradients were scaled with the norms that may have been meant."""
    deviations = [one for one in (_scaled(team), _unreduced(team)) if one is not None]
    wrong = {one.number for deviation in deviations for one in deviation.windows}
    known = [one for one in team.windows if one.number not in wrong and _is_known(one)]
    windows = [one for one in known if len(one.measures) == len(team.ranks)] or known
    whole = _norms(team, windows, _whole)
    is_whole = bool(whole) and _fits(windows, whole, 2)
    if is_whole and not any(map(_differ, windows)):
        longer = _longer(team, windows, whole)
        if not longer:
            return Scaling(team, windows, deviations)
        if all(map(_is_summed, windows, longer)):
            deviations.append(Deviation(team, "all copies", windows, longer[0], whole[0][0], False))
    elif whole or team.kind != "copies":
        deviations += _other_norm(team, windows, whole, {} if is_whole else CANDIDATES)
    return Scaling(team, [], deviations)


def _other_norm(
    team: Team, windows: Sequence[Window], whole: Sequence[Norms], candidates: Mapping[str, Of]
) -> Iterator[Deviation]:
    """The first norm that fits, in the windows where it matters; or none, where slices have different factors."""
    optimizers = min((len(measure.norms) for one in windows for measure in one.measures), default=0)
    parts = [("part", _of_optimizer(place)) for place in range(optimizers if optimizers > 1 and candidates else 0)]
    for candidate, of in [*candidates.items(), *parts]:
        norms = _norms(team, windows, of)
        if norms and _fits(windows, norms):
            if team.kind != "sent" or candidate != "own":  # they may be two models
                yield from _instead(team, windows, whole, candidate, norms)
            return
    apart = [one for one in windows if _differ(one)]
    if apart and team.kind in ("FSDP", "DTensor") and team.is_sliced:
        yield Deviation(team, "none", apart, _own(team, apart[0]), None)


def _instead(
    team: Team, windows: Sequence[Window], whole: Sequence[Norms], candidate: str, norms: Sequence[Norms]
) -> Iterator[Deviation]:
    """The windows that were scaled by a norm in place of that of the whole; where this is not known, by several."""
    turns = [turn for turn, window in enumerate(windows) if _is_clipped(window)]
    turns = [t for t in turns if (are_apart([*norms[t], *whole[t]], 2 * ALIKE) if whole else _differ(windows[t]))]
    for first in turns[:1]:
        # A bound may be meant for the sum of what ranks hold alike.
        is_declared = team.kind != "sent" and (team.kind != "copies" or candidate in ("copies", "part"))
        if candidate == "copies":
            once = _once(windows[first], team.declared, range(len(windows[first].measures)))
            is_declared &= are_apart([norms[first][0], once], 2 * ALIKE)
        found = [windows[turn] for turn in turns]
        yield Deviation(team, candidate, found, norms[first], whole[first][0] if whole else None, is_declared)


# --- norms that may have been meant


def _norms(team: Team, windows: Sequence[Window], of: Of) -> list[Norms]:
    """In each window the norms, rank by rank; nothing where any is not known."""
    found = [of(team, one) for one in windows]
    return [] if None in found else [one for one in found if one is not None]


def _whole(team: Team, window: Window) -> Norms | None:
    """That of the whole, each element counted once."""
    measures = window.measures
    if len(measures) < max(2, len(team.ranks)):
        return None
    if team.kind == "copies":
        return _own(team, window) if _have_equal(measures) else None
    if team.kind == "exchanged" and len(team.windows) < ENOUGH:
        return None  # whose gradients are the same by chance is not known
    return [_once(window, team.seen, range(len(measures)))] * len(measures)


def _of_optimizer(place: int) -> Of:
    """That of the parameters of one optimizer, of several that are scaled together."""

    def of(team: Team, window: Window) -> Norms | None:
        measures = window.measures
        if team.kind == "copies":
            return [one.norm([one.size(optimizer=place)]) for one in measures]
        return [_once(window, team.seen, range(len(measures)), place)] * len(measures)

    return of


def _once(
    window: Window, held: Sequence[Sequence[Holders]], turns: Sequence[int], optimizer: int | None = None
) -> float:
    """That of what these ranks have."""
    ranks = {window.measures[turn].rank.rank for turn in turns}
    sizes = [window.measures[turn].size([len(holders & ranks) for holders in held[turn]], optimizer) for turn in turns]
    return window.measures[0].norm(sizes)


def _of_group(team: Team, window: Window) -> Norms | None:
    """That of the ranks over which each has summed up a number."""
    at = {measure.rank.rank: turn for turn, measure in enumerate(window.measures)}
    groups = [[at[rank] for rank in measure.group if rank in at] for measure in window.measures]
    if not all(1 < len(turns) < len(at) for turns in groups):
        return None
    return [_once(window, team.seen, turns) for turns in groups]


def _own(_: Team, window: Window) -> Norms:
    return [one.own for one in window.measures]


def _every_copy(_: Team, window: Window) -> Norms:
    measures = window.measures
    return [measures[0].norm([one.size() for one in measures])] * len(measures)


def _made_of(combine: Callable[[Norms], float]) -> Of:
    """That which is made of the ranks' own ones."""
    return lambda team, window: [combine(_own(team, window))] * len(window.measures)


def _every_replica(team: Team, window: Window) -> Norms | None:
    whole = _whole(team, window) if team.replicas > 1 else None
    times = np.float64(team.replicas) ** (1 / window.measures[0].first.power)
    return whole and [float(one * times) for one in whole]


CANDIDATES: dict[str, Of] = {
    "own": _own,
    "group": _of_group,
    "copies": _every_copy,
    "largest": _made_of(max),
    "sum": _made_of(sum),
    "mean": _made_of(lambda norms: sum(norms) / len(norms)),
    "mean square": _made_of(lambda norms: math.hypot(*norms) / math.sqrt(len(norms))),
    "replicas": _every_replica,
}
"""What may have been taken for the norm of the whole, in the order of how likely it is."""


# --- which of them fits


def _is_known(window: Window) -> bool:
    """Whether all gradients were scaled by one factor on each rank, and nothing was added to what had been clipped."""
    is_whole = not any(_is_clipped_early(one) for its in window.others for one in its)
    numbers = [(one.factor, one.came if one.came is not None else 0.0) for one in window.measures]
    is_finite = all(factor is not None and math.isfinite(factor) and math.isfinite(came) for factor, came in numbers)
    return is_whole and is_finite and all(np.isfinite(one.sizes).all() for one in window.measures)


def _is_clipped(window: Window) -> bool:
    return any(one.factor is not None and one.factor < 1 - one.rounding for one in window.measures)


def _differ(window: Window) -> bool:
    """Whether the ranks have scaled their gradients by different factors."""
    factors = [one.factor for one in window.measures if one.factor is not None]
    return are_apart(factors, max(one.rounding for one in window.measures))


def _fits(windows: Sequence[Window], norms: Sequence[Norms], least: int = ENOUGH) -> bool:
    """Whether these norms are those that gradients were scaled by, rank by rank, in all windows.

    A norm that torch's function came to, or was handed, is known, and so may be
    its bound. Otherwise the bound shows: it is one number, although the factors
    differ. Windows in which nothing was scaled must not have had a longer
    gradient.
    """
    shown: list[tuple[float, float]] = []
    """The factors, and the bounds that these norms make of them."""
    unscaled: list[tuple[float, float | None, float]] = []
    known = 0
    for window, values in zip(windows, norms, strict=True):
        for measure, norm in zip(window.measures, values, strict=True):
            limit, factor, bound, came = measure.rounding, measure.factor or 0.0, measure.bound, measure.came
            if came is None and factor >= 1 - limit:
                unscaled.append((norm, bound, limit))
            elif came is None and bound is None:
                shown.append((factor, factor * norm))
            elif _is_by(measure, norm) if came is not None else _is_near(factor * (norm + ADDED), bound or 0.0, limit):
                known += 1
            else:
                return False
    factors, bounds = [one for one, _ in shown], [one for _, one in shown]
    limit = max((one.measures[0].rounding for one in windows), default=ALIKE)
    if shown and (len(shown) < least or are_apart(bounds, limit) or not are_apart(factors, VARIED)):
        return False
    largest = max(bounds, default=math.inf)
    is_within = all(norm <= (bound or largest) * (1 + limit) for norm, bound, limit in unscaled)
    return is_within and (known > 0 or bool(shown) or (least < ENOUGH and any(bound for _, bound, _ in unscaled)))


def _is_by(measure: Measure, norm: float) -> bool:
    """Whether torch's function scaled the gradients by this norm, and nothing else did."""
    came = measure.came or 0.0
    expected = 1.0 if measure.bound is None else min(1.0, measure.bound / (came + ADDED))
    is_expected = not are_apart([measure.factor or 0.0, expected], measure.rounding)
    return is_expected and _is_near(came, norm, measure.rounding)


def _is_near(one: float, other: float, limit: float) -> bool:
    return math.isfinite(one) and abs(one - other) <= limit * max(abs(one), abs(other))


def _have_equal(measures: Sequence[Measure]) -> bool:
    """Whether all ranks have the same gradients."""
    sizes = [one.sizes for one in measures]
    if len({len(one) for one in sizes}) > 1:
        return False
    together = np.array(sizes)
    return bool((np.ptp(together, axis=0) <= ALIKE * together.max(axis=0)).all())


def _longer(team: Team, windows: Sequence[Window], whole: Sequence[Norms]) -> list[Norms]:
    """The norm with every copy, if it would explain the factors as well: where all elements are counted equally often.

    Without a bound, nobody knows which of both it is.
    """
    longer = _norms(team, windows, _every_copy)
    is_shown = any(one.came is not None or one.bound is not None for one in windows[0].measures)
    if is_shown or not are_apart([longer[0][0], whole[0][0]], 2 * ALIKE):
        return []
    return longer if _fits(windows, longer, 2) else []


def _is_summed(window: Window, norms: Norms) -> bool:
    """Whether the program has summed up the squares of this norm."""
    square = float(np.float64(norms[0]) ** window.measures[0].first.power)
    return any(_is_near(one.first.came or 0.0, square, one.rounding) for one in window.others[0])


# --- clips at another moment


def _scaled(team: Team) -> Deviation | None:
    """Clips of gradients that a scaler divides afterwards, in all windows."""
    windows: list[Window] = []
    for window in team.windows:
        measured = [one for its in window.others for one in its if one.bound is not None]
        clips = [one for one in measured if one.first.scale is None or one.factor is not None]
        whole = _whole(team, window) if any(one.first.scale for one in clips) else None
        if not all(_is_clipped_while_scaled(one, one.came or (whole or [one.own])[0]) for one in clips):
            return None
        windows += [window] if clips else []
    return Deviation(team, "scaled", windows, _own(team, windows[0]), None) if windows else None


def _is_clipped_while_scaled(one: Measure, norm: float) -> bool:
    """Whether gradients are made smaller than a scaler makes them afterwards, by this norm.

    A clip of another optimizer's does not.
    """
    scale, bound = one.first.scale or 0.0, one.bound or 0.0
    is_shorter = one.factor is not None and one.factor < 1 - ALIKE and scale > max(FAR * bound, 1.0)
    return is_shorter and _is_near((one.factor or 0.0) * (norm + ADDED), bound, one.rounding)


def _unreduced(team: Team) -> Deviation | None:
    """Clips of gradients that differ between ranks, which hold the same when these step."""
    found = []
    for window in () if team.is_apart else team.windows:
        lasts = [its[-1] for its in window.others]
        at_step = {one.stepped_on for one in lasts}
        is_reduced = len(lasts) > 1 and len(at_step) == 1 and b"" not in at_step and not _have_equal(lasts)
        if is_reduced and all(_is_clipped_early(one) and not one.first.backwards_later for one in lasts):
            found.append(Window(window.number, lasts, window.others))
    return Deviation(team, "unreduced", found, _own(team, found[0]), None) if found else None


def _is_clipped_early(one: Measure) -> bool:
    """Whether gradients were clipped, and then changed otherwise than by one factor: so others were added."""
    came, bound = one.came, one.bound
    if came is None or bound is None or one.factor is not None or one.first.scale is not None:
        return False
    return came > bound * (1 + one.rounding) and _is_near(came, one.own, one.rounding)
