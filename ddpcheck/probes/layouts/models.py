"""The models of a program: what it calls with gradients, with the tensors that each has, and who says how they lie."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import msgspec
import torch

from ddpcheck.evidence import Held, Layout, Model
from ddpcheck.probes.ddp import parameter_names
from ddpcheck.probes.devices.awaited import Derived
from ddpcheck.probes.digests import fast_digests, readable_memory
from ddpcheck.probes.layouts import cut_from, declared, ties, unwritten
from ddpcheck.probes.layouts.own_names import own_name
from ddpcheck.probes.processes import later_records
from ddpcheck.probes.recording import recorder, user_lines
from ddpcheck.probes.recording.missing_seams import attribute
from ddpcheck.probes.recording.tensor_references import Reference, reference

MOST_MODELS = 64
"""Models of a process that are described: a program may make one for every batch."""


class Place(NamedTuple):
    """Where a parameter is: its model, its path there, and who says which part of it this rank holds."""

    model: int
    path: str
    layout: Layout | None


_roots: dict[int, weakref.ref[Any]] = {}
"""By their numbers, the modules that were outermost in a forward with gradients."""
_buffers: dict[int, list[str]] = {}
"""By their numbers, the buffers that are part of their state."""
_sharded: list[weakref.ref[Any]] = []
"""Modules that were sharded or wrapped: models, and parts of them, also before they are called."""
_stages: set[int] = set()
"""The numbers of modules that were made stages of a pipeline."""
_met: set[int] = set()
_writer: recorder.Recorder | None = None
"""Whose file they are described in."""
_ignored: dict[int, Reference] = {}
"""Parameters that a wrapper was told to leave alone."""


def met(writer: recorder.Recorder, module: Any) -> None:
    """A module is called with gradients, by no other module: the first time, it is described."""
    _begin_for(writer)
    number = parameter_names.number_of(module)
    if number in _met or number < 0 or len(_met) >= MOST_MODELS:
        return
    _met.add(number)
    if next(module.parameters(), None) is None:
        return
    _roots[number] = weakref.ref(module)
    site = user_lines.here()
    with recorder.silence():
        _describe(writer, number, module, site)


def parallelised(module: Any) -> None:
    """A module is about to be sharded or wrapped."""
    if isinstance(module, torch.nn.Module) and len(_sharded) < MOST_MODELS:
        _sharded.append(weakref.ref(module, _sharded.remove))


def staged(module: Any) -> None:
    """A module is made a stage of a pipeline."""
    if isinstance(module, torch.nn.Module):
        _stages.add(parameter_names.number_of(module))


def with_other_stages(numbers: set[int]) -> set[int]:
    """These models; and where one of them is a stage of a pipeline, all other ones that this process has."""
    return numbers | _stages if numbers & _stages else numbers


def ignore(parameters: Any) -> None:
    """A wrapper was told to leave these alone."""
    for one in parameters:
        if isinstance(one, torch.Tensor):
            _ignored[id(one)] = reference(one)
            _ignored[id(one)].when_gone(partial(_ignored.pop, id(one), None))


def is_ignored(parameter: torch.Tensor) -> bool:
    """Whether a wrapper was told to leave it alone."""
    return id(parameter) in _ignored


def _begin_for(writer: recorder.Recorder) -> None:
    """Another file of evidence knows no model."""
    global _writer
    if _writer is not writer:
        _writer = writer
        _met.clear()
        _roots.clear()
        _buffers.clear()


# --- where parameters are now


def places(writer: recorder.Recorder) -> dict[int, Place]:
    """By the id of a parameter: where it is, of all parameters that the models have now."""
    _begin_for(writer)
    found: dict[int, Place] = {}
    for number, module in alive():
        named = dict(module.named_parameters())
        layouts = _layouts(writer, module, named)
        for name, parameter in named.items():
            found.setdefault(id(parameter), Place(number, own_name(name), layouts.get(name)))
    return found


def named(writer: recorder.Recorder) -> Iterator[tuple[int, str, torch.Tensor]]:
    """The parameters of all models that gradients are computed for, each in the first that has it, by its path there.

    Unlike `places` it says nothing of how they lie, and takes a part of the time.
    """
    _begin_for(writer)
    met: set[int] = set()
    for number, module in alive():
        for name, parameter in module.named_parameters():
            if parameter.requires_grad and id(parameter) not in met:
                met.add(id(parameter))
                yield number, name, parameter


def is_met(number: int) -> bool:
    """Whether a module of this number is a model: it has parameters, and was called by no other module."""
    return number in _roots


def buffers_of(number: int) -> list[str]:
    """The names of the buffers that were part of a model's state when it was described."""
    return _buffers.get(number, [])


def number() -> int:
    """The models that were met."""
    return len(_met)


def trainable(known: dict[int, Place]) -> Iterator[tuple[Place, torch.Tensor]]:
    """The parameters of all models that gradients are computed for."""
    for _, module in alive():
        for parameter in module.parameters():
            if parameter.requires_grad and id(parameter) in known:
                yield known[id(parameter)], parameter


def parameters() -> Iterator[torch.Tensor]:
    """Those that the models have now."""
    for _, module in alive():
        yield from module.parameters()


def tensors(writer: recorder.Recorder, most: int) -> Iterator[tuple[str, torch.Tensor, Layout | None, bool]]:
    """What the models hold, also those that were only sharded: path, tensor, how it lies, and if it is a buffer."""
    _begin_for(writer)
    roots = [module for _, module in alive()]
    met: set[int] = set()
    # What is sharded last is what holds the rest, most likely.
    for module in [*roots, *(one for ref in reversed(_sharded) if (one := ref()) is not None)]:
        parameters = dict(module.named_parameters())
        named = {**parameters, **dict(module.named_buffers())}
        if len(met) + len(named) > most:
            return
        if named and all(id(tensor) in met for tensor in named.values()):
            continue
        met.update(map(id, named.values()))
        layouts = _layouts(writer, module, named, whole=True)
        for name, tensor in named.items():
            yield own_name(name), tensor, layouts.get(name), name not in parameters


def alive() -> Iterator[tuple[int, Any]]:
    """The models that there are now, by their numbers."""
    for number, root in list(_roots.items()):
        module = root()
        if module is None:
            del _roots[number]
        else:
            yield number, module


def _layouts(
    writer: recorder.Recorder, module: Any, named: dict[str, torch.Tensor], whole: bool = False
) -> dict[str, Layout]:
    """Who says how a model's tensors lie; a plain one beside those that are sharded is said so, too."""
    found = {}
    for name, tensor in named.items():
        layout = declared.layout_of(writer, tensor, whole)
        if layout is not None:
            found[name] = layout
    meshes = [one.mesh for one in found.values() if one.mesh is not None]
    if found:
        mesh = max(set(meshes), key=meshes.count) if meshes else None
        for name, tensor in named.items():
            if name not in found and not readable_memory.unseen(tensor):
                shape = tuple(tensor.shape)
                ground = "ignored" if is_ignored(tensor) else "beside"
                found[name] = Layout(ground=ground, shape=shape, mesh=mesh, local=shape)  # type: ignore[arg-type]
    return found


# --- a model at its first forward


def _describe(writer: recorder.Recorder, number: int, module: Any, site: int) -> None:
    parameters = dict(module.named_parameters(remove_duplicate=False))
    buffers = dict(module.named_buffers(remove_duplicate=False))
    layouts = _layouts(writer, module, {**parameters, **buffers}, whole=True)
    parts = dict(module.named_modules())
    local = _local_buffers(parts)
    first: dict[int, str] = {}
    held, looked, seen = [], [], []
    named = [*parameters.items(), *buffers.items()]
    written = unwritten.each_written([tensor for _, tensor in named])
    for name, tensor in named:
        same = first.setdefault(id(tensor), name)
        layout = layouts.get(name)
        is_seen = layout is not None or not readable_memory.unseen(tensor)
        owner, _, last = name.rpartition(".")
        cut = cut_from.of(tensor) if same == name else None
        held.append(
            Held(
                name=own_name(name),
                kind=fast_digests.kind(tensor),
                buffer=name in buffers,
                layout=layout,
                same_as="" if same == name else own_name(same),
                persistent=name not in local,
                owner=type(parts.get(owner)).__name__ if name in buffers else "",
                cut_from=cut.whole if cut is not None else b"",
                cut_by=cut.ranks if cut is not None else (),
                site=parameter_names.line_of(tensor, parts.get(owner), last) if name in parameters else 0,
            )
        )
        seen.append(tensor if is_seen else None)
        looked.append(tensor if is_seen and same == name else None)
    _buffers[number] = [one.name for one in held if one.buffer and one.persistent and not one.same_as]
    record = partial(
        Model,
        **writer.next(),
        model=number,
        kind=type(module).__name__,
        site=site,
        ties=list(ties.within(module)),
    )
    computed = fast_digests.queued(looked), fast_digests.filled(seen)
    later_records.write(
        writer, record, held=Derived(partial(_with, held), *computed, written), unread=Derived(_unread, written)
    )


def _unread(written: list[unwritten.Answer]) -> int:
    return written.count(None)


def _with(held: list[Held], digests: bytes, filled: list[bool], written: list[unwritten.Answer]) -> list[Held]:
    """The same with what is known of their elements, which a device may have taken its time for."""
    width = len(digests) // max(1, len(held))
    return [
        msgspec.structs.replace(
            one, digest=digests[p * width : (p + 1) * width], filled=filled[p], written=written[p] is not False
        )
        for p, one in enumerate(held)
    ]


def _local_buffers(parts: dict[str, Any]) -> set[str]:
    """The names of buffers that are no part of the state."""
    return {
        f"{prefix}.{name}" if prefix else name
        for prefix, part in parts.items()
        for name in attribute(part, "_non_persistent_buffers_set", ())
    }
