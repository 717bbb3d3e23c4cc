"""Models that no optimizer steps, when they are called: what they hold, beside what the trained ones hold then.

Such are copies that follow a model: rollout engines, averages, teachers. Looks follow the number of steps, and come
also where such a model was written to since its last call.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch.nn.parallel import DistributedDataParallel

from ddpcheck.evidence import WIDTH, Layout, ModelUsed
from ddpcheck.evidence.moments import SIZE
from ddpcheck.probes.ddp.parameter_names import number_of
from ddpcheck.probes.digests import fast_digests, readable_memory, sketches
from ddpcheck.probes.layouts import declared, models
from ddpcheck.probes.layouts.own_names import own_name
from ddpcheck.probes.moments import unsharded
from ddpcheck.probes.moments.sketch_rows import SketchRows
from ddpcheck.probes.optimizers.steps import made, optimizers, steps_so_far
from ddpcheck.probes.processes import later_records
from ddpcheck.probes.recording import recorder, signal_exceptions, user_lines
from ddpcheck.probes.recording.pace import is_due
from ddpcheck.probes.recording.tensor_references import Reference, reference
from ddpcheck.probes.recording.unwatchable_moments import asleep, is_out_of_memory, is_tracing, overlooked

MOST = 4096
"""Tensors of a model that is looked at."""
FEW = 4
"""Parameters that are asked at each use whether they were written to."""
MOST_MODELS = 8
"""Trained models that are looked at beside it."""


class _Known:
    """A module that was called by no other one."""

    def __init__(self, is_other: bool) -> None:
        self.steps = -1
        """Those that had been made at its last call."""
        self.uses = 0
        """Calls that came after another step than the one before."""
        self.is_other = is_other
        """It is trained, or has no parameters, or is one of many that are called once."""
        self.few: list[Reference] = []
        """Some of its parameters, which say when it is written to."""
        self.written = self.changes = 0
        """A number that is another one when these were written to; and how often that was so."""


class _Named(NamedTuple):
    name: str
    tensor: torch.Tensor
    shape: tuple[int, ...]
    offset: tuple[int, ...] | None
    layout: Layout | None
    is_buffer: bool


class _Look(NamedTuple):
    """The call that is under way."""

    thread: int
    model: int
    owners: list[tuple[int, bool]]
    """By tensor, the id of the module that has it, and whether that one makes the tensor anew in this call."""
    records: list[tuple[partial[ModelUsed], dict[str, Any]]]


CALLED: set[int] | None = None
"""The ids of modules that are called within a call that is looked at; None where none is."""
_look: _Look | None = None
_known: dict[int, _Known] = {}
"""By the number of a module."""
_written: WeakKeyDictionary[recorder.Recorder, dict[int, tuple[str, ...]]] = WeakKeyDictionary()
"""By file and model: the names that stand in its last record."""
_looks = 0
_new: Counter[str] = Counter()
"""By class, the modules that were called for the first time."""
_stepped: tuple[tuple[int, int], set[int]] = ((-1, 0), set())
"""The ids of all parameters that optimizers have, as of so many steps and optimizers."""


def begins(writer: recorder.Recorder, module: torch.nn.Module) -> None:
    """An outermost call of a module begins."""
    global _look, CALLED
    steps = steps_so_far()
    module = module.module if isinstance(module, DistributedDataParallel) else module
    known = _known.get(number := number_of(module))
    if known is None:
        if len(_known) > MOST:
            _known.clear()
        kind = type(module).__name__
        _new[kind] += 1
        known = _known[number] = _Known(is_other=not is_due(_new[kind] - 1))
    if known.steps == steps or _look is not None:
        return
    # Most models are stepped by an optimizer, and are rarely looked at.
    is_rare = known.is_other and not _is_due_to_others(known.uses + 1)
    if not is_rare and (is_tracing() or asleep()):
        return
    known.steps, known.uses = steps, known.uses + 1
    if is_rare:
        return
    try:
        with recorder.silence(), torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            _look = _begun(writer, module, number, known, steps) if _is_due(known, module) else None
    except Exception as error:  # a class of the program's own, or a type that nothing can be computed with
        signal_exceptions.let_through(error)
        if is_out_of_memory(error):
            overlooked("memory")
        known.is_other = True
    CALLED = {id(module)} if _look is not None else None


def ends(writer: recorder.Recorder) -> None:
    """It has ended, or failed: write down what was looked at when it began."""
    global _look, CALLED
    look, called = _look, CALLED
    if look is None or called is None or look.thread != threading.get_ident():
        return
    _look = CALLED = None
    used = bytes(owner in called and not is_made for owner, is_made in look.owners)
    for record, later in look.records:
        is_called = record.keywords["model"] == look.model
        later_records.write(writer, partial(record, used=used if is_called else b""), **later)


def _is_due(known: _Known, module: torch.nn.Module) -> bool:
    """Whether this use is looked at: always two in a row, since what happened between them says how it follows."""
    if known.is_other:
        return _is_due_to_others(known.uses)
    few = [one() for one in known.few]
    if not few or any(one is None for one in few):
        listed = list(module.parameters())
        known.few = [reference(one) for one in listed[:: max(1, len(listed) // (FEW - 1))][:FEW] + listed[-1:]]
        few = [one() for one in known.few]
    written = sum(_times_written(one) for one in few if one is not None)
    is_written, known.written = written != known.written, written
    known.changes += is_written
    numbers = (known.uses, known.changes) if is_written else (known.uses,)
    return any(is_due(number) or is_due(number - 1) for number in numbers)


def _is_due_to_others(uses: int) -> bool:
    """Whether this use of a model that an optimizer steps is looked at: the optimizer may be gone by now."""
    return uses > 1 and uses & (uses - 1) == 0


def _times_written(parameter: torch.Tensor) -> int:
    """A number that is another one when it has been written to, or given another memory."""
    try:
        return parameter._version + parameter.data_ptr()
    except RuntimeError:  # made in inference mode, or without memory
        return 0


def _are_stepped() -> set[int]:
    """The ids of all parameters that optimizers have, also before their first step."""
    global _stepped
    now = steps_so_far(), made()
    if _stepped[0] != now:
        found = {id(one) for optimizer in optimizers() for group in optimizer.param_groups for one in group["params"]}
        _stepped = now, found
    return _stepped[1]


def _is_stepped(module: torch.nn.Module) -> bool:
    stepped = _are_stepped()
    return any(id(one) in stepped for one in _parameters(module))


def _begun(writer: recorder.Recorder, module: torch.nn.Module, number: int, known: _Known, steps: int) -> _Look | None:
    global _looks
    known.is_other = next(module.parameters(), None) is None or _is_stepped(module)
    if known.is_other:
        return None
    trained = [(n, one) for n, one in models.alive() if one is not module and _is_stepped(one)]
    own = _named(writer, module)
    theirs = {id(t) for _, one in trained for t in (*_parameters(one), *one.buffers())}
    if len(own) > MOST or any(id(one.tensor) in theirs for one in own):
        return None  # a part of a model that is trained
    site = user_lines.here()
    _looks += 1
    records = []
    for model, one in [(number, module), *trained[:MOST_MODELS]]:
        named = own if one is module else _named(writer, one)
        if len(named) * (SIZE + WIDTH + 1) > writer.room(ModelUsed) / 4 or len(named) > MOST:
            return None
        about: dict[str, Any] = {"look": _looks, "model": model, "kind": type(one).__name__, "steps": steps}
        about |= {**writer.next(), "uses": known.uses, "site": site, "trained": one is not module}
        looked = _looked(named)
        records.append((partial(ModelUsed, **about, **_names(writer, model, named)), looked))
    return _Look(threading.get_ident(), number, list(_owners(module, own)), records)


def _parameters(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    return map(unsharded.sharded, module.parameters())


def _named(writer: recorder.Recorder, module: torch.nn.Module) -> list[_Named]:
    found = []
    parameters = dict(module.named_parameters())
    for name, one in (*parameters.items(), *module.named_buffers()):
        tensor = unsharded.sharded(one)
        if not tensor.is_floating_point() or readable_memory.strided(tensor) is None:
            continue
        layout = declared.layout_of(writer, tensor, whole=True)
        plain = tuple(tensor.shape)
        shape, offset = (layout.shape, layout.offset) if layout is not None else (plain, (0,) * len(plain))
        found.append(_Named(own_name(name), tensor, shape, offset, layout, name not in parameters))
    return found


def _names(writer: recorder.Recorder, model: int, named: Sequence[_Named]) -> dict[str, Any]:
    """The names, where they are new, with what else stays as it is."""
    layouts = {place: one.layout for place, one in enumerate(named) if one.layout is not None}
    known, names = _written.setdefault(writer, {}), tuple(one.name for one in named)
    if known.get(model) == names:
        return {"layouts": layouts}
    known[model] = names
    dtypes = [str(one.tensor.dtype).removeprefix("torch.") for one in named]
    buffers = sum(one.is_buffer for one in named)
    shapes = [one.shape for one in named]
    return {"names": list(names), "buffers": buffers, "dtypes": dtypes, "shapes": shapes, "layouts": layouts}


def _looked(named: Sequence[_Named]) -> dict[str, Any]:
    rows = [_sketch(one) for one in named]
    return {"digests": fast_digests.queued([one.tensor for one in named]), "sketches": SketchRows(rows).packed()}


def _sketch(one: _Named) -> torch.Tensor | None:
    plain = readable_memory.strided(one.tensor)
    if plain is None or one.offset is None or plain.device.type not in readable_memory.LOOKED_AT:
        return None
    return sketches.of_box(plain, one.shape, one.offset)


def _owners(module: torch.nn.Module, named: Sequence[_Named]) -> Iterator[tuple[int, bool]]:
    """By tensor, the module that has it: what calls it is not known otherwise.

    Buffers of a module in training mode are made anew by its call, and not read.
    """
    owner = {
        id(unsharded.sharded(tensor)): part
        for part in module.modules()
        for tensor in (*part.parameters(recurse=False), *part.buffers(recurse=False))
    }
    for one in named:
        part = owner.get(id(one.tensor))
        yield id(part), one.is_buffer and part is not None and part.training
