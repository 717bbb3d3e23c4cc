"""What a rank's main work took: forwards, backwards, steps, calls, waits for data and files, one after the other."""

from __future__ import annotations

from typing import ClassVar

from ddpcheck.evidence.record import Record
from ddpcheck.vocabulary.bounded_numbers import Microseconds, Seconds

SPAN_KINDS = ("forward", "evaluation", "backward", "step", "call", "data", "file")
"""What a span is of, by its number in the record."""

FIELDS = 5
"""Numbers that a span is written with."""


class Spans(Record, frozen=True, kw_only=True):
    """Stretches of time, in the order in which they ended, several in one record.

    ``packed`` has five numbers for each: the place of its kind in SPAN_KINDS; its
    beginning, in microseconds since ``base``; its length in microseconds; its line,
    0 for none; and a number: of a ``step`` which one of its optimizer, of ``data`` which
    batch of its pass, of a ``call`` or a ``file`` the ``n`` of the record that it is about.
    """

    share: ClassVar[float] = 0.05
    judged: ClassVar[bool] = False

    base: Seconds
    """On the clock of ``at``."""
    packed: list[Microseconds]
    left_out: int = 0
    """Spans of these stretches that are not among them, because there were too many between two steps."""
