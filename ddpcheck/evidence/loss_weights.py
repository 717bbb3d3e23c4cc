"""What the elements of a loss count in one backward()."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from ddpcheck.evidence.record import Record

ORACLE = "DDPCHECK_ORACLE"
"""In the environment of a process that is to weigh them."""


class Term(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """What one backward() has given to a part of the loss that is a mean or a sum of elements."""

    by: str
    """The operation of autograd that has made the elements, or their mean: ``NllLoss``."""
    elements: int
    """Those that count: a target that is ignored does not."""
    weight: float
    """The gradient of each, without its sign; what was seen of it is the same for all."""
    kind: str
    """``mean`` or ``sum`` of a criterion of torch; ``elements`` where the program makes one number of them itself."""
    factors: str = ""
    """The operations by which the whole part was scaled, as ``*`` and ``/``."""
    scales: list[float] = msgspec.field(default_factory=list)
    """What each of them multiplies by, without its sign, where the loss has several parts."""
    scaled: bool = False
    """Elements were multiplied by something before: whether that was a part of the scale cannot be told."""


class LossWeights(Record, frozen=True, kw_only=True):
    """The loss of one backward()."""

    share: ClassVar[float] = 0.1
    passing: ClassVar[bool] = True

    backward: int
    """Counted as in Contributions."""
    site: int
    terms: list[Term] = msgspec.field(default_factory=list)
    why: str = ""
    """Why there are none, as a clause."""
    fresh: bool = False
    """A loader had handed out a batch since the backward() before."""
    continued: bool = False
    """It was given gradients that another rank, or another backward(), has computed: there is no loss here."""
    value: float | None = None
    """Of the loss, as far as it is one number: ranks that share a batch have the same."""
