"""Windows of accumulation: what became of gradients between the micro-batches that go into one step."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from ddpcheck.evidence.record import NO_SITE, Record

Became = Literal["kept", "zeroed", "lost", "rescaled", "overwritten", "other"]
"""What became of gradients until the next backward(): nothing; zero_grad() was called; they were gone without that;
they were multiplied by one number; what a collective gave was written over them; or anything else."""


class Between(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """What became of gradients between one backward() and the next, with no step between."""

    became: Became
    after: int
    """The line of the first backward()."""
    before: int
    """That of the second one."""
    factor: float = 1.0
    """What they were multiplied by."""
    place: int = 0
    """The first parameter for which it is so."""
    clip: int = NO_SITE
    """The line between that has clipped them, by torch's own function."""
    prepared: bool = False
    """A module was sharded, wrapped or made a stage between."""


class Window(Record, frozen=True, kw_only=True):
    """The backward() calls between two steps of an optimizer."""

    share: ClassVar[float] = 0.03
    passing: ClassVar[bool] = True

    optimizer: int
    number: int
    """The step."""
    site: int
    backwards: int
    backward_site: int
    """The last one."""
    between: list[Between]
    alone: bool = False
    """The step is made on what the last reduction has given, and on nothing else."""
    leftover: bool = False
    """Its first backward() has found the gradients that the step before was made on, and they were added to."""
    unreduced: bool = False
    """FSDP was told not to reduce in any of them."""
