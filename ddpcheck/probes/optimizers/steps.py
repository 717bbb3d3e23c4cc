"""Every optimizer step: the gradients on entry, parameters and state on exit, learning rates and scale."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch.optim import optimizer as home
from torch.utils.weak import WeakIdKeyDictionary

from ddpcheck.evidence import NO_SITE, Step, Usage
from ddpcheck.probes.collectives import every_call
from ddpcheck.probes.ddp import after_backward
from ddpcheck.probes.ddp.after_backward import AfterBackward
from ddpcheck.probes.ddp.wrapper_usage import REGION, Wrapper
from ddpcheck.probes.ddp.wrappers import BACKWARDS, note_attributes, note_buffers
from ddpcheck.probes.digests import fast_digests
from ddpcheck.probes.files import small_files
from ddpcheck.probes.layouts import declared, model_buffers
from ddpcheck.probes.optimizers import after_exchanges, description, gradient_events, program_reductions, schedulers
from ddpcheck.probes.optimizers.optimizer_state import note_wholes, plain_number, scale_of, state_of
from ddpcheck.probes.processes import later_records, span_log
from ddpcheck.probes.recording import recorder, user_lines
from ddpcheck.probes.recording.pace import Pace, is_due
from ddpcheck.probes.recording.patching import around, shielded
from ddpcheck.probes.recording.tensor_references import Reference, reference
from ddpcheck.vocabulary.clock import clock

ATTRIBUTES_AT = (0, 2)
"""Steps at which the modules' plain attributes are written down: what changes between them is a rank's own log."""


class Watched:
    """One optimizer, from step to step."""

    def __init__(self, number: int, site: int) -> None:
        self.number = number
        self.site = site
        self.steps = 0
        self.stepped_at = 0
        """How many steps of all optimizers there had been when it made its last one."""
        self._parameters: list[Reference] = []
        """As they were described last. What an optimizer lets go of is gone: it may be most of the memory there is."""
        self._ids: list[int] = []
        self._as_of = 0
        """The value of `_gone` when the ids were taken: since then, a new parameter may have the id of an old one."""
        self.unseen: set[int] = set()
        """The places of those that are not looked at."""
        self.parts: list[int] = []
        """The places of DTensors, of which this rank has a part or a copy."""
        self.wrappers: list[Wrapper] = []
        self.before: dict[int, dict[str, int]] = {}
        """The counts of each wrapper at the last step."""
        self.pace, self.whole_pace = Pace(), Pace(careful=True)
        self.scaler: weakref.ref[Any] | None = None
        self.entry: _Entry | None = None
        self.began = 0.0
        """When the optimizer itself was let begin."""
        self.collectives = 0
        self.region = 0
        self.region_start = 0
        """The step with which the region began."""
        self.inner = False
        self.window = program_reductions.Window()
        self.exchanges = after_exchanges.Looks()

    def parameters(self) -> list[torch.Tensor]:
        """Those of the last step, as far as they are there."""
        return [p for ref in self._parameters if (p := ref()) is not None]

    def parameters_of(self, optimizer: Any) -> list[torch.Tensor]:
        """The parameters of the last step, taken from the optimizer where it still has the same ones."""
        now = _parameters(optimizer)
        return now if self._are_known(now) else self.parameters()

    def changes(self, parameters: Sequence[torch.Tensor]) -> bool:
        """Take these up; whether they are others than before."""
        if self._are_known(parameters):
            return False
        self._parameters = [reference(p) for p in parameters]
        self._ids, self._as_of = list(map(id, parameters)), _gone
        for p in parameters:
            if id(p) not in _stepped:
                _stepped.add(id(p))
                reference(p).when_gone(partial(_drop_parameter, id(p)))
        return True

    def _are_known(self, parameters: Sequence[torch.Tensor]) -> bool:
        if list(map(id, parameters)) != self._ids:
            return False
        if self._as_of != _gone:
            if not all(ref() is p for ref, p in zip(self._parameters, parameters, strict=True)):
                return False
            self._as_of = _gone
        return True

    def is_whole(self, parameters: Sequence[torch.Tensor]) -> bool:
        """Whether none of them has gone."""
        return len(parameters) == len(self._parameters)


class _Entry(NamedTuple):
    """What was seen on entry to a step."""

    gradients: Any
    """Their digests, of which devices may be computing some; empty where this step is not looked at."""
    whole: bool
    usage: list[Usage]
    after: list[AfterBackward | None]
    """The gradients that each wrapper's last backward() has left."""
    took: float
    site: int


_watched: MutableMapping[Any, Watched] = WeakIdKeyDictionary()
"""By identity: an optimizer may have an equality of its own, and no hash."""
_stepped: set[int] = set()
"""By id: every parameter that an optimizer has stepped, also one whose optimizer is gone."""
_gone = 0
"""The number of stepped parameters that have been deleted."""
_made = 0
_steps = 0


class _Pretended(threading.local):
    """Whether the step that is under way in a thread is none of the program's: another one may train meanwhile."""

    now = False


_pretended = _Pretended()


def _drop_parameter(parameter: int) -> None:
    global _gone
    _stepped.discard(parameter)
    _gone += 1


def _parameters(optimizer: Any) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def optimizers() -> list[Any]:
    """All that there are now."""
    return list(_watched)


def made() -> int:
    """How many there have been: each has the number of those before it."""
    return _made


def watched(optimizer: Any) -> Watched | None:
    """What is known of an optimizer."""
    return _watched.get(optimizer)


_step: CodeType | None = None
"""The function of torch's that stands around every step, and calls the hooks."""
_HOOKED = 3
"""Frames between a hook of ours and the step that torch calls it from."""


def is_within_step(frame: FrameType | None) -> bool:
    """Whether a step is under way around this frame: what an optimizer steps in turn is its own.

    The stack itself is asked. A frame that is kept from the beginning of a step to its end would keep all that there
    is in it alive where the step fails.
    """
    while frame is not None:
        if frame.f_code is _step:
            return True
        frame = frame.f_back
    return False


@contextmanager
def not_of_the_training() -> Iterator[None]:
    """Steps that torch makes for a state dict's sake, of zeros: nothing was learnt, and nothing is due."""
    _pretended.now = True
    try:
        yield
    finally:
        _pretended.now = False


def watch() -> None:
    """Watch every optimizer, scheduler and scaler from now on."""
    around(torch.optim.Optimizer, "__init__", _around_init)
    for name, hook in (("pre", _before), ("post", _after)):
        register = getattr(home, f"register_optimizer_step_{name}_hook", None)
        if register is not None:
            register(shielded(hook))
    schedulers.watch(steps_of)
    scaler = getattr(torch.amp, "GradScaler", None)
    if scaler is not None:
        around(scaler, "step", _around_scaler_step)


def _around_init(original: Any) -> Any:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if recorder.current() is not None and not is_within_step(sys._getframe(1)):
            _take_up(self, user_lines.here())
        original(self, *args, **kwargs)

    return __init__


def _take_up(optimizer: Any, site: int) -> Watched:
    global _made
    known = _watched.get(optimizer)
    if known is None:
        known = _watched[optimizer] = Watched(_made, site)
        gradient_events.follow(optimizer, _made)
        _made += 1
    return known


def steps_of(optimizer: Any) -> int:
    """Steps of one optimizer so far."""
    known = _watched.get(optimizer) if optimizer is not None else None
    return known.steps if known is not None else 0


# --- on entry


def are_stepped(parameters: Iterable[torch.Tensor]) -> bool:
    """Whether some optimizer updates any of these."""
    updated = {id(one) for it in _watched.values() for one in it.parameters()}
    return any(id(parameter) in updated for parameter in parameters)


def have_been_stepped(parameters: Iterable[torch.Tensor]) -> bool:
    """Whether an optimizer has stepped any of these, be it gone or not."""
    return any(id(one) in _stepped for one in parameters)


def of_parameters(parameters: Iterable[torch.Tensor]) -> list[tuple[Any, Watched]]:
    """The optimizers that have stepped any of these, for each of them the one that did so last."""
    wanted = {id(parameter) for parameter in parameters}
    last: dict[int, tuple[Any, Watched]] = {}
    for one, it in sorted(_watched.items(), key=lambda known: known[1].stepped_at):
        last.update({id(p): (one, it) for p in it.parameters() if id(p) in wanted})
    return list({it.number: (one, it) for one, it in last.values()}.values())


def steps_so_far() -> int:
    """Steps of all optimizers of this process."""
    return _steps


def _before(optimizer: Any, args: Any, kwargs: Any) -> None:
    global _step
    writer = recorder.current()
    if writer is None or _pretended.now:
        return
    step = sys._getframe(_HOOKED)
    _step = step.f_code
    if is_within_step(step.f_back):
        return
    del step
    it = _take_up(optimizer, NO_SITE)
    it.entry = None
    began = clock.fine()
    site = user_lines.here()
    parameters = _parameters(optimizer)
    if it.changes(parameters):
        it.window.begin_again()
        with recorder.silence():
            description.write(writer, optimizer, it, parameters, site, list(_watched))
    if it.steps in ATTRIBUTES_AT:
        for wrapper in it.wrappers:
            note_attributes(writer, wrapper, site)
    usage = [wrapper.since(it.before.get(wrapper.number, {})) for wrapper in it.wrappers]
    after = [wrapper.after for wrapper in it.wrappers]
    gradients: Any = b""
    whole = False
    closure = bool(args and len(args) > 1 and args[1] is not None) or kwargs.get("closure") is not None
    stride = writer.stride(Step)
    if not closure and it.steps % stride == 0 and (it.pace.is_due(it.steps) or it.whole_pace.is_due(it.steps)):
        whole = it.whole_pace.is_due(it.steps)
        with recorder.silence():
            but = it.unseen | declared.with_pending_sums(parameters, it.parts)
            gradients = fast_digests.queued([p.grad for p in parameters], None if whole else it.steps, but)
    with recorder.silence():
        it.exchanges.entered(writer, it.window, it.number, it.steps, parameters, it.unseen)
    it.window.entered(parameters)
    if not closure:
        gradient_events.STEP.tell(writer, it.number, it.steps, parameters, site)
    small_files.look()
    it.entry = _Entry(gradients, whole, usage, after, clock.fine() - began, site)
    it.began = clock.now()


# --- on exit


def _after(optimizer: Any, args: Any, kwargs: Any) -> None:
    global _steps
    if _pretended.now or is_within_step(sys._getframe(_HOOKED).f_back):
        return
    gradient_events.step_is_over()
    writer = recorder.current()
    it = _watched.get(optimizer)
    if writer is None or it is None or it.entry is None:
        return
    entry = it.entry
    span_log.add(span_log.STEP, it.began, clock.now(), entry.site, it.steps)
    _steps += 1
    it.stepped_at = _steps
    began = clock.fine()
    number, it.steps, it.entry = it.steps, it.steps + 1, None
    if it.region != REGION.number:
        it.region, it.region_start = REGION.number, number
    held = it.parameters_of(optimizer)
    looked = bool(entry.gradients) and it.is_whole(held)
    issued = every_call.issued()
    parameters: Any = b""
    state: Any = {}
    if looked:
        with recorder.silence():
            parameters = fast_digests.queued(held, None if entry.whole else number, it.unseen)
            state = state_of(optimizer, held, it.unseen) if entry.whole else {}
    if it.parts and number == 0 and it.is_whole(held):
        note_wholes(writer, optimizer, it.number, held, it.parts, entry.site)
    it.window.left(writer, it.number, number, held)
    program_reductions.forget(lambda: [one.window for one in _watched.values()])
    if looked or _telling(entry.usage, it) or number % writer.stride(Step) == 0:
        record = partial(
            Step,
            **writer.next(),
            optimizer=it.number,
            number=number,
            site=entry.site,
            whole=entry.whole,
            backwards=BACKWARDS.count,
            backward_site=BACKWARDS.site,
            collectives=issued - it.collectives,
            region=it.region,
            place=number - it.region_start,
        )
        later_records.write(
            writer,
            record,
            gradients=entry.gradients,
            parameters=parameters,
            state=state,
            rates=[plain_number(group.get("lr", 0.0), looked) for group in optimizer.param_groups],
            scale=scale_of(it.scaler, looked),
            usage=[after_backward.with_gradients(*each) for each in zip(entry.usage, entry.after, strict=True)],
        )
    it.collectives = issued
    for wrapper in it.wrappers:
        it.before[wrapper.number] = dict(wrapper.counts)
        wrapper.stepped()
        if looked:
            note_buffers(writer, wrapper, "step")
    model_buffers.note(writer, it.number, number, entry.site)
    BACKWARDS.count = 0
    cost = entry.took + clock.fine() - began
    if entry.whole or looked:
        after = [one for one in entry.after if one is not None]
        looks = [entry.gradients, parameters, *state.values(), *(one.digests for one in after)]
        on_devices = [look.device_seconds for look in looks if isinstance(look, fast_digests.Queued)]
        cost += sum(one.took for one in after)
        (it.whole_pace if entry.whole else it.pace).spent(cost, number, on_devices)
    BACKWARDS.look = it.whole_pace.is_due(it.steps)


def _telling(usage: list[Usage], it: Watched) -> bool:
    """A step that says something without digests: nothing was armed, or more than once."""
    return any(u.armed != 1 or u.reached != 1 for u in usage) and is_due(it.steps)


# --- the scaler


def _around_scaler_step(original: Any) -> Any:
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if recorder.current() is not None:
            _take_up(optimizer, NO_SITE).scaler = weakref.ref(self)
        return original(self, optimizer, *args, **kwargs)

    return step
