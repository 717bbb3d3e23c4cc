"""Which part of which logical tensor a rank holds, and who says so: models, meshes, and what has sharded them."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import msgspec

from ddpcheck.evidence.record import ABSENT, NO_SITE, Record
from ddpcheck.vocabulary.bounded_numbers import RankCount, RankNumber

Ground = Literal["DTensor", "FSDP", "ignored", "beside"]
"""Who says which part a rank holds: a DTensor's placements; FSDP's flat parameter; the program, which has told the
wrapper to leave it alone; or nobody, of a plain tensor in a model that is otherwise sharded (``beside``)."""


class Layout(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Which part of a logical tensor a rank holds."""

    ground: Ground
    shape: tuple[int, ...] = ()
    """Of the whole tensor."""
    mesh: int | None = None
    """The number of the mesh that it lies on, as this process counts them."""
    placements: tuple[str, ...] = ()
    """For each dimension of the mesh: ``R`` for a copy, ``S0`` for a shard of dimension 0, ``P`` for a partial sum,
    ``?`` for one that is not known."""
    holders: tuple[int, ...] = ()
    """The ranks that hold the same elements, as is declared, in order; empty where that is not known."""
    local: tuple[int, ...] = ()
    """The shape of the part."""
    offset: tuple[int, ...] | None = None
    """Where the part begins in the whole; None where that was not asked for, or cannot be said."""
    among: tuple[int, ...] = ()
    """The ranks that FSDP has dealt it out to; empty where each of them has all of it."""

    @property
    def sharded(self) -> bool:
        """Whether other ranks hold other elements."""
        return self.ground == "FSDP" or any(one[:1] not in ("R",) for one in self.placements)


class Mesh(Record, frozen=True, kw_only=True):
    """A mesh that some tensor lies on."""

    mesh: int
    names: tuple[str, ...]
    """Of its dimensions; empty where they have none."""
    shape: tuple[RankCount, ...]
    ranks: tuple[RankNumber, ...]
    """In the order of its elements, the last dimension fastest."""
    device: str = ""
    """The kind of devices that it is of: ``cpu``, ``cuda``."""

    def __post_init__(self) -> None:
        if math.prod(self.shape) != len(self.ranks):
            raise ValueError("a mesh has one rank for each of its elements")


class Held(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A parameter or buffer of a model, as one rank holds it."""

    name: str
    kind: str
    buffer: bool = False
    layout: Layout | None = None
    digest: bytes = ABSENT
    filled: bool = False
    """Its elements are all one number, as far as was looked at."""
    same_as: str = ""
    """The first name of the tensor, where it has several."""
    written: bool = True
    """False where its memory was handed out unwritten, and nothing was seen to write to it since."""
    persistent: bool = True
    cut_from: bytes = b""
    """The digest of the whole tensor that it was cut from on this rank, as long as it was not written to since."""
    cut_by: tuple[int, ...] = ()
    """The ranks that have cut one tensor among them."""
    site: int = NO_SITE
    """The line that has set it in its module."""
    owner: str = ""
    """Of a buffer: the class of its module."""


class Tie(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Two names of a model that were given the same parameter."""

    first: str
    """Empty where it is no name of the model any more: a stage has one of both."""
    second: str
    same: bool
    """They still have the same one."""
    words: str
    """By their classes, the same on every rank."""


class Model(Record, frozen=True, kw_only=True):
    """A module at its first outermost forward with gradients."""

    model: int
    kind: str
    """Its class."""
    site: int
    held: list[Held]
    ties: list[Tie] = msgspec.field(default_factory=list)
    unread: int = 0
    """Tensors that were handed out unwritten on a device, of which nobody knows whether they were written to since."""


class BuffersHeld(Record, frozen=True, kw_only=True):
    """The buffers of a model in no wrapper that are part of its state, after a step."""

    passing: ClassVar[bool] = True

    model: int
    optimizer: int
    number: int
    """The optimizer's step."""
    site: int
    digests: bytes
    names: list[str] = msgspec.field(default_factory=list)
    """The buffers, where they are not those of the Model."""


class Parallelised(Record, frozen=True, kw_only=True):
    """A module was sharded or wrapped, by torch's own function for it."""

    how: Literal["fully_shard", "FullyShardedDataParallel", "parallelize_module", "PipelineStage"]
    site: int
    ranks: tuple[int, ...] = ()
    """Those among which the module is sharded or copied, as far as is known."""
    stage: int | None = None
    stages: int | None = None
    pipeline: tuple[int, ...] = ()
    """The ranks of the pipeline that the stage belongs to."""
    module: int = -1
    """The modules of this process, counted as they are met."""
