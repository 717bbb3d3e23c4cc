"""Which queued call a rank's device waits in, and whether its host waits for that: read from the last pulse."""

from __future__ import annotations

from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.judging.world import Moment, Process, Rank

SETTLED = 5.0
"""Seconds for which a device must have been in a call, and its host at one place: then it is no matter of slowness."""


class DeviceWait(NamedTuple):
    """A device that is in a call which was queued on it."""

    call: int
    """The ``n`` of the Call."""
    since: float
    host: int
    """The site at which the main thread stands."""
    awaits: str
    """The function that it waits for the device in; empty where it may do something else."""


def device_wait(rank: Rank, now: Moment | None) -> DeviceWait | None:
    """The call that the device of a rank was last told to be in; of one that runs, only if that has lasted."""
    pulse = rank.process.last(ev.Pulse)
    if pulse is None or pulse.device is None or pulse.device_since is None or not rank.start <= pulse.device < rank.end:
        return None
    if went_on(rank.process, pulse):
        return None
    if now is not None:
        seen = now.on(rank.process)
        # A main thread that moves is told of each second.
        if 0 <= seen - pulse.at < SETTLED or 0 <= seen - pulse.device_since < SETTLED:
            return None
    return DeviceWait(pulse.device, pulse.device_since, pulse.site, pulse.awaits)


def computes(process: Process) -> bool:
    """Whether its device may be computing, as far as the last pulse tells: before a call, or while its host waits for
    it and it is in no call that is known.

    It is not taken to compute where it may be in a call that nobody has waited for: how far that is, is not known.
    """
    pulse = process.last(ev.Pulse)
    if pulse is None or went_on(process, pulse) or pulse.device_since is not None:
        return False
    return (pulse.device is not None or bool(pulse.awaits)) and not _may_be_in_a_call(process, pulse)


def waits_for_what_is_not_known(process: Process) -> bool:
    """Whether its host waits for its device, which may be in a call that nobody has waited for."""
    pulse = process.last(ev.Pulse)
    if pulse is None or went_on(process, pulse) or pulse.device_since is not None:
        return False
    return bool(pulse.awaits) and _may_be_in_a_call(process, pulse)


def _may_be_in_a_call(process: Process, pulse: ev.Pulse) -> bool:
    """Whether the last call before what the device is known to be at was queued, and then not waited for."""
    waited = set()
    for call in reversed(process.of(ev.Call)):
        if call.of is not None:
            waited.add(call.of)
        elif call.queued and (pulse.device is None or call.n < pulse.device):
            return not call.waits and call.n not in waited
    return False


def went_on(process: Process, pulse: ev.Pulse) -> bool:
    """Whether the main thread has written something since. What is written late has a lower number."""
    for record in reversed(process.records):
        if record is pulse:
            return False
        if record.n > pulse.n and not beside(record):
            return True
    return False


def beside(record: ev.Record) -> bool:
    """Whether the main thread may be waiting while this is written."""
    return isinstance(record, (ev.Site, ev.FlightRecord)) or (
        isinstance(record, (ev.File, ev.Call)) and bool(record.thread)
    )
