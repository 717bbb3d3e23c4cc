"""One step of an optimizer on all ranks that share its parameters, with what led to it."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from itertools import accumulate

import numpy as np

from ddpcheck import evidence as ev
from ddpcheck.evidence.moments import At as At
from ddpcheck.facts import holdings, moments, norms
from ddpcheck.facts.sketches import Numbers
from ddpcheck.judging import step_alignment
from ddpcheck.judging.step_alignment import Aligned
from ddpcheck.judging.tensor_kinds import dtype_of
from ddpcheck.judging.world import Rank
from ddpcheck.vocabulary.model import CallSite


class Window:
    """The step, rank by rank."""

    def __init__(self, optimizer: Aligned, number: int, steps: Sequence[ev.Step], before: Window | None) -> None:
        self.optimizer, self.number, self.steps, self.before = optimizer, number, steps, before
        self._known: dict[At, list[dict[int, Numbers]]] = {}

    def line(self, holder: int) -> CallSite | None:
        """The line of a rank's step."""
        return self.optimizer.ranks[holder].where(self.steps[holder].site)

    @property
    def gradients(self) -> tuple[bytes, ...]:
        return tuple(step.gradients for step in self.steps)

    @property
    def parameters(self) -> tuple[bytes, ...]:
        return tuple(step.parameters for step in self.steps)

    @property
    def states(self) -> dict[str, tuple[bytes, ...]]:
        """By key, the optimizer's state that every rank has recorded."""
        keys = [key for key in self.steps[0].state if all(key in step.state for step in self.steps)]
        return {key: tuple(step.state[key] for step in self.steps) for key in keys}

    def rates(self, groups: Sequence[tuple[int, ...]]) -> tuple[tuple[float | None, ...], ...]:
        """By rank, the learning rates of these groups, which are a rank's own; None where it was not asked."""
        return tuple(
            tuple(_rate(step.rates, each[holder]) for each in groups) for holder, step in enumerate(self.steps)
        )

    def has_equal_rates(self, places: Collection[int]) -> bool:
        """Whether all ranks step these places by the same rates, as far as they were asked for."""
        rates = self.rates(groups_of(self.optimizer, places))
        return all(len({*of_group} - {None}) < 2 for of_group in zip(*rates, strict=True))

    @property
    def scales(self) -> tuple[float | None, ...]:
        """The factors of the gradient scalers: zero without one, and None where it was not asked for."""
        return tuple(_number(step.scale or 0.0) for step in self.steps)

    @property
    def begun(self) -> tuple[bytes, ...]:
        """What the parameters were on entry to the optimizer's first step."""
        return tuple(one.values for one in self.optimizer.described)

    def until(self) -> Iterator[Window]:
        """This window and those before it, the last first."""
        one: Window | None = self
        while one is not None:
            yield one
            one = one.before

    def unseen(self) -> str:
        """The windows right before this one that were not looked at in full, as a clause; empty where all were."""
        return self.optimizer.blind_before(self.number)

    # --- what came between backward() and the step

    def _usages(self, places: Collection[int]) -> list[list[ev.Usage]]:
        """What became of the wrappers that hold these places, rank by rank."""
        wrappers = {self.optimizer.described[0].parameters[place].wrapper for place in places}
        return [[usage for usage in step.usage if usage.wrapper in wrappers] for step in self.steps]

    def at_backward_end(self, places: Collection[int]) -> list[tuple[bytes, ...]]:
        """The gradients of the wrappers of these places when backward() had ended; none where a rank did not look."""
        ended = [tuple(usage.after for usage in usages) for usages in self._usages(places)]
        return ended if all(ended) and all(all(digests) for digests in ended) else []

    def is_armed(self, places: Collection[int]) -> bool:
        """Whether the reducers of these places know them, and were armed."""
        known = all(self.optimizer.described[0].parameters[place].reduced for place in places)
        return known and all(usage.armed for usages in self._usages(places) for usage in usages)

    def backwards(self, places: Collection[int]) -> list[int]:
        """Rank by rank, the backward() calls of this window; of the wrapper's, as far as they are known."""
        own = [max((usage.backwards for usage in usages), default=0) for usages in self._usages(places)]
        return [step.backwards for step in self.steps] if 0 in own else own

    def absent(self, places: Collection[int]) -> list[int]:
        """The places of which some rank has no gradient."""
        return [place for place in places if any(holdings.at(one, place) == ev.ABSENT for one in self.gradients)]

    def is_wrapped(self, places: Collection[int]) -> bool:
        return any(self.optimizer.described[0].parameters[place].wrapper is not None for place in places)

    def clip_line(self) -> CallSite | None:
        """The line at which some rank shortened its gradients by torch's function before the step."""
        for rank, step in zip(self.optimizer.ranks, self.steps, strict=True):
            for one in rank.of(ev.Norm):
                is_of_step = (one.optimizer, one.number) == (step.optimizer, step.number)
                factor = 1.0 if one.factor is None else one.factor * (one.scale or 1.0)
                if is_of_step and norms.is_clip(one) and factor < 1 - norms.ALIKE:
                    return rank.where(one.site)
        return None

    def conversion(self, places: Collection[int]) -> CallSite | None:
        """The line that converted a wrapped module since its gradients were last equal: the hooks are on others."""
        wrappers = {self.optimizer.described[0].parameters[place].wrapper for place in places}
        equal = self.before
        while equal is not None and not equal.has_equal_gradients(places):
            equal = equal.before
        for holder, (rank, step) in enumerate(zip(self.optimizer.ranks, self.steps, strict=True)):
            since = equal.steps[holder].n if equal is not None else -1
            for moved in rank.of(ev.Moved):
                if moved.wrapper in wrappers and since < moved.n < step.n:
                    return rank.where(moved.site)
        return None

    def is_on_device(self, place: int) -> bool:
        """Whether a DTensor lies on a mesh of GPUs, or of whatever is no CPU."""
        layout = self.optimizer.described[0].parameters[place].layout
        return layout is not None and layout.mesh is not None and self._devices.get(layout.mesh, "") not in ("", "cpu")

    @cached_property
    def _devices(self) -> dict[int, str]:
        return {one.mesh: one.device for one in self.optimizer.ranks[0].of(ev.Mesh)}

    def dtype(self, place: int) -> str:
        return dtype_of(self.optimizer.described[0].parameters[place].kind)

    def has_equal_gradients(self, places: Collection[int]) -> bool:
        """Whether all ranks have some of these gradients, and the same ones."""
        nothing = {b"", ev.ABSENT, ev.UNSEEN}
        there = any(nothing.isdisjoint(holdings.at(one, place) for one in self.gradients) for place in places)
        return there and not set(step_alignment.differing(self.gradients)).intersection(places)

    # --- how much

    def distance(self, moment: At, place: int) -> float | None:
        """How far apart the holders' sketches of a place are, over their size; None where some rank has no sketch."""
        sketches = [its[place] for its in self._sketches(moment) if place in its]
        if len(sketches) < len(self.steps) or not np.isfinite(sketches).all():
            return None
        size = max(float(np.linalg.norm(one)) for one in sketches)
        apart = max(float(np.linalg.norm(one - sketches[0])) for one in sketches)
        return apart / size if size else 0.0

    def is_noise(self, place: int, limit: float) -> bool:
        """Whether a gradient in this window, or before, was no more than rounding of the largest one."""
        return any(window._size(place) <= limit * window._largest for window in self.until())

    def _size(self, place: int) -> float:
        sizes = [float(np.linalg.norm(its[place])) for its in self._sketches("G") if place in its]
        return max(sizes, default=math.inf)

    @cached_property
    def _largest(self) -> float:
        places = {place for its in self._sketches("G") for place in its}
        return max((size for size in map(self._size, places) if math.isfinite(size)), default=0.0)

    def _sketches(self, moment: At) -> list[dict[int, Numbers]]:
        """By rank and place, the sketch of what a rank holds of it."""
        if moment not in self._known:
            self._known[moment] = [self._of_rank(holder, moment) for holder in range(len(self.steps))]
        return self._known[moment]

    def _of_rank(self, holder: int, moment: At) -> dict[int, Numbers]:
        step, order = self.steps[holder], self.optimizer.orders[holder]
        window = moments.window(self.optimizer.ranks[holder], step.optimizer, step.number)
        if window is None:
            return {}
        values = {"W": window.before, "G": window.gradients, "U": window.after}[moment]
        places = {own: place for place, own in enumerate(order)} if order is not None else None
        found: dict[int, Numbers] = {}
        missing = set()
        for piece, own in window.places.items():
            place = own if places is None else places.get(own, -1)
            if piece in values:
                found[place] = found[place] + values[piece].sketch if place in found else values[piece].sketch
            else:
                missing.add(place)
        return {place: sketch for place, sketch in found.items() if place not in missing}


def windows(optimizer: Aligned, steps: Iterator[tuple[int, list[ev.Step]]]) -> list[Window]:
    """The windows of these steps, each with the one before."""
    found: list[Window] = []
    for number, each in steps:
        found.append(Window(optimizer, number, each, found[-1] if found else None))
    return found


def groups_of(optimizer: Aligned, places: Collection[int]) -> list[tuple[int, ...]]:
    """The parameter groups that these places are in, rank by rank; ranks may divide their parameters differently."""
    ends = [list(accumulate(described.groups)) for described in optimizer.described]
    if not all(ends):
        most = max((len(step.rates) for steps in optimizer.steps for step in steps.values()), default=0)
        return [(group,) * len(ends) for group in range(most)]
    own = [[place if order is None else order[place] for order in optimizer.orders] for place in places]
    return sorted({tuple(map(bisect_right, ends, each)) for each in own})


def _rate(rates: Sequence[float], group: int) -> float | None:
    rate = rates[group] if group < len(rates) else None
    return _number(rate)


def _number(asked: float | None) -> float | None:
    """As it is compared: a NaN is equal to a NaN, and what was not asked for is None."""
    if asked is None or asked == ev.UNREAD:
        return None
    return math.nan if math.isnan(asked) else asked


def with_finite_gradients(optimizer: Aligned, found: Sequence[Window]) -> list[Window]:
    """The windows whose gradients are finite, as far as they were looked at."""
    looks = [_looks(rank, of.optimizer) for rank, of in zip(optimizer.ranks, optimizer.described, strict=True)]
    return [one for one in found if all(map(_is_finite, looks, one.steps))]


def _looks(rank: Rank, optimizer: int) -> list[tuple[int, bool]]:
    """The steps of which gradients were looked at, and whether all of these are finite."""
    return [
        (one.number, all(np.isfinite(value.sketch).all() for value in one.gradients.values()))
        for one in moments.windows(rank).get(optimizer, [])
    ]


def _is_finite(looks: Sequence[tuple[int, bool]], step: ev.Step) -> bool:
    place = bisect_right(looks, (step.number, True))
    return not place or looks[place - 1][1]
