"""The loss of every backward(), as far as it is one number, and whether what is stepped on a NaN stays finite.

On a device its value is copied where it is, and sent with others: nobody waits for it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from msgspec.structs import replace

from ddpcheck.evidence import Losses, NotFinite, Origin
from ddpcheck.probes.devices.device_events import stream_of
from ddpcheck.probes.devices.device_numbers import together
from ddpcheck.probes.layouts import models
from ddpcheck.probes.moments import forward_values, windows
from ddpcheck.probes.moments.forward_values import Forwards, Named, Number
from ddpcheck.probes.optimizers import gradient_events
from ddpcheck.probes.processes import endings, later_records
from ddpcheck.probes.recording import recorder, user_lines

EACH = 64
"""Losses that are written down together at least, as long as all are finite."""

OFTEN = 16
"""And no more often than this part of all so far."""

UNSTEPPED = 1024
"""Losses that wait for a step."""

TOLD = 2
"""Losses, NaN or infinite one after another, of which each is written down as soon as it is known."""

MOST_LINES = 64

ALWAYS = 8
"""Steps after a loss that is not finite at which what they have made is looked at; and then at powers of two."""

NO_STEP = -1
"""In the place of an optimizer where the program makes its steps without one."""

LOOK = -1
"""In the place of a line, of a look at the parameters that a step has made."""


class _Loss:
    """One that is not on record yet; or a look at the parameters of an optimizer."""

    def __init__(self, value: Number, forwards: Forwards | None = None, site: int = LOOK) -> None:
        self.value, self.site, self.backward = value, site, windows.backwards()
        self.stream = stream_of(value)
        self.forwards = forwards if forwards is not None and forwards.streams <= {self.stream} else None
        self.is_bad = isinstance(value, float) and not math.isfinite(value)
        self.step: tuple[int, int] | None = None
        """The optimizer, and its step that was made next."""
        self.kept: bool | None = None
        self.left_by: set[int] = set()
        """Optimizers whose parameters are finite after a step."""


class _Entry(NamedTuple):
    """What is kept of a loss while its value is on its way."""

    site: int
    backward: int
    step: tuple[int, int] | None
    kept: bool | None
    forwards: Forwards | None
    numbers: slice
    """Where those of its forwards lie."""


class _Seen:
    """What is known of the losses of one process.

    What waits for a device is made known by whichever thread finds it there: dictionaries are copied to go through.
    """

    def __init__(self, writer: recorder.Recorder | None) -> None:
        self.writer = writer
        self.pending: list[_Loss] = []
        """Those on which no step has been made."""
        self.waiting: list[_Loss] = []
        self.met = 0
        self.on_device = False
        """Some are known later."""
        self.on_record = 0
        """Of those that were met, how many are on record."""
        self.stepping: tuple[int, int, Sequence[torch.Tensor]] | None = None
        self.steps = 0
        self.looks: Counter[int] = Counter()
        """By optimizer, the steps since a loss was not finite."""
        self.answers: dict[int, bool | None] = {}
        self.unlike: dict[tuple[int, int], NotFinite] = {}
        """By line and optimizer."""
        self.last_finite = 0
        self.usual: set[tuple[Named, str]] | None = None
        """What is not finite in a forward although the loss is; None while no such loss is known."""

    def note(self, writer: recorder.Recorder, loss: torch.Tensor, forwards: Forwards | None) -> None:
        """Take a loss's value, where that needs no wait."""
        (value,) = forward_values.numbers_of([loss]) or (None,)
        if value is not None:
            self.on_device |= not isinstance(value, float)
            self.pending.append(_Loss(value, forwards, gradient_events.Running.site))
            if len(self.pending) >= UNSTEPPED:
                self.waiting, self.pending = self.waiting + self.pending, []
                self.write(writer)

    def stepped(self, writer: recorder.Recorder) -> None:
        """A step is made on what the losses since the last one have contributed, or by a closure with its own."""
        self.steps += 1
        bad, stepping = [one for one in self.pending if one.is_bad], self.stepping
        self.stepping = None
        each: Iterable[tuple[int, int, Sequence[torch.Tensor]]] = [stepping] if stepping is not None else []
        if stepping is None and bad:
            each = [(number, self.steps - 1, its) for number, its in gradient_events.optimizers(lambda _: True)]
        fine = [one for one in self.pending if not one.is_bad]
        for one in fine:
            one.step = stepping[:2] if stepping is not None else None
        self.waiting += fine
        self.pending = bad
        for optimizer, number, parameters in each:
            self._ask(optimizer, number, parameters)
        if stepping is None:
            self.waiting, self.pending = self.waiting + self.pending, []
        if len(self.waiting) >= max(EACH, self.met // OFTEN) or any(map(self._is_news, bad)):
            self.write(writer)

    def _ask(self, optimizer: int, number: int, parameters: Sequence[torch.Tensor]) -> None:
        """Whether a step on losses that are not finite, or any after it, has left parameters that are."""
        bad, is_known = self.pending, any(key[1] == optimizer for key in list(self.unlike))
        if not bad and not is_known:
            self.looks.pop(optimizer, None)
            return
        self.looks[optimizer] = turn = self.looks[optimizer] + 1
        if turn <= ALWAYS or turn & (turn - 1) == 0:
            self.answers[optimizer] = self._look(optimizer, number, parameters)
        is_finite = self.answers.get(optimizer)
        if is_finite is False or (is_finite is None and bad):
            for one in bad:
                one.step, one.kept = (optimizer, number), None if is_finite is None else True
            self.waiting, self.pending = self.waiting + bad, []
        elif is_finite:
            self._is_well(optimizer, number)
            self.waiting += [one for one in bad if optimizer in one.left_by]
            self.pending = [one for one in bad if optimizer not in one.left_by]
            for one in self.pending:
                one.left_by.add(optimizer)

    def _look(self, optimizer: int, number: int, parameters: Sequence[torch.Tensor]) -> bool | None:
        """Whether they are finite; None where that is not known, or not yet, as a device is computing it."""
        numbers = forward_values.numbers_of(parameters)
        here = [one for one in numbers if isinstance(one, float)]
        there = [one for one in numbers if isinstance(one, torch.Tensor)]
        if not there or not all(map(math.isfinite, here)):
            return all(map(math.isfinite, here)) if here else None
        if len({one.device for one in there}) == 1:  # those of several devices would have to wait for each other
            with recorder.silence(), torch.no_grad():
                look = _Loss(torch.linalg.vector_norm(torch.stack(there), math.inf))
            look.step = optimizer, number
            self.waiting.append(look)
        return None

    def _is_well(self, optimizer: int, number: int) -> None:
        """An optimizer's parameters are finite after this step: what came before has done no harm that lasts."""
        for key, before in list(self.unlike.items()):
            if key[1] == optimizer and before.number <= number:
                self.unlike.pop(key, None)

    def _is_news(self, loss: _Loss) -> bool:
        """Whether a loss of the host's is not finite, and not long known for that."""
        before = None if loss.step is None else self.unlike.get((user_lines.line_alone(loss.site), loss.step[0]))
        return loss.is_bad and (before.times if before is not None else 0) < TOLD

    def end(self, writer: recorder.Recorder) -> None:
        """The process ends: what is still there is looked at for the last time."""
        wanted = {key[1] for key in list(self.unlike)}
        for number, parameters in gradient_events.optimizers(lambda one: self.on_device or one in wanted):
            if self._look(number, self.steps, parameters):
                self._is_well(number, self.steps)
        if not self.steps and any(one.is_bad for one in self.pending):
            numbers = [one for _, model in models.alive() for one in forward_values.numbers_of(model.parameters())]
            is_lost = any(isinstance(one, float) and not math.isfinite(one) for one in numbers)
            for one in self.pending if is_lost or not numbers else ():
                one.step, one.kept = (NO_STEP, one.backward - 1), is_lost or None
        self.waiting, self.pending = self.waiting + self.pending, []
        self.write(writer)

    def write(self, writer: recorder.Recorder) -> None:
        """Write down what was noted until now, once it is there."""
        # What another stream is computing may not be there when this one comes to it.
        known = [one for one in self.waiting if one.stream == stream_of(one.value)]
        values: list[Number] = [one.value for one in known]
        steps = []
        for one in known:
            own = one.forwards.numbers if one.forwards is not None else []
            numbers = slice(len(values), len(values) + len(own))
            steps.append(_Entry(one.site, one.backward, one.step, one.kept, one.forwards, numbers))
            values += own
        record = partial(self._made, partial(Losses, **writer.next(), met=self.met - self.on_record), steps)
        self.waiting, self.on_record = [], self.met
        later_records.write(writer, record, values=together(values))

    def _made(self, record: Any, steps: Sequence[_Entry], values: Sequence[float | None]) -> Losses:
        finite = lost = 0
        for one, value in zip(steps, values, strict=False):
            if value is None:
                continue
            is_finite = math.isfinite(value)
            if one.site == LOOK:
                self._answer(one.step, is_finite)
                continue
            finite, lost = finite + is_finite, lost + (not is_finite)
            if is_finite:
                self.last_finite = max(self.last_finite, one.backward)
                self._forget(one)
                if one.forwards is not None:
                    self.usual = (self.usual or set()) | one.forwards.unlike(values[one.numbers])
            elif one.step is not None:
                self._add(one, value, values[one.numbers], *one.step)
        made: Losses = record(finite=finite, lost=lost, last_finite=self.last_finite, unlike=list(self.unlike.values()))
        return made

    def _answer(self, step: tuple[int, int] | None, is_finite: bool) -> None:
        """A device has said how an optimizer's parameters were after a step."""
        if step is None:
            return
        if is_finite:
            self._is_well(*step)
            return
        for key, before in list(self.unlike.items()):
            if key[1] == step[0] and before.number <= step[1]:
                self.unlike[key] = replace(before, kept=True)

    def _forget(self, one: _Entry) -> None:
        """A loss is finite: it speaks for steps before it whose parameters were not looked at."""
        if one.step is not None:
            key = user_lines.line_alone(one.site), one.step[0]
            before = self.unlike.get(key)
            if before is not None and before.kept is None and one.step[1] > before.number:
                self.unlike.pop(key, None)

    def _add(self, one: _Entry, value: float, values: Sequence[float | None], optimizer: int, number: int) -> None:
        key = user_lines.line_alone(one.site), optimizer
        before = self.unlike.get(key)
        if before is not None:
            self.unlike[key] = replace(before, times=before.times + 1, kept=before.kept or one.kept)
        elif len(self.unlike) < MOST_LINES:
            is_nan = math.isnan(value)
            origin: Origin = "unseen"
            module = forward_values.NOT_NAMED
            if one.forwards is not None:
                origin, module = one.forwards.origin(values, is_nan, self.usual)
            self.unlike[key] = NotFinite(
                site=one.site,
                backward=one.backward,
                is_nan=is_nan,
                origin=origin,
                module=module.path,
                kind=module.kind,
                given_infinite=module.given_infinite,
                optimizer=optimizer,
                number=number,
                times=1,
                kept=one.kept,
            )


_seen = _Seen(None)


def watch() -> None:
    """See losses from now on."""
    gradient_events.BACKWARD_BEGINS.also(_begins)
    gradient_events.STEP.also(_steps)
    gradient_events.STEPPED.also(_stepped)
    endings.before_end(_end)


def _of(writer: recorder.Recorder) -> _Seen:
    global _seen
    if _seen.writer is not writer:
        _seen = _Seen(writer)
    return _seen


def _begins(given: Any) -> None:
    writer = recorder.current()
    forwards = forward_values.taken()
    if writer is None or not isinstance(given, (torch.Tensor, list, tuple)):  # an iterator is used up by a look
        return
    seen = _of(writer)
    for loss in (given,) if isinstance(given, torch.Tensor) else given:
        if isinstance(loss, torch.Tensor):
            seen.met += 1
            if loss.numel() == 1:
                seen.note(writer, loss, forwards)


def _steps(writer: recorder.Recorder, optimizer: int, number: int, parameters: Sequence[torch.Tensor], _: int) -> None:
    if _seen.writer is writer:
        _seen.stepping = optimizer, number, parameters


def _stepped() -> None:
    writer = recorder.current()
    if writer is not None and _seen.writer is writer:
        _seen.stepped(writer)


def _end() -> None:
    writer = recorder.always()
    if writer is not None and _seen.writer is writer and _seen.met:
        _seen.end(writer)
