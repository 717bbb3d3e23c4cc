"""An optimizer, written down at its first step and when its parameters have changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from ddpcheck.evidence import NO_SITE, LeftOut, Optimizer, Parameter
from ddpcheck.probes.ddp import parameter_names
from ddpcheck.probes.ddp.wrapper_usage import WRAPPERS, Wrapper
from ddpcheck.probes.ddp.wrappers import inside_forward
from ddpcheck.probes.devices.awaited import Derived
from ddpcheck.probes.digests import fast_digests, readable_memory
from ddpcheck.probes.layouts import declared, models
from ddpcheck.probes.processes import later_records
from ddpcheck.probes.recording import recorder
from ddpcheck.probes.recording.missing_seams import attribute

if TYPE_CHECKING:
    from ddpcheck.probes.optimizers.steps import Watched


def write(
    writer: recorder.Recorder,
    optimizer: Any,
    it: Watched,
    parameters: list[torch.Tensor],
    site: int,
    optimizers: Iterable[Any] = (),
) -> None:
    """Write down an optimizer, and the parameters that it has from this step on."""
    WRAPPERS.look_again()
    described, seen = [], []
    it.unseen.clear()
    wrappers: dict[int, Wrapper] = {}
    known = models.places(writer)
    for place, parameter in enumerate(parameters):
        owner = WRAPPERS.owner(parameter)
        name, in_module = parameter_names.name_of(parameter)
        ignored = late = False
        if owner is not None:
            name, wrapper, late = owner
            in_module = True
            wrappers[wrapper.number] = wrapper
            ddp = wrapper.ddp()
            ignored = ddp is not None and name in attribute(ddp, "parameters_to_ignore", ())
        unseen = readable_memory.unseen(parameter)
        at = known.get(id(parameter))
        layout = at.layout if at is not None else declared.layout_of(writer, parameter)
        if layout is not None and at is not None:
            name, in_module = at.path, True
        if unseen and layout is None:
            it.unseen.add(place)
        seen.append(parameter if layout is not None or not unseen else None)
        described.append(
            Parameter(
                name=name or f"parameter {place}",
                kind=fast_digests.kind(parameter),
                wrapper=owner[1].number if owner is not None else None,
                reduced=WRAPPERS.is_reduced(parameter),
                ignored=ignored,
                late=late,
                shared=readable_memory.is_shared(parameter),
                in_module=in_module,
                unseen=unseen,
                unnamed=not name,
                site=parameter_names.line_of(parameter) if owner is None or late else NO_SITE,
                layout=layout,
                model=at.model if at is not None else None,
                path=at.path if at is not None else "",
            )
        )
    it.parts = [p for p, one in enumerate(described) if one.layout is not None and one.layout.ground == "DTensor"]
    it.wrappers = [wrappers[number] for number in sorted(wrappers)]
    it.inner = inside_forward()
    record = partial(
        Optimizer,
        **writer.next(),
        optimizer=it.number,
        kind=type(optimizer).__name__,
        site=it.site or site,
        sharded=type(optimizer).__name__ == "ZeroRedundancyOptimizer",
        inner=it.inner,
        apart=any(wrapper.steps_apart for wrapper in it.wrappers),
        number=it.steps,
        groups=[len(group["params"]) for group in optimizer.param_groups],
        torchs=type(optimizer).__module__.startswith("torch."),
        begun=isinstance(state := getattr(optimizer, "state", None), Mapping) and len(state) > 0,
    )
    _note_left_out(writer, it, parameters, described, known, optimizers)
    with_filled = Derived(partial(_with, described), fast_digests.filled(seen))
    later_records.write(writer, record, parameters=with_filled, values=fast_digests.queued(parameters, but=it.unseen))


def _with(described: list[Parameter], filled: list[bool]) -> list[Parameter]:
    """The same with what a device may have taken its time for."""
    return [msgspec.structs.replace(one, filled=its) for one, its in zip(described, filled, strict=True)]


def _note_left_out(
    writer: recorder.Recorder,
    it: Watched,
    parameters: list[torch.Tensor],
    described: list[Parameter],
    known: dict[int, models.Place],
    optimizers: Iterable[Any],
) -> None:
    """Where it steps what no model has any more, say what of the models nobody steps.

    What has a gradient is not stepped in vain: so have copies in full precision, and weights that ranks share.
    """
    stale = [
        place
        for place, one in enumerate(described)
        if one.model is None and one.wrapper is None and parameters[place].grad is None
    ]
    if not known or not stale:
        return
    held = {id(p) for one in optimizers for group in one.param_groups for p in group["params"]}
    held.update(id(p) for p in parameters)
    left = [(at, p) for at, p in models.trainable(known) if id(p) not in held and p.grad is not None]
    if left:
        writer.write(
            LeftOut(
                **writer.next(),
                optimizer=it.number,
                number=it.steps,
                stale=stale,
                names=[at.path for at, _ in left],
                kinds=[fast_digests.kind(p) for _, p in left],
            )
        )
