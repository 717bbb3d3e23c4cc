"""What a program measures its gradients by between a backward() and a step, and by how much it scales them."""

from __future__ import annotations

import struct
from typing import ClassVar, Literal

import msgspec

from ddpcheck.evidence.record import NO_SITE, Record

How = Literal[
    "clip_grad_norm_",
    "clip_grads_with_norm_",
    "get_total_norm",
    "FSDP.clip_grad_norm_",
    "all_reduce",
    "exchange",
    "backward",
]
"""torch's functions; FSDP's own; the program's own reduction of one number over ranks, or another collective of one; or
nothing but the end of the last backward()."""

CLIPS = ("clip_grad_norm_", "clip_grads_with_norm_", "FSDP.clip_grad_norm_")
"""The functions that clip, of those that measure."""

NOTHING = -1.0
"""In the place of a norm: there is no gradient, or none that can be read without waiting."""


class Norm(Record, frozen=True, kw_only=True):
    """What an optimizer's gradients were at a moment between backward() and step(), and what they were at the step."""

    share: ClassVar[float] = 0.05
    passing: ClassVar[bool] = True

    optimizer: int
    number: int
    """The step."""
    how: How
    moment: int
    """The number of the measurement in this process: those of one number are of several optimizers."""
    site: int
    """The line at which it was measured; that of the backward() where nothing else was seen."""
    norms: bytes
    """For each parameter a double: the norm of what this rank has of its gradient; or NOTHING."""
    power: float = 2.0
    """Of the norm: infinite for the largest element."""
    factor: float | None
    """What all of them were multiplied by until the step; None where it was not one number for all."""
    came: float | None = None
    """What came out of the reduction, or of torch's function; what ``clip_grads_with_norm_`` was given."""
    group: str = ""
    """The ranks of that collective."""
    largest: float | None = None
    """The norm up to which gradients are left alone, as torch's function was told."""
    scale: float | None = None
    """What the gradients were divided by after this, when a scaler undid its factor; None where none did so."""
    backwards_later: int = 0
    """The backward() calls that ended between the measurement and the step."""
    joint: list[str] = msgspec.field(default_factory=list)
    """The groups over which the program's own collectives went within the backward()."""
    step_site: int = NO_SITE

    def __post_init__(self) -> None:
        if len(self.norms) % 8 or not self.power > 0:
            raise ValueError("norms are doubles, of a positive power")


def packed(norms: list[float]) -> bytes:
    """How norms stand in a record."""
    return struct.pack(f"<{len(norms)}d", *norms)


def unpacked(norms: bytes) -> tuple[float, ...]:
    """The same as numbers."""
    return struct.unpack(f"<{len(norms) // 8}d", norms)


class PartRead(Record, frozen=True, kw_only=True):
    """A number was read of a DTensor whose parts are still to be brought together: what this rank's part gives."""

    share: ClassVar[float] = 0.01

    site: int
    number: int
    """How many of this line there were before."""
    what: str
    """``norm``, ``sum``, ``max`` or ``min``: what is to be made of the parts."""
    value: float
    ranks: tuple[int, ...]
    """Those that have parts."""


class PartsJoined(Record, frozen=True, kw_only=True):
    """Numbers that were read so at a line went into a collective of the program's own."""

    site: int
