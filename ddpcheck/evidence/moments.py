"""The moments of a window: what logical tensors held, contributed and were stepped on, as sketches and digests.

A window is the time between two steps of the optimizer that owns a parameter.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from ddpcheck.evidence.layouts import Layout
from ddpcheck.evidence.record import WIDTH, Record
from ddpcheck.evidence.sketches import NUMBERS

SIZE = 8 * NUMBERS
"""Bytes of a sketch."""

At = Literal["W", "G", "U"]
"""The parameter at the first forward of a window, or on entry to the step; its gradient on entry; the parameter when
the step has returned."""
Origin = Literal["unseen", "input", "module", "code", "later"]
"""Where a loss comes from: what its model was given, what a module made, or one was called with that none had made, or
what came after all modules."""


class Piece(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """The part of one logical tensor that a tensor of this rank holds."""

    piece: int
    """The pieces of this process, counted."""
    model: int
    """The number of the model that has it; -1 for a tensor of no model."""
    path: str
    """Its name in there."""
    dtype: str
    shape: tuple[int, ...]
    """Of the whole tensor."""
    sizes: tuple[int, ...]
    """Of the part; of a run of elements how many they are."""
    offset: tuple[int, ...] = ()
    """Where the part begins in the whole; of a run one number, of the flattened whole."""
    is_run: bool = False
    layout: Layout | None = None
    wrapper: int | None = None
    """The DDP wrapper that reduces it."""


class Pieces(Record, frozen=True, kw_only=True):
    """Pieces that are met for the first time."""

    pieces: list[Piece]


class Values(Record, frozen=True, kw_only=True):
    """What pieces hold at a moment."""

    share: ClassVar[float] = 0.04
    passing: ClassVar[bool] = True

    at_moment: At
    optimizer: int | None
    """None for W at a forward, where the steps of several may begin."""
    number: int
    """The step of the optimizer; without one, the steps of all so far."""
    backwards: int
    """The backward() calls of this process so far."""
    pieces: list[int]
    places: list[int]
    """The place of each among the optimizer's parameters; -1 for one that it does not own."""
    digests: bytes
    sketches: bytes
    """Doubles, NUMBERS for each piece; not a number where there are none."""
    layouts: dict[int, Layout] = msgspec.field(default_factory=dict)
    """By place in ``pieces``, how gradients lie that lie otherwise than their parameter."""
    since: tuple[int, int] = (0, 0)
    """Of a G, the backward() calls, and the steps of all, up to the optimizer's step before."""

    def __post_init__(self) -> None:
        number = len(self.pieces)
        if (len(self.places), len(self.digests), len(self.sketches)) != (number, number * WIDTH, number * SIZE):
            raise ValueError("a piece has one place, one digest and one sketch")


class Contributions(Record, frozen=True, kw_only=True):
    """What one backward() has contributed to pieces on this rank, before anything was reduced."""

    share: ClassVar[float] = 0.03
    passing: ClassVar[bool] = True

    backward: int
    """The backward() calls of this process, counted from 1."""
    site: int
    how: Literal["backward", "grad"]
    pieces: list[int]
    sketches: bytes
    whole: list[bool]
    """Each is that of a whole tensor, of which the piece is a part; of a DTensor as its layout says."""
    versions: list[int]
    """How often each parameter had been written to in place."""
    layouts: dict[int, Layout] = msgspec.field(default_factory=dict)
    """By place in ``pieces``, how gradients lie that are DTensors."""
    calls: list[tuple[str, str, int | None]] = msgspec.field(default_factory=list)
    """The program's collectives within this backward(), over more than a few numbers that are no parameter's gradient:
    operation, group and peer, each once."""
    after: list[int] = msgspec.field(default_factory=list)
    """How many of these came before what reaches each piece; none where there are no such calls."""

    def __post_init__(self) -> None:
        number = len(self.pieces)
        if (len(self.whole), len(self.versions), len(self.sketches)) != (number, number, number * SIZE):
            raise ValueError("a piece has one sketch")
        if len(self.after) != (number if self.calls else 0) or any(not 0 <= n <= len(self.calls) for n in self.after):
            raise ValueError("each piece comes after some of the calls")


class NotFinite(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Losses of one line that were NaN or infinite from a step on."""

    site: int
    """That of the backward() calls."""
    backward: int
    """The first one, counted as in Contributions."""
    is_nan: bool
    """The first one's loss; else it was infinite."""
    origin: Origin
    """Where the first such number of its forward came up."""
    module: str
    """The path of the one that made it, or was called with it."""
    kind: str
    """Its class."""
    given_infinite: bool
    """It was called with numbers that are infinite, as a mask may have."""
    optimizer: int
    number: int
    """The step that was made on it."""
    times: int
    """Such losses on which a step was made."""
    kept: bool | None
    """The parameters of that optimizer are not finite since; None where that is not known."""


class Losses(Record, frozen=True, kw_only=True):
    """The losses of the backward() calls since the record before, as far as each is one number."""

    share: ClassVar[float] = 0.01

    met: int
    finite: int
    lost: int
    """Those that were NaN or infinite. The others could not be looked at, or are no one number."""
    last_finite: int
    """The last backward() of the process so far whose loss was finite."""
    unlike: list[NotFinite]
    """By line and optimizer, those that go on."""


class Modes(Record, frozen=True, kw_only=True):
    """How a model's forwards ran that came before a backward()."""

    share: ClassVar[float] = 0.01
    passing: ClassVar[bool] = True

    model: int
    backward: int
    """Counted as in Contributions."""
    site: int
    """The line of the last forward."""
    training: bytes
    """A byte for each module, in the order of ``named_modules()``: 1 for one in training mode."""
    trained: bytes
    """A byte for each parameter, in the order of ``named_parameters()``: 1 for one that requires a gradient."""
    modules: list[str] = msgspec.field(default_factory=list)
    """Their names, where they are not those of the model's record before."""
    parameters: list[str] = msgspec.field(default_factory=list)
    several: bool = False
    """Several forwards came before this backward(), in different modes."""


class ModuleValues(Record, frozen=True, kw_only=True):
    """What modules with parameters of their own read and made in the forwards before a model's first backward().

    Of models of which no wrapper and no layout says how their parameters lie on ranks.
    """

    share: ClassVar[float] = 0.02
    passing: ClassVar[bool] = True

    model: int
    backward: int
    """Counted as in Contributions."""
    places: list[int]
    """The module of each call, in the order in which the calls began."""
    read: bytes
    """Digests, side by side: of the first tensor that each was given."""
    made: bytes
    """Of the first tensor that each has returned."""
    modules: list[str]
    """The names of the modules."""


class ModelUsed(Record, frozen=True, kw_only=True):
    """What a model holds when one that no optimizer steps is called: that one itself, or one that is trained."""

    share: ClassVar[float] = 0.02
    passing: ClassVar[bool] = True

    look: int
    """The looks of this process, counted: records of one look are of one moment."""
    model: int
    kind: str
    trained: bool
    """An optimizer steps it; else it is the one that is called."""
    steps: int
    """Optimizer steps that this process had made."""
    uses: int
    """The calls of the one that no optimizer steps so far, counted once for each number of steps."""
    site: int
    digests: bytes
    sketches: bytes
    """Doubles, NUMBERS for each tensor; not a number where there are none."""
    used: bytes
    """A byte for each tensor: 1 if its module was called within this call. Empty for a model that is trained."""
    names: list[str] = msgspec.field(default_factory=list)
    """Of parameters and buffers, where they are not those of the model's record before."""
    buffers: int = 0
    """How many of these are buffers: the last ones."""
    dtypes: list[str] = msgspec.field(default_factory=list)
    shapes: list[tuple[int, ...]] = msgspec.field(default_factory=list)
    """Of the whole tensors."""
    layouts: dict[int, Layout] = msgspec.field(default_factory=dict)
    """By place, how those lie of which somebody says so."""

    def __post_init__(self) -> None:
        number = len(self.digests) // WIDTH
        if len(self.sketches) != number * SIZE or len(self.used) not in (0, number):
            raise ValueError("a tensor has one digest and one sketch")
