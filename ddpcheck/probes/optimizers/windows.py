"""What becomes of gradients between the backward() calls that go into one step: they are to be added to, and no more.

A few elements of each gradient are read when a backward() ends, and when the
next one begins. That takes a microsecond or two for each, and is done at the
first steps of an optimizer, and now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import torch

from ddpcheck.evidence import NO_SITE, Became, Between, Window
from ddpcheck.probes.collectives.exchange import Exchange
from ddpcheck.probes.digests import readable_memory
from ddpcheck.probes.layouts import models
from ddpcheck.probes.layouts.parallelised import Built
from ddpcheck.probes.optimizers import few_elements, fsdp_syncs, gradient_events
from ddpcheck.probes.optimizers.few_elements import Sample
from ddpcheck.probes.recording import recorder
from ddpcheck.probes.recording.pace import is_due

MOST = 16
"""What became of gradients, that is written down of one window."""
MOST_RESULTS = 64

SCATTERS = ("reduce_scatter", "reduce_scatter_tensor")
"""Reductions that give a rank its part."""

ALIKE = 1e-3
FINITE = 1e300


class _Scaled(NamedTuple):
    """Gradients that were multiplied between two backward() calls: whether more is added to them was not seen yet."""

    which: int
    """Of what became of gradients in their window."""
    now: dict[int, Sample]
    """By place, what they are since then."""


class _Open:
    """The window of an optimizer that has not come to its step."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.backwards = 0
        self.lost = False
        """Some backward() of it was not looked at."""
        self.left: list[Sample | None] = []
        """Of each gradient, as the last backward() has left it."""
        self.before: list[Sample | None] = []
        """The same when that one began."""
        self.stepped: list[Sample | None] = []
        """As the step before was made on them, until the first backward() begins."""
        self.leftover = self.grown = False
        """That has found them so; and some backward() has left others than were there when it began."""
        self.parameters: Sample | None = None
        """A few elements of these, when the last backward() had ended."""
        self.built = 0
        self.site = NO_SITE
        self.between: list[Between] = []
        self.scaled: list[_Scaled] = []
        self.zeroed = False
        self.synced = False
        self.told_not_to = False
        self.overwritten = False


_open: dict[int, _Open] = {}
_reduced: dict[int, Sample] = {}
"""By their sizes, what reductions have given last."""


class Clipped:
    """The last clip by torch's own function since a backward() has ended."""

    site = NO_SITE


def watch() -> None:
    """Follow gradients from backward to backward from now on."""
    gradient_events.records_where(_is_recorded)
    gradient_events.BACKWARD_BEGINS.also(_begins)
    gradient_events.BACKWARD_ENDS.also(_ends)
    gradient_events.CLIPPED.also(_clipped)
    gradient_events.COLLECTIVE.also(_reduces, SCATTERS)
    gradient_events.STEP.also(_entered)
    gradient_events.ZEROED.also(_zeroed)


def _clipped(site: int) -> None:
    Clipped.site = site


def _zeroed() -> None:
    for window in _open.values():
        window.zeroed = True


def _reduces(exchange: Exchange, _: Any) -> Callable[[], None] | None:
    """A reduction of the program's own begins; what to do when it is over."""
    if not exchange.waits or gradient_events.is_quiet() or not any(map(_is_wanted, list(_open))):
        return None
    output = exchange.received[0]

    def is_over() -> None:
        read = _read(output)
        if read is not None and (len(_reduced) < MOST_RESULTS or output.numel() in _reduced):
            _reduced[output.numel()] = read

    return is_over


# --- backward


def _due() -> list[tuple[int, _Open, list[torch.Tensor]]]:
    """The optimizers at whose next steps there will be a look."""
    if gradient_events.is_quiet():
        return []
    return [(number, _open[number], parameters) for number, parameters in gradient_events.trained_here(_is_wanted)]


def _is_recorded(optimizer: int) -> bool:
    """The same as `_is_wanted`, without its side effects; also true where the looks have become too costly."""
    window = _open.get(optimizer)
    return is_due(window.steps if window is not None else 0)


def _is_wanted(optimizer: int) -> bool:
    window = _open.get(optimizer)
    if window is None:
        gradient_events.forget_gone(_open)
        window = _open[optimizer] = _Open(0)
    window.lost = window.lost or gradient_events.is_too_costly(optimizer)
    return is_due(window.steps) and not window.lost


def _begins(_: Any) -> None:
    site = gradient_events.Running.site
    for _, window, parameters in _due():
        window.backwards += 1
        now = [_read(p.grad) for p in parameters]
        if window.left and len(window.left) == len(now):
            _compare(window, parameters, now, site)
        if window.backwards == 1:
            told = [(one, left) for one, left in zip(now, window.stepped, strict=False) if _tells(left)]
            window.leftover = bool(told) and all(one == left for one, left in told)
            window.stepped = []
        window.before, window.site, window.zeroed = now, site, False
        window.left = []
    Clipped.site = NO_SITE


def _ends() -> None:
    Clipped.site = NO_SITE
    for _, window, parameters in _due():
        window.left = [_read(p.grad) for p in parameters]
        window.scaled = [one for one in window.scaled if not _is_added_to(one, window.left)]
        window.grown |= window.left != window.before
        window.parameters, window.built = _sample(parameters), Built.count
        unsynced = fsdp_syncs.is_off_for(parameters)
        window.told_not_to |= unsynced
        window.synced |= not unsynced


def _compare(window: _Open, parameters: Sequence[torch.Tensor], now: list[Sample | None], site: int) -> None:
    """Say what became of the gradients that the last backward() has left."""
    seen = [place for place, left in enumerate(window.left) if _tells(left)]
    if not seen or len(window.between) >= MOST:
        return
    became: dict[Became, int] = {}
    factors = []
    scaled: dict[int, Sample] = {}
    for place in seen:
        left, it = window.left[place], now[place]
        assert left is not None
        word, factor = _became(left, it, parameters[place], window.zeroed)
        became.setdefault(word, place)
        if word == "rescaled":
            factors.append(factor)
            scaled[place] = it or ()
    gone = became.get("lost", became.get("zeroed"))
    if gone is not None and len(became) > 1:  # some are there: as the others of a window that is not over
        word, place = "other", gone
    else:
        order: tuple[Became, ...] = ("overwritten", "rescaled", "lost", "zeroed", "other", "kept")
        word = next(one for one in order if one in became)
        place = became[word]
    if word == "rescaled" and max(factors) > min(factors) * (1 + ALIKE):
        word = "other"
    if word != "kept" and _sample(parameters) != window.parameters:
        word = "other"  # gradients have served a purpose: somebody has moved the parameters by them
    window.overwritten |= word == "overwritten"
    if word == "rescaled":
        window.scaled.append(_Scaled(len(window.between), scaled))
    window.between.append(
        Between(
            became=word,
            after=window.site,
            before=site,
            factor=factors[0] if word == "rescaled" else 1.0,
            place=place,
            clip=Clipped.site,
            prepared=Built.count > window.built,
        )
    )


def _is_added_to(scaled: _Scaled, left: list[Sample | None]) -> bool:
    """Whether a backward() has left another gradient than was there when it began."""
    return any(place < len(left) and left[place] != sample for place, sample in scaled.now.items())


def _told(window: _Open) -> list[Between]:
    """What became of gradients in a window that is over.

    What was multiplied when nothing came any more was no micro-batch among others: a rank with several stages
    divides those of each when that one is done.
    """
    done = {one.which for one in window.scaled}
    return [
        msgspec.structs.replace(one, became="other", factor=1.0) if place in done else one
        for place, one in enumerate(window.between)
    ]


def _is_left_over(window: _Open) -> bool:
    """Whether what the step before was made on is still in the gradients of this one."""
    done = {one.which for one in window.scaled}
    kept = [one.became == "kept" or place in done for place, one in enumerate(window.between)]
    return window.leftover and window.grown and len(kept) == window.backwards - 1 and all(kept)


def _became(left: Sample, now: Sample | None, parameter: torch.Tensor, zeroed: bool) -> tuple[Became, float]:
    if now is None:
        gradient = parameter.grad
        return (("zeroed" if zeroed else "lost") if gradient is None else "other"), 1.0
    if now == left:
        return "kept", 1.0
    if not any(now):
        return ("zeroed" if zeroed else "lost"), 1.0
    if few_elements.is_multiple(now, left):
        largest = max(range(len(left)), key=lambda place: abs(left[place]))
        factor = now[largest] / left[largest]
        return ("rescaled", factor) if abs(factor - 1) > ALIKE else ("kept", 1.0)
    given = _reduced.get(parameter.numel())
    if given is not None and few_elements.is_multiple(now, given) and not _models_have_gradients():
        return "overwritten", 1.0
    return "other", 1.0


def _models_have_gradients() -> bool:
    """Whether what is reduced may hold all that came before: models keep their gradients from backward to backward."""
    return any(p.grad is not None and any(_read(p.grad) or (1.0,)) for p in models.parameters())


def _tells(sample: Sample | None) -> bool:
    """Whether a gradient can be told from another one by it."""
    return sample is not None and sum(map(bool, sample)) >= few_elements.ENOUGH and all(abs(v) < FINITE for v in sample)


def _read(tensor: torch.Tensor | None) -> Sample | None:
    """A few elements in the middle; None where there is none, or none that can be read."""
    own = readable_memory.own_part(tensor) if tensor is not None else None
    return few_elements.sample([own]) if own is not None and own.dtype.is_floating_point else None


# --- the step


def _entered(
    writer: recorder.Recorder, optimizer: int, number: int, parameters: Sequence[torch.Tensor], site: int
) -> None:
    """A step begins: the window before it is over."""
    window = _open.get(optimizer)
    _open[optimizer] = following = _Open(number + 1)
    if is_due(number + 1):
        following.stepped = [_read(p.grad) for p in parameters]
    within = gradient_events.is_within_backward()
    if window is None or window.lost or not is_due(number) or number % writer.stride(Window) or not window.backwards:
        return
    writer.write(
        Window(
            **writer.next(),
            optimizer=optimizer,
            number=number,
            site=site,
            backwards=window.backwards,
            backward_site=window.site,
            between=_told(window),
            alone=window.overwritten and _are_multiples(parameters, [_reduced.get(p.numel()) for p in parameters]),
            leftover=_is_left_over(window),
            unreduced=window.told_not_to and not window.synced and not within,
        )
    )


def _are_multiples(parameters: Sequence[torch.Tensor], others: Sequence[Sample | None]) -> bool:
    """Whether each gradient is one of these, but for a factor, as far as they can be told apart."""
    if len(others) != len(parameters):
        return False
    pairs = [(_read(p.grad), other) for p, other in zip(parameters, others, strict=True)]
    told = [(one, other) for one, other in pairs if one is not None and other is not None and _tells(other)]
    return bool(told) and all(few_elements.is_multiple(one, other) for one, other in told)


def _sample(parameters: Sequence[torch.Tensor]) -> Sample | None:
    return few_elements.sample([readable_memory.own_part(p) for p in parameters])
