"""The windows that are looked at: W at the first forward, C in each backward(), G and U at the step.

Which they are follows from the number of the step alone: the first, and then
multiples of a power of two, which grows where looks cost too much. Hooks
stand in a backward() of such a window, and nowhere else.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from ddpcheck.evidence import ORACLE, WIDTH, At, Contributions, Layout, Values
from ddpcheck.evidence.sketches import NUMBERS
from ddpcheck.probes.collectives.exchange import Exchange
from ddpcheck.probes.ddp.parameter_names import number_of
from ddpcheck.probes.digests import fast_digests
from ddpcheck.probes.digests.readable_memory import has_own_dispatch, is_dtensor
from ddpcheck.probes.layouts import declared, models
from ddpcheck.probes.moments import forward_modes, forward_values, module_values, pieces, unsharded
from ddpcheck.probes.moments.pieces import Held
from ddpcheck.probes.moments.sketch_rows import SketchRows
from ddpcheck.probes.moments.stepped_models import SteppedModels
from ddpcheck.probes.optimizers import gradient_events
from ddpcheck.probes.optimizers.program_reductions import FEW
from ddpcheck.probes.processes import later_records
from ddpcheck.probes.recording import recorder, user_lines
from ddpcheck.probes.recording.arguments import Arguments, places
from ddpcheck.probes.recording.lone_rank import is_lone
from ddpcheck.probes.recording.missing_seams import attribute
from ddpcheck.probes.recording.pace import Pace
from ddpcheck.probes.recording.patching import around, safely, shielded
from ddpcheck.probes.recording.tensor_references import Reference, reference
from ddpcheck.probes.recording.unwatchable_moments import asleep, is_out_of_memory, is_tracing, overlooked
from ddpcheck.vocabulary.clock import clock

FIRST = 8
"""Windows that are looked at whatever it costs."""
BYTES = 2 * (8 * NUMBERS + WIDTH)
"""That one piece takes in a record, at the most."""
MOST_BACKWARDS = 64
"""Those of a window that are looked at: an optimizer may make no step any more."""


class _Windows:
    """How far each optimizer is, and what is looked at now."""

    pace = Pace(first=FIRST)
    backwards = 0
    """Outermost ones of this process, and calls of grad()."""
    at_step: dict[int, tuple[int, int]] = {}  # noqa: RUF012
    """By optimizer, the backward() calls and the steps of all when it had made its last step."""
    steps: dict[int, int] = {}  # noqa: RUF012
    """By optimizer, its steps."""
    all_steps = 0
    read: set[int] = set()  # noqa: RUF012
    """Parameters whose W was taken since the last step, by id."""
    owned: SteppedModels
    called: set[int] = set()  # noqa: RUF012
    """Models that were called, with gradients, since what steps them has made its last step."""
    open: set[int] = set()  # noqa: RUF012
    """Those of them that are looked at, as far as is known of so many steps, calls and optimizers."""
    so_far: tuple[int, int, list[int]] = (-1, 0, [])
    stepping: tuple[int, int] | None = None
    """The optimizer and its step that is under way."""
    looking: list[Reference] | None = None
    """Its parameters, where that step is looked at."""
    cost = 0.0
    """Seconds of the looks since the last one that was told to the pace."""


def watch() -> None:
    """Look from now on."""
    _Windows.owned = SteppedModels()
    gradient_events.records_where(_waits)
    gradient_events.MODULE_CALLED.also(_forward)
    gradient_events.BACKWARD_BEGINS.also(_backward_begins)
    gradient_events.BACKWARD_ENDS.also(_backward_ends)
    gradient_events.EXCHANGED.also(_exchanged)
    gradient_events.STEP.also(_step)
    gradient_events.STEPPED.also(_stepped)
    around(torch.autograd, "grad", _around_grad)


def is_asked_for() -> bool:
    """Whether every window is to be looked at."""
    return bool(os.environ.get(ORACLE))


def backwards() -> int:
    """The outermost backward() calls of this process so far."""
    return _Windows.backwards


def is_looked_at() -> bool:
    """Whether some optimizer's next step is one that is looked at, and what it steps has been called since its last."""
    if gradient_events.is_quiet():
        return False
    so_far = _Windows.all_steps, len(_Windows.called), gradient_events.numbers()
    if _Windows.open or _Windows.so_far != so_far:
        _Windows.so_far = so_far
        _Windows.open = _models_looked_at()
    return bool(_Windows.open) and not (
        gradient_events.several_train() or is_tracing() or asleep() or _compiled_autograd()
    )


def _models_looked_at() -> set[int]:
    found: set[int] = set()
    for number, parameters in gradient_events.optimizers(_waits):
        stepped = _Windows.owned.of(number, parameters)
        found |= stepped & _Windows.called if stepped else _Windows.called
    return found


def _waits(optimizer: int) -> bool:
    waits = _Windows.backwards - _Windows.at_step.get(optimizer, (0, 0))[0] <= MOST_BACKWARDS
    return waits and _is_due(_Windows.steps.get(optimizer, 0))


def _is_due(number: int) -> bool:
    """Whether an optimizer's step of this number is looked at."""
    writer = recorder.always()
    if writer is None or is_lone() or not (_Windows.pace.is_due(number) or is_asked_for()):
        return False
    return number % max(writer.stride(Values), writer.stride(Contributions)) == 0


def _has_room(writer: recorder.Recorder, kind: type[Values] | type[Contributions], number: int) -> bool:
    """Whether so many pieces can be written down: what does not fit is not begun, and the file stays whole."""
    return number * BYTES < writer.room(kind) / 2


def _compiled_autograd() -> bool:
    """Whether backward() is compiled: hooks would be compiled with it."""
    home = getattr(torch._dynamo, "compiled_autograd", None) if "_dynamo" in vars(torch) else None
    return bool(getattr(home, "compiled_autograd_enabled", False))


class timed:
    """What happens here counts as the cost of looks."""

    def __enter__(self) -> None:
        self._began = clock.fine()

    def __exit__(self, *error: object) -> None:
        _Windows.cost += clock.fine() - self._began


# --- W, G and U


def _forward(module: Any, _: int) -> None:
    writer = recorder.current()
    inner = module.module if isinstance(module, DistributedDataParallel) else module
    if models.is_met(number := number_of(inner)):
        _Windows.called.add(number)
    if writer is None or not is_looked_at():
        return
    if number not in _Windows.open:
        return
    if not gradient_events.is_within_backward():  # what is recomputed runs as it ran before
        with timed():
            forward_modes.note(number, inner)
            module_values.begin(writer, number, inner)
            forward_values.begin(inner)
    each = map(unsharded.sharded, inner.parameters())
    with timed():
        parameters = [p for p in each if p.requires_grad and id(p) not in _Windows.read]
        if parameters:
            _Windows.read.update(map(id, parameters))
            _write(writer, "W", None, _Windows.all_steps, parameters, parameters)


def _step(writer: recorder.Recorder, optimizer: int, number: int, parameters: Sequence[torch.Tensor], _: int) -> None:
    if _Windows.called:
        _Windows.called -= _Windows.owned.of(optimizer, parameters) or _Windows.called
    _Windows.stepping, _Windows.looking = (optimizer, number), None
    if _is_due(number) and not is_tracing() and not asleep():
        _Windows.looking = [reference(p) for p in parameters]
        with timed():
            unread = [p if id(p) not in _Windows.read else None for p in parameters]
            _write(writer, "W", optimizer, number, parameters, unread)
            _write(writer, "G", optimizer, number, parameters, [p.grad for p in parameters])


def _stepped() -> None:
    writer, stepping, _Windows.stepping = recorder.current(), _Windows.stepping, None
    if stepping is None:
        return
    optimizer, number = stepping
    if writer is not None and _Windows.looking is not None:
        parameters = [one for ref in _Windows.looking if (one := ref()) is not None]
        with timed():
            if len(parameters) == len(_Windows.looking):
                _write(writer, "U", optimizer, number, parameters, parameters)
        _Windows.pace.spent(_Windows.cost + forward_values.spent(), number)
        _Windows.cost = 0.0
    _Windows.looking = None
    _Windows.steps[optimizer] = number + 1
    _Windows.all_steps += 1
    _Windows.at_step[optimizer] = _Windows.backwards, _Windows.all_steps
    _Windows.read.clear()
    forward_modes.forget()
    module_values.forget()
    for known in (_Windows.steps, _Windows.at_step):
        gradient_events.forget_gone(known)


def _write(
    writer: recorder.Recorder,
    at_moment: At,
    optimizer: int | None,
    number: int,
    parameters: Sequence[torch.Tensor],
    tensors: Sequence[torch.Tensor | None],
) -> None:
    """Write down what these parameters, or their gradients, are."""
    try:
        with recorder.silence(), torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            held = pieces.of(writer, parameters)
            rows = [
                (one, place, tensor)
                for place, (its, tensor) in enumerate(zip(held, tensors, strict=True))
                for one in its
                if tensor is not None
            ]
            # That a step was made on no gradient at all is said by a record of none.
            if not (rows or at_moment == "G") or not _has_room(writer, Values, len(rows)):
                return
            each = [tensor if one.run is None else _run_of(tensor, one.run) for one, _, tensor in rows]
            digests = fast_digests.queued(each)
            noted = recorder.look_begins()
            found = SketchRows([one.sketch(tensor) for one, _, tensor in rows])
            recorder.look_is_over(noted)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        overlooked("memory")
        return
    record = partial(
        Values,
        **writer.next(),
        at_moment=at_moment,
        optimizer=optimizer,
        number=number,
        backwards=_Windows.backwards,
        since=_Windows.at_step.get(optimizer, (0, 0)) if optimizer is not None else (0, 0),
        pieces=[one.number for one, _, _ in rows],
        places=[place if optimizer is not None else -1 for _, place, _ in rows],
        layouts=_layouts(writer, parameters, rows),
    )
    later_records.write(writer, record, digests=digests, sketches=found.packed())


def _run_of(tensor: torch.Tensor, run: slice) -> torch.Tensor:
    return tensor.detach().reshape(-1)[run]


def _layouts(
    writer: recorder.Recorder, parameters: Sequence[torch.Tensor], rows: Sequence[tuple[Held, int, torch.Tensor]]
) -> dict[int, Layout]:
    """How gradients lie that lie otherwise than their parameters."""
    found = {}
    for n, (_, place, tensor) in enumerate(rows):
        its = getattr(tensor, "placements", None)
        if its is not None and its != getattr(parameters[place], "placements", None):
            layout = declared.layout_of(writer, tensor, whole=True)
            if layout is not None:
                found[n] = layout
    return found


# --- C


class _Contributed:
    """What the backward() that is under way has contributed so far."""

    def __init__(self, writer: recorder.Recorder, site: int) -> None:
        self.writer, self.site = writer, site
        self.handles: list[Any] = []
        self.nodes: list[Any] = []
        """Those that the hooks stand at: what is recomputed within a backward() would have others."""
        self.found: dict[int, torch.Tensor] = {}
        """By piece."""
        self.versions: dict[int, int] = {}
        self.layouts: dict[int, Layout] = {}
        self.whole: set[int] = set()
        self.calls: dict[tuple[str, str, int | None], None] = {}
        self.after: dict[int, int] = {}
        """By piece, how many of these had been made."""
        self.leaves: dict[torch.Size, list[torch.Tensor]] = defaultdict(list)
        """By shape, the parameters that are listened to."""
        self.lock = threading.Lock()

    def add(self, held: Sequence[Held], version: int, gradient: torch.Tensor) -> None:
        """A gradient reaches a parameter; one thread for each device may say so."""
        for one in held:
            row = one.sketch(gradient)
            if row is None:
                continue
            with self.lock:
                before = self.found.get(one.number)
                self.found[one.number] = row if before is None else before + row
                self.versions[one.number] = version
                self.after[one.number] = len(self.calls)
                if one.whole:
                    self.whole.add(one.number)
                layout = declared.layout_of(self.writer, gradient, whole=True) if is_dtensor(gradient) else None
                if layout is not None:
                    self.layouts[one.number] = layout

    def let_go(self) -> None:
        """Hear of nothing any more."""
        while self.handles:
            self.handles.pop().remove()
        self.nodes.clear()
        self.leaves.clear()

    def is_gradient(self, tensor: torch.Tensor) -> bool:
        """Whether it is the gradient that a parameter has by now, as a hook may reduce it."""
        grads = (leaf.grad for leaf in self.leaves.get(tensor.shape, ()) if leaf.is_leaf)
        return any(g is not None and g.data_ptr() == tensor.data_ptr() for g in grads if type(g) is torch.Tensor)

    def write(self, backward: int, how: Any) -> None:
        """Write it down."""
        self.let_go()
        if not self.found or not _has_room(self.writer, Contributions, len(self.found)):
            return
        record = partial(
            Contributions,
            **self.writer.next(),
            backward=backward,
            site=self.site,
            how=how,
            pieces=list(self.found),
            whole=[one in self.whole for one in self.found],
            versions=[self.versions[one] for one in self.found],
            layouts={n: self.layouts[one] for n, one in enumerate(self.found) if one in self.layouts},
            calls=list(self.calls),
            after=[self.after[one] for one in self.found] if self.calls else [],
        )
        later_records.write(self.writer, record, sketches=SketchRows(list(self.found.values())).packed())


_contributed: _Contributed | None = None


def _backward_begins(_: Any) -> None:
    global _contributed
    _Windows.backwards += 1
    if _contributed is not None:  # the last one has failed
        _contributed.let_go()
        _contributed = None
    writer = recorder.current()
    edge_of = attribute(torch.autograd.graph, "get_gradient_edge", None)
    if writer is None or edge_of is None or not is_looked_at():
        return
    with timed(), recorder.silence():
        forward_modes.write(writer, _Windows.backwards)
        module_values.write(writer, _Windows.backwards)
        one = _Contributed(writer, gradient_events.Running.site)
        looked_at = [(number, one) for number, one in models.alive() if number in _Windows.open]
        for leaf, held in unsharded.leaves(looked_at, partial(pieces.of, writer)):
            if not leaf.requires_grad or not held or has_own_dispatch(leaf):
                continue
            node = edge_of(leaf).node
            hook = shielded(partial(_reaches, one, held, leaf._version))
            one.leaves[leaf.shape].append(leaf)
            one.handles.append(node.register_prehook(hook))
            one.nodes.append(node)
        _contributed = one


def _reaches(one: _Contributed, held: Sequence[Held], version: int, gradients: Any) -> None:
    if gradients[0] is None or is_tracing() or asleep():
        return
    with timed(), recorder.silence(), torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
        try:
            noted = recorder.look_begins()
            one.add(held, version, gradients[0])
            recorder.look_is_over(noted)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            overlooked("memory")


def _backward_ends() -> None:
    global _contributed
    one, _contributed = _contributed, None
    if one is not None and recorder.current() is one.writer:
        with timed(), recorder.silence():
            one.write(_Windows.backwards, "backward")


def _exchanged(exchange: Exchange, group: str) -> None:
    """The program exchanges something, which may be gradients on their way through a backward()."""
    one = _contributed
    if one is None:
        return
    call = (f"functional.{exchange.op}" if exchange.functional else exchange.op), group, exchange.peer
    if call in one.calls:
        return
    with torch._C.DisableTorchFunctionSubclass():
        plain = [t for t in exchange.tensors if t.is_floating_point() and t.numel() > FEW]
        if any(not one.is_gradient(t) for t in plain):
            one.calls[call] = None


def _around_grad(original: Callable[..., Any]) -> Callable[..., Any]:
    known = places(original)

    def grad(*args: Any, **kwargs: Any) -> Any:
        gradients = original(*args, **kwargs)
        if recorder.current() is not None and not gradient_events.is_within_backward():
            inputs = Arguments(known, args, kwargs).get("inputs")
            safely(_granted, [inputs] if isinstance(inputs, torch.Tensor) else inputs, gradients)
        return gradients

    return grad


def _granted(inputs: Any, gradients: Any) -> None:
    """The program has asked for gradients, and does with them what it likes."""
    writer = recorder.current()
    if writer is None or not isinstance(inputs, (list, tuple)) or not is_looked_at():
        return  # what an iterator has handed out is gone
    with timed(), recorder.silence(), torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
        asked = {id(one): gradient for one, gradient in zip(inputs, gradients, strict=True) if gradient is not None}
        one = _Contributed(writer, user_lines.here())
        for leaf, held in unsharded.leaves(models.alive(), partial(pieces.of, writer)):
            if id(leaf) in asked and asked[id(leaf)].shape == leaf.shape:  # not a batch of gradients
                one.add(held, leaf._version, asked[id(leaf)])
        if one.found:
            _Windows.backwards += 1
            one.write(_Windows.backwards, "grad")
