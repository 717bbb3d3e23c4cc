"""Worlds that run, or that an agent has ended, written by hand."""

from __future__ import annotations

from ddpcheck import evidence as ev
from tests.judging.written import call

NOW = 100.0


def pulse(pending, line=5, doing="wait", **more):
    return ev.Pulse, {"site": line, "doing": doing, "pending": pending, "since": 0.0, **more}


def left(line=9):
    return ev.Left, {"site": line}


def waits(op="barrier", number=1, line=5, **more):
    """A rank that has made one call, and waits in it: the record has number 2."""
    return [call(number, line, op, **more), pulse(2, line)]
