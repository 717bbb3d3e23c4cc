"""Activation checkpointing: what a part of the forward did when it ran once more for backward()."""

from __future__ import annotations

import msgspec

from ddpcheck.evidence.record import Record


class Recomputed(Record, frozen=True, kw_only=True):
    """A checkpointed function has run again."""

    site: int
    """The line that has it checkpointed."""
    number: int
    """Runs of this process, from 0."""
    drew: list[str]
    """The kinds of random streams that it has moved on when it ran again: none that it sets itself, or that torch has
    put back around the run.
    """
    apart: list[str]
    """Of these, those that began from another state than at its first run."""
    buffers: list[str] = msgspec.field(default_factory=list)
    """Those of a model whose values both runs have changed in place."""
