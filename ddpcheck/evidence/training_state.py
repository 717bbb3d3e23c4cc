"""What a training holds, and what became of a call of the user's: the nouns of checkpoint assertions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from ddpcheck.vocabulary.model import CallSite, Struct

Kind = Literal[
    "parameter", "buffer", "buffer that is not saved", "optimizer", "state", "sampler", "random", "tensor", "counter"
]


class Value(Struct, frozen=True, kw_only=True):
    """One thing that a training holds."""

    kind: Kind
    digest: str = ""
    """Of a tensor's or a stream's bytes; empty for what ``shown`` says whole."""
    shown: str = ""
    device: str = ""
    form: str = ""
    """Of a tensor: dtype and shape."""

    @property
    def is_empty(self) -> bool:
        """A tensor without elements: there is nothing that could be loaded."""
        return re.search(r"[\[ ]0[,\]]", self.form) is not None

    def equals(self, other: Value | None) -> bool:
        """Whether both are the same to the bit, wherever they lie."""
        if other is None:
            return False
        if self.digest or other.digest:
            return (self.digest, self.form) == (other.digest, other.form)
        return self.shown == other.shown


Holdings = dict[str, Value]
"""By name."""


class Failure(Struct, frozen=True, kw_only=True):
    """A function of the user's has raised on a rank."""

    doing: str
    """``save``, ``load``, ``build`` or ``step``."""
    kind: str
    message: str
    where: CallSite | None = None
    """The innermost line of the user's."""
    reaction: bool = False
    """It only tells that another rank was lost."""
    file: str = ""
    """The file that was being loaded."""
    state: str = ""
    """What that file looks like: ``empty``, ``not there``, ``cut off`` …; empty for one that is whole."""


LASTING = ("parameter", "buffer")
"""The kinds that a module's state_dict holds."""


class Loaded(Struct, frozen=True, kw_only=True):
    """What one rank held when it saved, before it loaded, and afterwards."""

    saved: Holdings = msgspec.field(default_factory=dict)
    """Empty where that is not known: then ``left`` says what is missing."""
    before: Holdings = msgspec.field(default_factory=dict)
    after: Holdings = msgspec.field(default_factory=dict)
    left: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    """Tensors of which the load has left elements as they were: how many, of how many."""
    not_looked_at: tuple[str, ...] = ()
    """Tensors that could not be overwritten before, so that this is not known of them."""
    failure: Failure | None = None
    how: str = ""
    """Into what it was loaded, where that is not what was saved: ``saved from …, loaded into …``."""


class Resumed(Struct, frozen=True, kw_only=True):
    """What one rank has come to without stopping, and after a save and a load."""

    steps: int
    saved: Holdings = msgspec.field(default_factory=dict)
    loaded: Holdings = msgspec.field(default_factory=dict)
    went_on: Holdings = msgspec.field(default_factory=dict)
    resumed: Holdings = msgspec.field(default_factory=dict)
    batches_went_on: tuple[str, ...] = ()
    """A digest of what the modules were given, for each step."""
    batches_resumed: tuple[str, ...] = ()
    idle: frozenset[str] = frozenset()
    """Streams and counters that no step has moved: they are not compared."""
    ignored: frozenset[str] = frozenset()
    in_order: bool = True
    """Sums of gradients depend on nothing but the gradients; else, in both, on how DDP has laid out its buckets."""
    failure: Failure | None = None


def is_any(value: Value | None, name: str, said: Sequence[Loaded | Resumed]) -> bool:
    """Whether it is what some rank has saved under this name."""
    return value is not None and any(value.equals(one.saved.get(name)) for one in said)
