"""What NCCL's flight recorder says of a collective that a device has waited in for long: asked once.

Nothing is switched on for it: it has entries where the program, or the default
of this torch, has it keep some.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import torch

from ddpcheck.evidence import FlightRecord
from ddpcheck.probes.devices import device_events
from ddpcheck.probes.recording import recorder, signal_exceptions
from ddpcheck.vocabulary.clock import clock

LONG = 60.0
"""Seconds that a device must have waited for: torch asks for the events of a collective that may end at that very
moment, so that it is not asked of one that goes on after all."""

_APART = ("nccl2", "nccl-lazy")
"""Backends with a recorder of their own, from torch 2.15 on, where the first is what ``nccl`` means by default."""

_asked: recorder.Recorder | None = None


def look(writer: recorder.Recorder, call: int | None, since: float | None) -> None:
    """Ask, where a device has been in a call for long; a failure of it is none of the program's and says nothing."""
    global _asked
    if call is None or since is None or clock.now() - since < LONG or _asked is writer:
        return
    _asked = writer
    try:
        with device_events.asking():  # it asks for events as well, by CUDA's runtime
            oldest = next(filter(None, map(oldest_unfinished, _unfinished())), None)
    except Exception as error:
        signal_exceptions.let_through(error)
        return
    if oldest is not None:
        writer.write(FlightRecord(**writer.next(), call=call, **oldest))


def _unfinished() -> Iterator[Any]:
    """What each recorder has of the collectives that are not over; torch 2.4 has nothing but pickles of it."""
    home: Any = getattr(torch._C, "_distributed_c10d", None)
    if hasattr(home, "_dump_nccl_trace_json"):
        yield json.loads(home._dump_nccl_trace_json(True, True))
    if hasattr(home, "FlightRecorderHook"):
        for backend in _APART:
            yield json.loads(home._dump_fr_trace_json(True, True, backend))


def oldest_unfinished(told: Any) -> dict[str, Any] | None:
    """Of all that a flight recorder has told, the first entry that is not over: what it is, and its state."""
    entries = told.get("entries") if isinstance(told, dict) else None
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("state") in ("scheduled", "started"):
            sizes = entry.get("input_sizes")
            return {
                "name": str(entry.get("profiling_name", ""))[:80],
                "sizes": [[int(n) for n in size] for size in list(sizes or ())[:8]],
                "state": str(entry["state"]),
            }
    return None
