"""Whole numbers that an optimizer keeps in its groups of parameters and raises as it goes, such as a count of steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ddpcheck.evidence import GroupCounts
from ddpcheck.probes.optimizers import gradient_events
from ddpcheck.probes.recording import recorder
from ddpcheck.probes.recording.pace import is_due

MOST = 16
"""Entries of one optimizer."""

_first: dict[int, dict[str, int]] = {}
"""By optimizer, as they were on entry to its first step."""


def watch() -> None:
    """Look at them from now on."""
    gradient_events.STEP.also(_entered)


def _entered(
    writer: recorder.Recorder, optimizer: int, number: int, parameters: Sequence[torch.Tensor], site: int
) -> None:
    if not is_due(number):
        return
    if number == 0:
        gradient_events.forget_gone(_first)
        _first[optimizer] = dict(_counts(optimizer))
        return
    before = _first.get(optimizer, {})
    grown = {key: value - before[key] for key, value in _counts(optimizer) if value > before.get(key, value)}
    if grown:
        writer.write(GroupCounts(**writer.next(), optimizer=optimizer, number=number, grown=grown))


def _counts(optimizer: int) -> list[tuple[str, int]]:
    found: list[tuple[str, Any]] = [
        (f"{place} {key}", value)
        for place, group in enumerate(gradient_events.groups(optimizer))
        for key, value in group.items()
        if type(value) is int
    ]
    return found[:MOST]
