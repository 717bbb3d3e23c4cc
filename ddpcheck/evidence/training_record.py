"""What one rank puts on record of a training: every forward, loss, step and report, in order, as plain data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec


class Fact(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of all records; the class name is the tag."""


class Part(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Which part of a parameter a rank holds."""

    shape: tuple[int, ...]
    """Of the whole."""
    offset: tuple[int, ...]
    local: tuple[int, ...]
    copy: tuple[int, ...] = ()
    """The ranks that have the whole among them, once."""


class Began(Fact, frozen=True, kw_only=True):
    """The trainer was called."""

    parameters: list[str]
    """The names of the model's parameters that require gradients, in order."""


class Forward(Fact, frozen=True, kw_only=True):
    """A forward of the model."""

    training: bool
    """In training mode, and with gradients."""
    samples: list[int]
    draws: list[float]
    """What came with the samples, where they are augmented: of torch before the point, of Python after it."""
    of_numpy: list[float] = []
    """What numpy has drawn for them."""
    device: str = "cpu"
    """The kind of device that it computed on."""
    arithmetic: str = ""
    """What it computed in: the dtype of its outputs."""
    masks: list[bytes] = []
    """What dropout let through, one byte for each element, layer by layer."""
    parameters: str = ""
    """A digest of all parameters."""
    statistics: str = ""
    """A digest of all buffers, before this forward changed them."""


class Lost(Fact, frozen=True, kw_only=True):
    """The loss was computed of so many samples (or tokens)."""

    value: float
    number: int


class Pulled(Fact, frozen=True, kw_only=True):
    """The gradient that came back to a loss: by which factor the trainer has scaled it."""

    factor: float


class Step(Fact, frozen=True, kw_only=True):
    """A step of an optimizer over the model's parameters."""

    rates: list[float]
    """The learning rate of each group."""
    before: list[bytes]
    """Each parameter, as its elements' bytes; in the order of ``Began.parameters``."""
    gradients: list[bytes | None]
    after: list[bytes]
    frozen: list[bytes] = []
    """The parameters that require no gradient."""
    moments: str
    """A digest of the optimizer's state, after the step."""
    parts: list[Part | None] = []
    """Where the model is sharded: of each parameter that is trained what the bytes here are of; None for the whole."""
    frozen_parts: list[Part | None] = []


class ForeignStep(Fact, frozen=True, kw_only=True):
    """A step of an optimizer that has none of the model's parameters."""


class Reported(Fact, frozen=True, kw_only=True):
    """The trainer has reported a metric of the model as it was then."""

    name: str
    value: float
    expected: float
    """The metric of that model over the whole validation set, as one process computes it."""
    others: dict[str, float] = {}
    """What it comes to by certain mistakes: see ``mistaken``."""


class Scheduled(Fact, frozen=True, kw_only=True):
    """A scheduler that waits for a plateau was stepped with this value."""

    value: float


class Raised(Fact, frozen=True, kw_only=True):
    """The loss has raised, as the situation wants it on this rank."""


class Saving(Fact, frozen=True, kw_only=True):
    """From here on this rank is killed by the first write that goes beyond a part of its checkpoint."""


class NotSupportedSaid(Fact, frozen=True, kw_only=True):
    """The adapter has said that its library has no such thing."""

    text: str


class Returned(Fact, frozen=True, kw_only=True):
    """The trainer has returned; the model as it is now."""

    parameters: list[bytes]
    parts: list[Part | None] = []


AnyFact = (
    Began
    | Forward
    | Lost
    | Pulled
    | Step
    | ForeignStep
    | Reported
    | Scheduled
    | Raised
    | Saving
    | NotSupportedSaid
    | Returned
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[AnyFact] = msgspec.msgpack.Decoder(AnyFact)


def frame(fact: Fact) -> bytes:
    """A fact as it is written: four bytes of length, and msgpack."""
    body = _encoder.encode(fact)
    return len(body).to_bytes(4, "little") + body


def file_of(folder: Path, rank: int) -> Path:
    """Where a rank's facts are."""
    return folder / f"rank{rank}.facts"


def read(file: Path) -> Iterator[Any]:
    """The facts of one rank, up to the last whole one; none where it never began."""
    if not file.exists():
        return
    data, start = file.read_bytes(), 0
    while len(data) - start >= 4:
        end = start + 4 + int.from_bytes(data[start : start + 4], "little")
        if end > len(data):
            return
        yield _decoder.decode(data[start + 4 : end])
        start = end
