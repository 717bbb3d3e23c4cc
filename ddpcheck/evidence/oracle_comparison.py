"""How a trainer's steps compare with those of one process: what the replay has measured, as plain data."""

from __future__ import annotations

import msgspec

from ddpcheck.vocabulary.model import Struct


class Gap(Struct, frozen=True, kw_only=True):
    """One parameter after one step."""

    name: str
    worst: float
    """The greatest difference of an element from that of one process."""
    allowed: float
    """What rounding can make of it: measured by rounding otherwise, for this model, at this step."""
    index: tuple[int, ...]
    found: float
    expected: float
    same_bits: bool

    @property
    def wrong(self) -> bool:
        return not self.worst <= self.allowed  # NaN is no agreement


class Likeness(Struct, frozen=True, kw_only=True):
    """How one vector lies to another one of all parameters together."""

    ratio: float
    """How many times the other one it is, as far as it points the same way."""
    cosine: float
    """1 where both point the same way, -1 where they are opposed."""


class ComparedStep(Struct, frozen=True, kw_only=True):
    """One optimizer step, held against that of one process on the same global batch, from the same parameters."""

    step: int
    gaps: tuple[Gap, ...]
    gradient: Likeness
    """The trainer's gradient on entry to the step, to that of one process (clipped, where the job says so)."""
    update: Likeness
    """The change of the parameters, to that of one process."""
    others: dict[str, Likeness] = msgspec.field(default_factory=dict)
    """The trainer's gradient, to what certain mistakes would make of it."""
    norm: float = 0.0
    """Of the trainer's gradient."""
    expected_norm: float = 0.0
    factor: float | None = None
    """By what the loss was scaled before backward on rank 0, where that was the same for the whole step."""
    micros: tuple[int, ...] = ()
    """Micro-batches of each rank."""
    numbers: tuple[int, ...] = ()
    """Samples, or tokens, of each rank."""


OTHER_DTYPE = "the parameters that are stepped have another dtype, or shape, than job.model's"
"""Why nothing can be compared of a model that was cast."""


class Comparison(Struct, frozen=True, kw_only=True):
    """All steps of a training."""

    steps: tuple[ComparedStep, ...] = ()
    trouble: str = ""
    """Why there is nothing to compare with, as a clause."""
