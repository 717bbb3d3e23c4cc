"""What of a batch went into a loss: the places along its second dimension, such as the tokens of a sequence."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from ddpcheck.evidence.record import Record


class Part(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A tensor that backward() needs again, and that is made of places of a tensor of the batch."""

    tensor: int
    """Which one of the batch."""
    by: str
    """The operation of autograd that keeps it: ``Embedding``, ``NllLoss``."""
    size: int
    """How many places it has itself."""
    runs: list[list[int]]
    """Where the batch's places are in it, in a row each: its own place, the batch's, and how many."""


class Sequences(Record, frozen=True, kw_only=True):
    """One backward(), and the batch that was handed out before it."""

    share: ClassVar[float] = 0.02
    passing: ClassVar[bool] = True

    number: int
    """The backward() calls of this process, from 0."""
    site: int
    digests: bytes = b""
    """One for each tensor of the batch: ranks with the same ones were handed the same."""
    lengths: list[int] = msgspec.field(default_factory=list)
    """How many places each has."""
    parts: list[Part] = msgspec.field(default_factory=list)
    breaks: list[list[int]] = msgspec.field(default_factory=list)
    """Of each tensor the places where another text may begin: with what the first one begins with, or after its end."""
    in_rank_order: bool = False
    """What ranks had gathered along these places was joined in their order."""
    any_order: bool = False
    """Attention goes over what was joined, and none of it takes the places there for those of the sequence."""
    unseen: bool = False
    """The loss lies on a device, where nothing is looked at."""
