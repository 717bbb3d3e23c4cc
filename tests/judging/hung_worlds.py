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


def queued(op="all_reduce", number=1, line=5, **more):
    """A call that was only queued on a device."""
    return call(number, line, op, queued=True, **more)


def on_device(call_n, line=6, awaits="item", since=1.0, **more):
    """The device waits in the call with this record's number, and the main thread stands at a line."""
    told = {"site": line, "doing": "train", "pending": None, "device": call_n, "device_since": since, "awaits": awaits}
    return ev.Pulse, {**told, **more}


def device_waits(op="all_reduce", number=1, line=5, awaits="item", **more):
    """A rank that has queued one call, in which its device waits: the record has number 2."""
    return [queued(op, number, line, **more), on_device(2, line + 1, awaits)]
