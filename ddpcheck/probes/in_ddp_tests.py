"""The probes that every rank of a test carries: what assertions need to know of the past is kept in memory."""

from __future__ import annotations

from ddpcheck.probes import all_probes
from ddpcheck.probes.data import sampler_order
from ddpcheck.probes.recording import recorder, user_lines

PROBES = (
    "recording.tensor_references",
    "ddp.parameter_names",
    "ddp.wrappers",
    "ddp.conversions",
    "ddp.no_sync",
    "optimizers.gradient_events",
    "optimizers.steps",
)
"""What becomes of wrappers and optimizers: the part of a run's evidence that explains why ranks' models differ."""


def patch() -> None:
    """Put the probes in their places, once: before ranks are forked from here."""
    all_probes.patch(PROBES)
    sampler_order.watch()


def begin() -> None:
    """Keep records in this rank, which has joined its group."""
    patch()
    user_lines.reset()
    recorder.use(recorder.InMemory())
    all_probes.note_group("test")
