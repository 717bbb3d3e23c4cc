"""How long a process's forwards, backwards, steps, calls, batches and files take: kept for a while, written in rows.

An event costs a reading of the clock and an entry of a list. No device is
waited for: on a GPU these are the times of the Python calls.
"""

from __future__ import annotations

import os

from ddpcheck.evidence import SPAN_KINDS, Spans
from ddpcheck.probes.processes import endings, main_thread
from ddpcheck.probes.recording import recorder
from ddpcheck.probes.recording.patching import defect

ROW = 256
"""Spans that are written as one record."""
BETWEEN_STEPS = 64
"""Forwards, evaluations and batches that are kept between two steps, or two looks where there are none."""
WINDOW = 16
"""Steps that are kept or left out together, where room is scarce: the same ones on all ranks."""

FORWARD, EVALUATION, BACKWARD, STEP, CALL, DATA, FILE = range(len(SPAN_KINDS))
LONGEST = 25
"""Bytes of one span."""
_COUNTED = frozenset({FORWARD, EVALUATION, DATA})

_Span = tuple[int, float, float, int, int]


class _Log:
    """The spans of one process that are not written yet."""

    def __init__(self) -> None:
        self.on = False
        self.spans: list[_Span] = []
        self.since_step = self.left_out = self.steps = 0


_log = _Log()


def watch() -> None:
    """Keep times from now on: a rank of a test has none to show."""
    _log.on = True
    os.register_at_fork(after_in_child=_begin_again)
    main_thread.also(write)
    endings.before_end(write)


def _begin_again() -> None:
    """What is not written yet is the parent's."""
    _log.spans, _log.since_step, _log.left_out, _log.steps = [], 0, 0, 0


def add(kind: int, began: float, ended: float, site: int = 0, number: int = 0) -> None:
    """Note a stretch of time, on the clock of records."""
    log = _log
    if not log.on:
        return
    if kind in _COUNTED:
        log.since_step += 1
        if log.since_step > BETWEEN_STEPS:
            log.left_out += 1
            return
    elif kind == STEP:
        log.since_step = 0
        log.steps += 1
    log.spans.append((kind, began, ended, site, number))
    if len(log.spans) >= ROW or (kind == STEP and not log.steps % WINDOW):
        try:
            write()
        except Exception as error:
            defect(error)


def write() -> None:
    """Write down what there is: also now and then while nothing ends, and at the end of the process."""
    log, writer = _log, recorder.always()
    spans, log.spans = log.spans, []
    left_out, log.left_out, log.since_step = log.left_out, 0, 0
    if writer is None or not spans or (log.steps // WINDOW) % writer.stride(Spans):
        return
    if writer.room(Spans) < 100 + LONGEST * len(spans):
        return
    base = min(span[1] for span in spans)
    packed: list[int] = []
    for kind, began, ended, site, number in spans:
        packed += (kind, round((began - base) * 1e6), max(0, round((ended - began) * 1e6)), site, number)
    writer.write(Spans(**writer.next(), base=base, packed=packed, left_out=left_out))
