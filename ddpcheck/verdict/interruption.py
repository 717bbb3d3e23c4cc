"""A run that was asked to end from outside, as it was at that moment.

What ranks do from then on, they do for the signal: they die of it, lose each
other, leave their loops. None of it is the program's fault, and all that
came before counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddpcheck import evidence as ev
from ddpcheck.checks.registry import those
from ddpcheck.judging.world import Judged, Moment, Process
from ddpcheck.vocabulary.bounded_numbers import SignalNumber
from ddpcheck.vocabulary.model import Struct

REASON = "the run was interrupted"


SOONER = 2.0
"""Seconds: ranks may have had the signal, or missed one that had it, so long before the process that tells of it."""


class Interruption(Struct, frozen=True, kw_only=True):
    """The first time that a run was asked to end."""

    signal: SignalNumber
    moment: Moment


def interruption(processes: Iterable[Process]) -> Interruption | None:
    """What the evidence tells of a signal that asked the run to end; None for a run that nobody has asked to."""
    found = [
        Interruption(
            signal=asked.signal, moment=Moment(at=asked.at, host=began.host, wall=began.wall + asked.at - began.at)
        )
        for process in processes
        for asked in process.of(ev.Signalled)
        if (began := process.began) is not None
    ]
    return min(found, key=lambda one: one.moment.wall, default=None)


def until(processes: Iterable[Process], asked: Interruption) -> list[Process]:
    """The processes as they were at that moment, or when the first of them began to show it."""
    processes = list(processes)
    sooner = min((at - asked.moment.on(process) for process, at in _reactions(processes, asked)), default=0.0)
    return [process.until(asked.moment.on(process) + min(sooner, 0.0)) for process in processes]


def _reactions(processes: list[Process], asked: Interruption) -> Iterator[tuple[Process, float]]:
    """What tells shortly before that moment that the signal has come to some rank already."""
    ends = [
        (process.began.host, child) for process in processes if process.began for child in process.of(ev.ChildEnded)
    ]
    by_it = {(host, child.pid) for host, child in ends if child.asked or _of(asked.signal, child)}
    for process in processes:
        began = process.began
        records: list[ev.Record] = [raised for raised in process.of(ev.Raised) if raised.lost_peer]
        if began is not None:
            records += [child for child in process.of(ev.ChildEnded) if (began.host, child.pid) in by_it]
        if began is not None and (began.host, began.pid) in by_it:
            records += [*process.of(ev.Left), *process.of(ev.Ended)]
        yield from ((process, one.at) for one in records if one.at > asked.moment.on(process) - SOONER)


def _of(signal: int, child: ev.ChildEnded) -> bool:
    """Whether a process has died of a signal, or has ended with the code that tells of it."""
    return child.signal == signal or child.code == 128 + signal


def without_ends(found: dict[str, Judged]) -> dict[str, Judged]:
    """What the judges have said, without the checks whose end nobody has seen; a failure or a hang before it counts."""
    return {
        check: Judged(check=check, checked=0, skipped_because=REASON)
        if check in those("of_endings") and not judged.findings
        else judged
        for check, judged in found.items()
    }
