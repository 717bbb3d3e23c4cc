"""A line of a test, put on record as an optimizer step would be: what the ranks hold there, and what led to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ddpcheck.evidence import NOBODYS, AtLine, Mesh, Optimizer, Record, Step, Transfers, frame
from ddpcheck.probes.ddp.after_backward import with_gradients
from ddpcheck.probes.ddp.wrapper_usage import REGION, WRAPPERS
from ddpcheck.probes.ddp.wrappers import BACKWARDS
from ddpcheck.probes.devices.awaited import told
from ddpcheck.probes.digests import fast_digests
from ddpcheck.probes.optimizers import description, steps
from ddpcheck.probes.optimizers.optimizer_state import plain_number, scale_of
from ddpcheck.probes.optimizers.steps import Watched
from ddpcheck.probes.processes import later_records
from ddpcheck.probes.recording import missing_seams, recorder, user_lines
from ddpcheck.probes.recording.patching import defect


class Nobody:
    """Stands for the optimizer that a test has not stepped yet."""

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        self.param_groups = [{"params": parameters, "lr": None}]


def evidence(module: torch.nn.Module, gradients: bool) -> bytes:
    """The frames of what this rank has kept of a module, and of this line; empty where that shows no cause.

    ``gradients`` says what is asked of: those that no backward() has made since the last step are of no step to come.
    """
    writer = recorder.always()
    if not isinstance(writer, recorder.InMemory) or writer.is_full or (gradients and not BACKWARDS.count):
        return b""
    later_records.finish()  # whoever asserts, waits
    before = len(writer.kept)
    wrappers: set[int] | None = None
    try:
        with recorder.silence():
            wrappers = _at_line(writer, list(module.parameters()))
    except Exception as error:  # the finding is right without its cause, and says so
        defect(error)
    frames = b"".join(frame(record) for record in writer.kept if _bears_on(record, wrappers))
    # A mesh is written down once, and what is asked at a later line lies on it, too.
    writer.kept[before:] = [record for record in writer.kept[before:] if isinstance(record, Mesh)]
    return frames


def _at_line(writer: recorder.InMemory, parameters: list[torch.Tensor]) -> set[int]:
    """Put down what this rank holds at this line; the wrappers that have any of it."""
    missing_seams.look()  # what this torch lacks shows no cause; not sooner, which would cost every test
    missing_seams.write_all(writer)
    writer.write(AtLine(**writer.next()))
    found = steps.of_parameters(parameters)
    for optimizer, it in found or [(Nobody(parameters), Watched(NOBODYS, 0))]:
        _record(writer, optimizer, it, bool(found))
    # Nobody has watched what else goes between the ranks: that it makes nothing equal is what the assertion shows.
    writer.write(Transfers(**writer.next(), of_models=0, others=0))
    return {owner[1].number for one in parameters if (owner := WRAPPERS.owner(one)) is not None}


def _bears_on(record: Record, wrappers: set[int] | None) -> bool:
    """Whether a record is of these wrappers, or of none: what is done with other models is no cause here."""
    if not wrappers:
        return True
    if isinstance(record, Optimizer):
        own = {one.wrapper for one in record.parameters} - {None}
        return not own or bool(own & wrappers)
    return getattr(record, "wrapper", None) is None or record.wrapper in wrappers  # type: ignore[attr-defined]


def _record(writer: recorder.InMemory, optimizer: Any, it: Watched, stepped: bool) -> None:
    site = user_lines.here()
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if not stepped:
        description.write(writer, optimizer, it, parameters, site)
        later_records.finish()
    writer.write(
        Step(
            **writer.next(),
            optimizer=it.number,
            number=it.steps,
            site=site,
            gradients=fast_digests.digests([p.grad for p in parameters], None, it.unseen),
            parameters=fast_digests.digests(parameters, None, it.unseen),
            whole=True,
            state={},
            rates=told([plain_number(group.get("lr", 0.0), True) for group in optimizer.param_groups]),
            scale=told(scale_of(it.scaler, True)),
            usage=told([with_gradients(w.since(it.before.get(w.number, {})), w.after) for w in it.wrappers]),
            backwards=BACKWARDS.count,
            backward_site=BACKWARDS.site,
            collectives=0,
            region=REGION.number,
            place=it.steps - it.region_start,
        )
    )
