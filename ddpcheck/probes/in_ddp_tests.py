"""The probes that every rank carries."""

from __future__ import annotations

from ddpcheck.probes.data import sampler_order
from ddpcheck.probes.ddp import armed_forwards
from ddpcheck.probes.optimizers import stepped_parameters


def watch_training() -> None:
    """Begin to record what assertions will need to know of the past: arming forwards, steps, and passes."""
    armed_forwards.watch()
    sampler_order.watch()
    stepped_parameters.watch()
