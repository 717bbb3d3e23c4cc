"""DistributedDataParallel, watched: how it is built, which forwards arm it, and which backwards it reduces."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel import distributed as ddp_module

from ddpcheck.evidence import NO_SITE, Attributes, Synced, Tensors, Wrapped
from ddpcheck.probes.collectives import every_call
from ddpcheck.probes.collectives.process_groups import group_key
from ddpcheck.probes.data import dataloaders
from ddpcheck.probes.ddp import before_wrap, forward_inputs, module_lines, parameter_names, unfinished_backward
from ddpcheck.probes.ddp.after_backward import AfterBackward
from ddpcheck.probes.ddp.wrapper_usage import WRAPPERS, Wrapper, reduced_by
from ddpcheck.probes.devices import queued_calls
from ddpcheck.probes.devices.awaited import Derived
from ddpcheck.probes.digests import fast_digests, readable_memory
from ddpcheck.probes.optimizers import gradient_events, program_reductions
from ddpcheck.probes.processes import later_records, span_log
from ddpcheck.probes.randomness import random_draws
from ddpcheck.probes.recording import recorder, signal_exceptions, user_lines
from ddpcheck.probes.recording.arguments import Arguments, places
from ddpcheck.probes.recording.missing_seams import attribute
from ddpcheck.probes.recording.pace import is_due
from ddpcheck.probes.recording.patching import around
from ddpcheck.probes.recording.unwatchable_moments import asleep
from ddpcheck.vocabulary.clock import clock

__tracebackhide__ = True
"""For pytest: a failure that comes through a probe is told without its frames."""

_inside = 0
"""Forwards through wrappers that are under way: an optimizer that steps in there is one of the model's own."""

_wrapped_parts: weakref.WeakSet[Any] = weakref.WeakSet()
"""The modules inside of wrappers: what is registered in them later, the reducers do not know."""

_roots: dict[int, tuple[weakref.ref[Any], Wrapper]] = {}
"""By id, wrappers and the modules directly inside of them. Each outermost call of a module looks here."""


def watch() -> None:
    """Watch every wrapper from now on."""
    around(DistributedDataParallel, "__init__", _around_init)
    around(DistributedDataParallel, "_pre_forward", _around_pre_forward)
    around(DistributedDataParallel, "_post_forward", _around_post_forward)
    around(DistributedDataParallel, "register_comm_hook", _around_comm_hook)
    unfinished_backward.watch()  # within the next one, whose call it looks at
    gradient_events.BACKWARD.also(_backward_begins)


def wrapper_of(module: Any) -> Wrapper | None:
    """The wrapper that a module is, or that is directly around it; None for any other module."""
    found = _roots.get(id(module))
    return found[1] if found is not None and found[0]() is module else None


def _drop_root(root: int, _: Any) -> None:
    _roots.pop(root, None)


def is_wrapped(module: Any) -> bool:
    """Whether it is inside of some wrapper."""
    return module in _wrapped_parts


def inside_forward() -> bool:
    """Whether a forward through some wrapper is under way."""
    return _inside > 0


# --- construction


def _around_init(original: Any) -> Any:
    known_places = places(original)

    def __init__(self: Any, module: Any, *args: Any, **kwargs: Any) -> None:
        writer = recorder.current()
        if writer is None:
            original(self, module, *args, **kwargs)
            if recorder.always() is not None:  # what is built out of hearing may still be used in it
                _take_up(self)
            return
        site = user_lines.here()
        group = _group_of(known_places, (self, module, *args), kwargs)
        before = before_wrap.values_of(module)
        call = every_call.call("ddp-construct", group, f"wrapper {WRAPPERS.made}")
        with call if group != "?" else nullcontext():  # on a group that is not known it could be matched with none
            original(self, module, *args, **kwargs)
        wrapper = _take_up(self)
        parameters, buffers = dict(self.module.named_parameters()), dict(self.module.named_buffers())
        with recorder.silence():
            _describe(writer, self, wrapper, site, parameters, buffers, before)
            modules = module_lines.describe(writer, self.module, wrapper.number, parameters, list(buffers))
        if modules is not None:
            writer.write(modules)

    return __init__


def _take_up(ddp: Any) -> Wrapper:
    wrapper = WRAPPERS.add(ddp)
    group = attribute(ddp, "process_group", None)
    wrapper.group = group_key(group)
    first = next(ddp.module.parameters(), None)
    wrapper.queued_on = queued_calls.device_for(group, first.device) if first is not None else None
    wrapper.buffers = sum(1 for _ in ddp.module.buffers())
    for one in (ddp, ddp.module):
        _roots[id(one)] = weakref.ref(one, partial(_drop_root, id(one))), wrapper
    for part in ddp.module.modules():
        _wrapped_parts.add(part)
    return wrapper


def _group_of(places: dict[str, int], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The group that a wrapper is about to be built on: the one it is given, or that of a mesh of one dimension."""
    given = Arguments(places, args, kwargs)
    mesh = given.get("device_mesh")
    if mesh is None:
        return group_key(given.get("process_group"))
    try:
        return group_key(mesh.get_group(0)) if mesh.ndim == 1 else "?"
    except Exception as error:  # a mesh of another kind, or one whose groups are not made yet
        signal_exceptions.let_through(error)
        return "?"


def _describe(
    writer: recorder.Recorder,
    ddp: Any,
    wrapper: Wrapper,
    site: int,
    parameters: dict[str, torch.Tensor],
    buffers: dict[str, torch.Tensor],
    before: dict[str, Any],
) -> None:
    owners, local = owners_of_buffers(ddp.module)
    called = {id(p): n for n, p in parameters.items()}
    ids = attribute(ddp, "device_ids", None)
    described = partial(
        Wrapped,
        **writer.next(),
        wrapper=wrapper.number,
        kind=type(ddp.module).__name__,
        site=site,
        buffer_owners=[owners.get(n, "") for n in buffers],
        local_buffers=[n for n in buffers if n in local],
        order=[called.get(id(p), "?") for p in reduced_by(ddp)],
        ignored=sorted(str(n) for n in attribute(ddp, "parameters_to_ignore", ())),
        broadcast_buffers=bool(attribute(ddp, "broadcast_buffers", True)),
        devices=sorted({str(p.device) for p in parameters.values()}),
        device_ids=[int(getattr(d, "index", d) or 0) for d in ids] if ids else None,
        shared=[n for n, p in parameters.items() if readable_memory.is_shared(p)],
        group=wrapper.group,
        module=parameter_names.number_of(ddp.module),
        parts=parameter_names.numbers_within(ddp.module),
        find_unused=bool(attribute(ddp, "find_unused_parameters", False)),
    )
    later_records.write(writer, described, parameters=tensors(parameters), buffers=tensors(buffers), **before)


def _around_comm_hook(original: Any) -> Any:
    def register_comm_hook(self: Any, state: Any, hook: Any) -> Any:
        wrapper = WRAPPERS.all.get(self)
        if wrapper is not None:
            called = getattr(hook, "func", hook)  # a partial one
            torchs = str(getattr(called, "__module__", "")).startswith("torch.")
            wrapper.apart |= type(state).__name__ == "PostLocalSGDState"
            wrapper.apart |= torchs and getattr(called, "__name__", "") == "noop_hook"
            wrapper.own_hook = not torchs
        return original(self, state, hook)

    return register_comm_hook


def tensors(named: dict[str, torch.Tensor]) -> Derived:
    """Names and digests; what is not to be compared between ranks is not looked at."""
    unseen = {place for place, tensor in enumerate(named.values()) if readable_memory.unseen(tensor)}
    names = list(named)
    return Derived(
        lambda digests: Tensors(names=names, digests=digests), fast_digests.queued(named.values(), but=unseen)
    )


def owners_of_buffers(module: Any) -> tuple[dict[str, str], set[str]]:
    """The class of the module that each buffer is of; and the buffers that are no part of the state."""
    owners, local = {}, set()
    for prefix, part in module.named_modules():
        for name in attribute(part, "_buffers", {}).keys():  # noqa: SIM118 - a TorchScript module's is no dict
            full = f"{prefix}.{name}" if prefix else name
            owners[full] = type(part).__name__
            if name in attribute(part, "_non_persistent_buffers_set", ()):
                local.add(full)
    return owners, local


def _attributes(module: Any) -> dict[str, str]:
    """The plain numbers and text that a user's own modules keep, by their path."""
    found = {}
    for prefix, part in module.named_modules():
        if type(part).__module__.partition(".")[0] == "torch" and prefix:
            continue
        for name, value in vars(part).items():
            if name.startswith("_") or name == "training" or not isinstance(value, (bool, int, float, str)):
                continue
            found[f"{prefix}.{name}" if prefix else name] = repr(value)[:80]
            if len(found) >= 200:
                return found
    return found


def note_attributes(writer: recorder.Recorder, wrapper: Wrapper, site: int) -> None:
    """Write down the attributes as they are now."""
    ddp = wrapper.ddp()
    if ddp is not None:
        writer.write(Attributes(**writer.next(), wrapper=wrapper.number, values=_attributes(ddp.module), site=site))


# --- forward


def _around_pre_forward(original: Any) -> Any:
    def _pre_forward(self: Any, *given: Any, **kwargs: Any) -> Any:
        global _inside
        wrapper = WRAPPERS.all.get(self)
        writer = recorder.current()
        if wrapper is None or writer is None:
            return original(self, *given, **kwargs)
        training = torch.is_grad_enabled()
        syncs = _broadcasts(self)
        # After the first backward DDP lays out its buckets anew, as rank 0 has found them best.
        rebuilds = training and wrapper.counts["backwards"] > 0 and not attribute(self, "_has_rebuilt_buckets", True)
        op = "ddp-buffers" if syncs else "ddp-buckets" if rebuilds else ""
        with _call(op, wrapper) if op else nullcontext():
            result = original(self, *given, **kwargs)
        if syncs:
            note_buffers(writer, wrapper, "broadcast")
        if training:
            wrapper.forward_site = user_lines.here()
            forward_inputs.note_inputs(given, kwargs, wrapper.number)
            random_draws.forward_begins(wrapper.number)
        _inside += 1
        return result

    return _pre_forward


def _around_post_forward(original: Any) -> Any:
    def _post_forward(self: Any, output: Any) -> Any:
        global _inside
        wrapper = WRAPPERS.all.get(self)
        writer = recorder.current()
        if wrapper is None or writer is None:
            return original(self, output)
        _inside = max(0, _inside - 1)
        training = torch.is_grad_enabled()
        if training:
            random_draws.forward_ends(wrapper.number)
        elif not self.training and not _broadcasts(self):
            note_buffers(writer, wrapper, "evaluation")
        result = original(self, output)
        if training:
            _armed(self, wrapper, result)
        return result

    return _post_forward


def _broadcasts(ddp: Any) -> bool:
    """Whether a forward begins with a broadcast of buffers."""
    return bool(attribute(ddp, "will_sync_module_buffers", bool)())


def _armed(ddp: Any, wrapper: Wrapper, output: Any) -> None:
    counts = wrapper.counts
    counts["forwards"] += 1
    wrapper.thread = threading.get_ident()
    if wrapper.depth:
        counts["no_sync_forwards"] += 1
    flag = bool(attribute(ddp, "require_backward_grad_sync", False))
    wrapper.unarmed_flag = None if wrapper.depth else flag
    wrapper.last_armed = flag
    if not flag:
        return
    counts["armed"] += 1
    wrapper.armed_now = True
    tensors_in = getattr(ddp_module, "_find_tensors", lambda _: ())
    outputs = [t for t in tensors_in(output) if isinstance(t, torch.Tensor)]
    found = [(node, t.output_nr) for t in outputs if (node := t.grad_fn) is not None][:4]
    if not found:  # an object of the user's own: nothing to see
        counts["reached"] += 1
        return
    told = [False]
    seen = weakref.ref(wrapper)

    def reached(place: int, gradients: tuple[Any, ...]) -> None:  # not shielded: it cannot fail
        if asleep():
            return
        it = seen()
        if it is not None and not told[0] and gradients[place] is not None:
            told[0] = True
            it.counts["reached"] += 1
            it.armed_now = False

    # Not at the tensor itself: there the program finds it, and to save the tensor would be to be warned of it.
    for node, place in found:
        node.register_prehook(partial(reached, place))


def note_buffers(writer: recorder.Recorder, wrapper: Wrapper, moment: Any) -> None:
    """Digests of a wrapper's buffers at one of the moments that are compared."""
    ddp = wrapper.ddp()
    number = wrapper.synced[moment]
    wrapper.synced[moment] += 1
    if ddp is None or not is_due(number):
        return
    buffers = dict(ddp.module.named_buffers())
    if buffers:
        with recorder.silence():
            digests = fast_digests.queued(buffers.values())
        described = partial(
            Synced,
            **writer.next(),
            wrapper=wrapper.number,
            moment=moment,
            number=number,
            site=user_lines.here(),
            names=list(buffers) if len(buffers) != wrapper.buffers else [],
        )
        later_records.write(writer, described, digests=digests)


def _call(op: str, wrapper: Wrapper) -> AbstractContextManager[Any]:
    # The buckets are read on the host.
    device = wrapper.queued_on if op != "ddp-buckets" else None
    return every_call.call(op, wrapper.group, f"wrapper {wrapper.number}", device=device)


# --- backward


def _backward_begins(*_: Any) -> Callable[[bool], None]:
    dataloaders.note_backward()
    site = user_lines.here()
    armed = []
    for ddp, wrapper in list(WRAPPERS.all.items()):
        if gradient_events.trains_for_itself(wrapper.thread):
            continue
        wrapper.backward_site = site
        wrapper.after = None  # this backward may add to its gradients
        flag = bool(attribute(ddp, "require_backward_grad_sync", False))
        if wrapper.unarmed_flag is not None and flag != wrapper.unarmed_flag:
            wrapper.sync_flag_site = site
        if wrapper.armed_now and flag:
            armed.append(wrapper)
    BACKWARDS.note(site)
    began = clock.now()
    # Reductions overlap with the backward itself: together they are one event.
    calls = ExitStack()
    for wrapper in armed:
        calls.enter_context(_call("ddp-gradients", wrapper))

    def is_over(is_well: bool) -> None:
        calls.__exit__(*sys.exc_info() if not is_well else (None, None, None))
        if not is_well:
            return
        span_log.add(span_log.BACKWARD, began, clock.now(), site)
        program_reductions.BACKWARDS.ended += 1
        for wrapper in armed:
            wrapper.counts["backwards"] += 1
            wrapper.lines[user_lines.line_alone(site)] += 1
            if BACKWARDS.look:
                with recorder.silence():
                    wrapper.after = AfterBackward(wrapper.parameters())

    return is_over


class Backwards:
    """backward() calls since the last step of any optimizer."""

    def __init__(self) -> None:
        self.count = 0
        self.site = NO_SITE
        self.look = True
        """The gradients are looked at when a backward ends, too: set for the first steps, and now and then."""

    def note(self, site: int) -> None:
        self.count += 1
        self.site = site


BACKWARDS = Backwards()
