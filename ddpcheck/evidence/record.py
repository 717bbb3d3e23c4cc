"""What every record has, and the clock that it is told by."""

from __future__ import annotations

import importlib
import pkgutil
from typing import ClassVar

import msgspec

from ddpcheck.vocabulary.bounded_numbers import Seconds
from ddpcheck.vocabulary.clock import clock

NO_SITE = 0
"""The site of what no line of the user's code has called."""


WIDTH = 8
"""Bytes of one digest."""

ABSENT = bytes(WIDTH)
"""In the place of a digest: there is nothing to have one."""


UNSEEN = b"\xff" * WIDTH
"""In the place of a digest: there is something, and nobody has looked at it."""


class Record(msgspec.Struct, frozen=True, array_like=True, tag=True, kw_only=True):
    """A fact of one process. ``n`` counts the process's records, written or not; ``at`` is its monotonic clock."""

    n: int
    at: Seconds

    share: ClassVar[float] = 0.0
    """The part of an evidence file that this kind may fill; 0 for those that share the rest with all others."""
    unlimited: ClassVar[bool] = False
    """It is written whatever the file's limit: there are few, and a rank that has ended well must not look stuck."""
    judged: ClassVar[bool] = True
    """Judges look at it; what is for the timeline alone is read from the file once more when one is made."""
    passing: ClassVar[bool] = False
    """There is ever more of it, the longer a run: what has been judged of it need be held no longer."""


def kinds() -> list[type[Record]]:
    """Every kind of record: the classes of this package's modules that are one."""
    package = importlib.import_module("ddpcheck.evidence")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"ddpcheck.evidence.{module.name}")
    return sorted(Record.__subclasses__(), key=lambda kind: kind.__name__)


def now() -> float:
    """The clock of ``at``: the same for all processes of a machine."""
    return clock.now()
