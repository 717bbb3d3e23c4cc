"""R1: holders of the same part of a tensor hold the same values, and step them by the same settings."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ddpcheck.facts.holdings import Holding, Look, differing, minority
from ddpcheck.facts.windows import At, Window
from ddpcheck.vocabulary.model import CallSite

SUMMANDS = 64
"""Copies are sums of many terms: so many roundings of one window may add up in one direction."""
ROUNDING = {
    "float64": SUMMANDS * 2.0**-52,
    "float32": SUMMANDS * 2.0**-23,
    "float16": SUMMANDS * 2.0**-23 + 2 * 2.0**-10,  # sums are made in float32, and rounded once on each side
    "bfloat16": SUMMANDS * 2.0**-23 + 2 * 2.0**-7,
}
"""By type, how far rounding takes two copies apart in one window, over their size."""


class Deviation(NamedTuple):
    """Holders that differ where they must be equal."""

    holding: Holding
    looks: Sequence[tuple[Look, list[int]]]
    """The looks at which they differ, in order, each with the places."""
    cause: str
    """The first thing in the order of a training that differed between the holders; empty where it was not seen."""
    odd: Sequence[int]
    """The holders that do not hold what most hold."""
    line: CallSite | None

    @property
    def first(self) -> Look:
        return self.looks[0][0]

    @property
    def places(self) -> list[int]:
        return self.looks[0][1]

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(self.holding.names[place] for place in self.places))

    @property
    def links(self) -> tuple[str, ...]:
        """What a finding is linked by: whatever treats all tensors of an optimizer alike may have carried it on."""
        holding = self.holding
        if holding.moment not in ("gradients", "parameters"):
            return holding.links
        optimizer = f"optimizer {holding.optimizer}"
        if self.cause == "rates":
            return (f"rates of {optimizer}", *holding.links)
        if holding.moment == "gradients" and len(set(self.first.window.at_backward_end(self.places))) > 1:
            return holding.links
        return tuple(dict.fromkeys((*holding.links, optimizer)))


class Equality(NamedTuple):
    """What the comparison of a holding gave."""

    holding: Holding
    compared: list[int]
    """The numbers of the looks at which equal values prove something."""
    deviation: Deviation | None


def equality(holding: Holding) -> Equality:
    """Compare the holders at every look."""
    compared, apart = [], []
    equal_at: dict[int, int] = {}
    for look in holding.looks:
        different = differing(look.values, holding.places)
        rounded = _rounded(holding, look, different, equal_at) if different else {}
        if places := [place for place in different if place not in rounded]:
            apart.append((look, places))
        if holding.ground.is_rounded:
            equal_at |= dict.fromkeys(set(holding.places).difference(different), look.number)
        unknown = {place for place, is_known in rounded.items() if not is_known}
        if look.counts and len(holding.looks) >= holding.ground.least and _proves(holding, look, unknown):
            compared.append(look.number)
    ground = holding.ground
    if len(apart) < max(ground.least, len(holding.looks) if ground.is_lasting else 1):
        return Equality(holding, compared, None)
    look, places = apart[0]
    odd = minority(ground, look.values, places)
    cause, line = holding.cause or _cause(holding, look, places), None
    if cause == "converted":
        line = look.window.conversion(places)
    line = line or next((look.line(holder) for holder in odd), None) or look.line(0)
    return Equality(holding, compared, Deviation(holding, apart, cause, odd, line))


def _proves(holding: Holding, look: Look, unknown: Collection[int]) -> bool:
    """Whether some place was looked at on all holders, and holds more than nothing, which a step has changed.

    Of settings that a holder may not have been asked for, on several holders.
    """
    for place in holding.places:
        if place not in holding.idle and place not in unknown:
            nothing, values = holding.empty(place), look.at(place)
            known = values if None in nothing else [value for value in values if value is not None]
            if len(known) > 1 and nothing.isdisjoint(known):
                return True
    return False


def _rounded(holding: Holding, look: Look, places: Sequence[int], equal_at: Mapping[int, int]) -> dict[int, bool]:
    """The places whose copies, each computed by its holder, may differ by rounding alone; and if that is known.

    It is known if they are no further apart than rounding takes them in the
    windows since they were last equal. Where their distance is not known, kernels of a device may
    have rounded differently, and those of a CPU have not. A gradient that is
    nothing but rounding, as before a normalisation, says nothing, nor does what
    is stepped on it.
    """
    window = look.window
    if not holding.ground.is_rounded or window is None:
        return {}
    moment: At = "G" if holding.moment == "gradients" else "U"
    found = {}
    for place in places:
        distance = window.distance(moment, place)
        windows = max(1, look.number - equal_at.get(place, -1))
        limit = ROUNDING.get(window.dtype(place), 0.0) * math.sqrt(windows)
        if distance is not None and distance <= limit:
            found[place] = True
        elif window.absent([place]):
            continue
        elif window.is_noise(place, limit) or (distance is None and window.is_on_device(place)):
            found[place] = False
    return found


# --- causes: the first that differs, in the order of a training


def _cause(holding: Holding, look: Look, places: Sequence[int]) -> str:
    window = look.window
    if window is None:
        return ""
    if holding.moment == "gradients":
        return _cause_of_gradients(holding, window, places)
    if holding.moment == "parameters":
        return _cause_of_parameters(holding, window, places)
    if holding.moment == "state":
        return "" if window.unseen() else "alone"
    return ""


def _cause_of_gradients(holding: Holding, window: Window, places: Sequence[int]) -> str:
    clipped = " and clipped" if window.clip_line() is not None else ""
    if holding.ground.along:
        return "absent" if window.absent(places) else f"declared{clipped}"
    ended, armed = window.at_backward_end(places), window.is_armed(places)
    if armed and len(set(ended)) == 1:
        scales = window.scales
        return "scales" if len(set(scales)) > 1 and None not in scales else f"after backward{clipped}"
    if window.conversion(places) is not None:
        return "converted"
    if 0 < min(times := window.backwards(places)) < max(times):
        return "backwards"
    if window.absent(places):
        return "absent"
    if not window.is_wrapped(places):
        return f"after reduction{clipped}"
    return "" if armed and not ended else "not reduced"


def _cause_of_parameters(holding: Holding, window: Window, places: Sequence[int]) -> str:
    if holding.ground.kind in ("owned", "left over"):
        return holding.ground.kind
    if any(_differ(one.gradients, places) for one in window.until()):
        return "gradients"
    if not window.has_equal_rates(places):
        return "rates"
    unseen = window.unseen()
    if not unseen and any(_differ(values, places) for values in window.states.values()):
        return "state"
    if _differ(window.begun, places):
        return "start"
    return "" if unseen else "alone"


def _differ(values: Sequence[bytes], places: Collection[int]) -> bool:
    return bool(differing(values, places))
