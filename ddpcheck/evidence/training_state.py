"""What a training holds, and what became of a call of the user's: the nouns of checkpoint assertions."""

from __future__ import annotations

import re
from typing import Literal

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
