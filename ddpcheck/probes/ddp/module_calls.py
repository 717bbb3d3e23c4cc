"""Outermost calls of modules: who goes round a wrapper, and the state of what is used without gradients."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.compiler import is_compiling
from torch.nn.parallel import DistributedDataParallel

from ddpcheck.evidence import Evaluated, EvaluatedOnData, Tensors
from ddpcheck.probes.collectives import one_call
from ddpcheck.probes.ddp import forward_inputs
from ddpcheck.probes.ddp.parameter_names import number_of
from ddpcheck.probes.ddp.wrapper_usage import WRAPPERS
from ddpcheck.probes.ddp.wrappers import is_wrapped, owners_of_buffers, tensors, wrapper_of
from ddpcheck.probes.layouts import models
from ddpcheck.probes.layouts.own_names import own_name
from ddpcheck.probes.moments import forward_values, module_values, used_models
from ddpcheck.probes.optimizers import gradient_events
from ddpcheck.probes.optimizers.steps import are_stepped, steps_so_far
from ddpcheck.probes.processes import later_records, span_log
from ddpcheck.probes.randomness import random_draws
from ddpcheck.probes.recording import recorder, signal_exceptions, user_lines
from ddpcheck.probes.recording.out_of_sight import Outside, hide, recover, show
from ddpcheck.probes.recording.pace import is_due
from ddpcheck.probes.recording.patching import defect, looking_like, named, shielded
from ddpcheck.probes.recording.thread_state import here
from ddpcheck.probes.recording.unwatchable_moments import asleep
from ddpcheck.vocabulary.clock import clock

__tracebackhide__ = True
"""For pytest: a failure that comes through a probe is told without its frames."""


MANY = 8
"""Inputs that are not the same: a dry run takes one, or a few of other sizes."""

BRIEF = 50e-6
"""Seconds up to which a module's call is not worth showing: a loss, an activation."""

MOST_LOOKS = 64
"""Calls of a module at a line whose inputs are looked at."""


class _Line:
    """A line that evaluates modules."""

    MOST = 64

    def __init__(self) -> None:
        self.met = 0
        """Modules that came here for the first time."""
        self.modules: dict[int, _Evaluations] = {}
        """By their numbers: those that it has evaluated lately, the last one at the end."""

    def of(self, module: int) -> _Evaluations:
        known = self.modules.pop(module, None)
        if known is None:
            known = _Evaluations(self.met)
            self.met += 1
        self.modules[module] = known
        if len(self.modules) > self.MOST:
            del self.modules[next(iter(self.modules))]
        return known


class _Evaluations:
    """What one module's evaluations at one line have come to."""

    __slots__ = ("inputs", "looks", "place", "steps", "times")

    def __init__(self, place: int) -> None:
        self.inputs: set[bytes] | None = set()
        """What it was evaluated on before the first step; None where that is of no interest any more."""
        self.looks = 0
        """How often its inputs were looked at."""
        self.place = place
        """The modules that this line had evaluated before it."""
        self.steps = -1
        """The optimizer steps that had been made at the last one."""
        self.times = 0


_seen: dict[int, _Line] = {}
"""By line."""


_CHOICE = ("_compiled_call_impl", "_call_impl")
"""What torch's own ``__call__`` reads where all that it does is to call one of these. A module inside of another is
called without it, so that a module that calls itself comes as deep as it does without us, with a frame of ours in the
place of torch's."""


def watch() -> None:
    """See every outermost call of a module from now on."""
    original = vars(torch.nn.Module).get("__call__")
    if original is None:
        return

    only_chooses = getattr(getattr(original, "__code__", None), "co_names", ()) == _CHOICE

    @looking_like(original)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Every module's call comes through here: what it does has to be little, and only the outermost asks a device.
        if is_compiling():
            return original(self, *args, **kwargs)
        if here.module:
            if (called := used_models.CALLED) is not None:
                called.add(id(self))
            call = module_values.reads(self, args, kwargs) if module_values.LOOKED_AT else None
            given = forward_values.reads(args, kwargs) if forward_values.NOW is not None else None
            if only_chooses and self._compiled_call_impl is None:
                result = self._call_impl(*args, **kwargs)
            else:
                result = original(self, *args, **kwargs)
            if call is not None:
                module_values.makes(call, result)
            if given is not None:
                forward_values.makes(self, given, result)
            return result
        if asleep() or torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
            return original(self, *args, **kwargs)
        outside, model = Outside(), None
        began = clock.now()
        try:
            try:
                here.module = True
                hide(outside)
                model = _note(self, args, kwargs)
                given = forward_values.reads(args, kwargs, is_outermost=True)
                began = clock.now()
                show(outside)
                result = original(self, *args, **kwargs)
                if given is not None:
                    forward_values.makes(self, given, result, is_outermost=True)
                return result
            finally:
                here.module = False
                hide(outside)
                if model is not None:
                    _drawn(model)
                if used_models.CALLED is not None:
                    _used()
                if (ended := clock.now()) - began > BRIEF:
                    kind = span_log.FORWARD if torch.is_grad_enabled() else span_log.EVALUATION
                    span_log.add(kind, began, ended, user_lines.here())
                show(outside)
        except BaseException:
            recover(outside)
            raise

    torch.nn.Module.__call__ = named(__call__, torch.nn.Module, "__call__")  # type: ignore[method-assign]


def _note(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """See to a call that begins; the number of a model in no wrapper, whose random state is looked at."""
    writer = recorder.current()
    if writer is None:
        return None
    one_call.let_go()
    try:
        if dist.is_initialized():
            used_models.begins(writer, module)
        if torch.is_grad_enabled():
            wrapper = wrapper_of(module)
            through = isinstance(module, DistributedDataParallel)
            models.met(writer, module.module if through else module)
            gradient_events.MODULE_CALLED.tell(module, number_of(module))
            if through:
                return None
            if wrapper is not None and module.training:
                wrapper.bare_site = user_lines.here()
            number = number_of(module)
            # What is recomputed draws from a state that torch has put back.
            if models.is_met(number) and not is_wrapped(module) and not gradient_events.is_within_backward():
                forward_inputs.note_inputs(args, kwargs, None, number)
                random_draws.forward_begins(None, number)
                return number
        elif dist.is_initialized():
            _evaluated(writer, module, [*args, *kwargs.values()])
    except Exception as error:
        defect(error)
    return None


@shielded
def _used() -> None:
    if (writer := recorder.current()) is not None:
        used_models.ends(writer)


@shielded
def _drawn(model: int) -> None:
    random_draws.forward_ends(None, model)


def _evaluated(writer: recorder.Recorder, module: Any, inputs: list[Any]) -> None:
    site = user_lines.here()
    steps = steps_so_far()
    known = _seen.setdefault(user_lines.line_alone(site), _Line()).of(number_of(module))
    if known.inputs is not None:
        if steps or known.looks >= MOST_LOOKS:
            known.inputs = None
        else:
            _look_at(writer, known, module, inputs, site)
    if known.steps == steps:
        return
    times, known.steps, known.times = known.times, steps, known.times + 1
    # A line that makes a copy for every evaluation is a line that has evaluated often.
    if is_due(times) and is_due(known.place):
        with recorder.silence():
            _describe(writer, module, steps, site)


def _look_at(writer: recorder.Recorder, known: _Evaluations, module: Any, inputs: list[Any], site: int) -> None:
    """See on how many different inputs a module is evaluated that is in no wrapper yet."""
    if known.inputs is None:
        return
    known.looks += 1
    if any(WRAPPERS.owner(p) is not None for p in module.parameters()):
        known.inputs = None
        return
    try:
        with recorder.silence():
            known.inputs.add(forward_inputs.heads(inputs))
    except Exception as error:  # a tensor without memory; a container that fails
        signal_exceptions.let_through(error)
        known.inputs = None
        return
    if len(known.inputs) >= MANY:
        known.inputs = None
        writer.write(EvaluatedOnData(**writer.next(), module=number_of(module), site=site))


def _describe(writer: recorder.Recorder, module: Any, steps: int, site: int) -> None:
    through = isinstance(module, DistributedDataParallel)
    module = module.module if through else module
    parameters = dict(module.named_parameters())
    buffers = {} if through else dict(module.named_buffers())
    if not parameters and not buffers:
        return
    owner = next((found for p in parameters.values() if (found := WRAPPERS.owner(p)) is not None), None)
    _, local = owners_of_buffers(module)
    kept = {own_name(name): b for name, b in buffers.items() if name not in local}
    record = partial(
        Evaluated,
        **writer.next(),
        kind=type(module).__name__,
        number=steps,
        site=site,
        wrapper=owner[1].number if owner is not None else None,
        module=number_of(module),
        stepped=owner is None and are_stepped(parameters.values()),
    )
    later_records.write(
        writer,
        record,
        parameters=tensors(parameters),
        buffers=tensors(kept) if kept and not module.training else Tensors(),
    )
