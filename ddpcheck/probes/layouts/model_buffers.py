"""The buffers of models in no wrapper after steps: nothing brings those of several ranks together by itself."""

from __future__ import annotations

from functools import partial

from ddpcheck.evidence import BuffersHeld
from ddpcheck.probes.ddp.wrappers import is_wrapped, owners_of_buffers
from ddpcheck.probes.digests import fast_digests
from ddpcheck.probes.layouts import models
from ddpcheck.probes.layouts.own_names import own_name
from ddpcheck.probes.processes import later_records
from ddpcheck.probes.recording import recorder
from ddpcheck.probes.recording.pace import is_due


def note(writer: recorder.Recorder, optimizer: int, number: int, site: int) -> None:
    """Digests of the buffers that are part of a model's state, after a step that is due to be looked at."""
    if not is_due(number):
        return
    for model, module in models.alive():
        if is_wrapped(module):
            continue
        _, local = owners_of_buffers(module)
        kept = {own_name(name): buffer for name, buffer in module.named_buffers() if name not in local}
        if not kept:
            continue
        with recorder.silence():
            digests = fast_digests.queued(kept.values())
        described = partial(
            BuffersHeld,
            **writer.next(),
            model=model,
            optimizer=optimizer,
            number=number,
            site=site,
            names=list(kept) if list(kept) != models.buffers_of(model) else [],
        )
        later_records.write(writer, described, digests=digests)
