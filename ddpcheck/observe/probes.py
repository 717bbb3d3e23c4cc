"""The probes that every rank carries."""

from __future__ import annotations

from ddpcheck.observe import arming, ordering, stepping


def watch_training() -> None:
    """Begin to record what assertions will need to know of the past: arming forwards, steps, and passes."""
    arming.watch()
    ordering.watch()
    stepping.watch()
