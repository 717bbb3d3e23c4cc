"""What a checkpoint was given and gave back: each entry by its name, which part of which tensor it is, and sums."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from ddpcheck.evidence.layouts import Layout
from ddpcheck.evidence.record import Record
from ddpcheck.evidence.sketches import NUMBERS

SUMS = NUMBERS + 2
"""Doubles of each entry, which add up over the parts of a tensor: its sketch, the sum of all elements, and that of
their squares. Where the last two are equal and the first is not, the same elements lie in another order."""

Role = Literal["parameter", "buffer", "moment", "random", ""]
"""What it is of the training: of a model, of an optimizer's state for a parameter, a stream; nothing that is known."""


class Entry(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """One tensor, number or text of a state dict."""

    name: str
    """The keys that lead to it, with dots between them."""
    kind: str
    """``float32[3, 4]`` of the part that this rank has; the class of what is no tensor."""
    role: Role = ""
    of: str = ""
    """The parameter's or buffer's path in its model; of a moment, that of the parameter that it belongs to."""
    key: str = ""
    """Of a moment: which."""
    live: bool = False
    """It lies in the memory of what is being trained: nothing was copied."""
    layout: Layout | None = None
    whole: bool = False
    """It is a copy with the shape that is declared of the whole, where the training has parts."""


class StateForm(Record, frozen=True, kw_only=True):
    """The entries of a state dict, all but what they hold: one form serves as long as nothing else changes."""

    form: int
    entries: list[Entry]
    left_out: int = 0
    """Entries beyond those that are looked at."""


class StateSaved(Record, frozen=True, kw_only=True):
    """A state dict was given to be saved."""

    share: ClassVar[float] = 0.08

    save: int
    how: Literal["torch.save", "dcp.save", "dcp.async_save"]
    path: str
    site: int
    number: int
    """How many of this line there were before."""
    form: int
    digests: bytes
    """Eight bytes for each entry, of the part that this rank has."""
    sums: bytes
    """SUMS doubles for each entry; not a number where there are none."""
    thread: str = ""
    mistaken: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """The place of an entry, and of another whose tensor in the model it holds: its own is another one."""
    ranks: tuple[int, ...] = ()
    """Those that save together; empty for a file of this rank's."""


class SaveBegan(Record, frozen=True, kw_only=True):
    """A state dict is about to be saved, be it looked at or not: what was there before is not there any more."""

    path: str


class StateWritten(Record, frozen=True, kw_only=True):
    """What was saved has been written: which of it had become something else by then."""

    share: ClassVar[float] = 0.02

    save: int
    changed: list[int]
    """The places of entries that no longer held what they held when they were given."""
    staged: bool = False
    """A copy was written, and this is a comparison with that."""


class StateRead(Record, frozen=True, kw_only=True):
    """State was loaded: what its owner holds now, or what a file has given."""

    share: ClassVar[float] = 0.08

    how: Literal["torch.load", "dcp.load", "module", "optimizer"]
    kind: str
    """The owner's class; empty for a state dict."""
    path: str
    """Of the checkpoint, where it is known to the call itself."""
    site: int
    number: int
    form: int
    digests: bytes
    sums: bytes
    given: int = 0
    """Entries of what was given, where that is known."""
    when: int = 0
    """The ``n`` of the moment when it was loaded, where it was looked at later."""
    made: int = 0
    """Optimizers that this process had built by then."""
    model: int = -1
    """The number of the module, where it is one."""


class LoadBegan(Record, frozen=True, kw_only=True):
    """torch.distributed.checkpoint begins to load."""

    path: str
    site: int


class StateAsked(Record, frozen=True, kw_only=True):
    """An optimizer's state dict was asked for, and it had to make a step to have any."""

    how: str
    optimizer: int
    kind: str
    site: int
    changed: list[str]
    """Keys of the state that it holds now and has not held before."""
