"""Why a rank failed, as far as that is on record, and what to do about it."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.judging.world import Rank, World
from ddpcheck.judging.world_ending import Failure
from ddpcheck.vocabulary.wording import count


class Sender(NamedTuple):
    """Who has sent the signal of which a rank died."""

    rank: Rank
    sent: ev.SentSignal


def sender(world: World, failure: Failure) -> Sender | None:
    """The rank of the program that has sent the signal itself, if one has."""
    killed = next(rank for rank in world if rank.rank == failure.rank)
    if failure.signal is None:
        return None
    for rank in (killed, *(other for other in world if other is not killed)):
        for sent in reversed(rank.process.of(ev.SentSignal)):
            same_host = (
                rank.process.began and killed.process.began and (rank.process.began.host == killed.process.began.host)
            )
            if (
                same_host
                and (sent.pid, sent.signal) == (killed.process.pid, failure.signal)
                and _was_last(killed, sent, rank)
            ):
                return Sender(rank, sent)
    return None


def _was_last(killed: Rank, sent: ev.SentSignal, by: Rank) -> bool:
    """Whether the rank did nothing more once it had sent the signal to itself."""
    if by is not killed:
        return True
    return not any(
        isinstance(record, (ev.Call, ev.Step, ev.Batch)) and record.n > sent.n for record in killed.process.records
    )


def why(world: World, failure: Failure) -> str:
    """The likely cause, as a clause; empty where nothing is known."""
    if (by := sender(world, failure)) is not None:
        where = by.rank.where(by.sent.site)
        at = f" ({where.file}:{where.line})" if where is not None else ""
        if by.rank.rank == failure.rank:
            return f"the program itself sends this signal to its own process{at}"
        return f"rank {by.rank.rank} sends it this signal{at}"
    if failure.signal == signal.SIGKILL:
        return _killed(next(rank for rank in world if rank.rank == failure.rank))
    if failure.signal in (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE):
        return "native code failed: an extension, or memory that is too small (/dev/shm, for SIGBUS)"
    if failure.signal in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        return "something outside of the run has ended this process: a scheduler, a limit of the machine, or a person"
    if failure.signal == signal.SIGABRT:
        return (
            "native code gave up: a failed assertion, or an exception that nothing caught; its words are in the output"
        )
    if failure.left is not None:
        return "it ended itself without a word to the other ranks, which go on waiting for it"
    return ""


def _killed(rank: Rank) -> str:
    number = rank.memory_kills
    if number:
        return (
            f"the machine, or the job's share of it, was out of memory: by its own count the kernel has ended "
            f"{count(number, 'process', 'processes')} for that during the run"
        )
    others = "a scheduler, a limit of the job, another process, or a person"
    if number == 0:
        return f"{others} sent it; not the kernel for want of memory, which it has not counted in this run"
    return f"the kernel sent it, for want of memory, or {others} did"


def fix(world: World, failure: Failure, who: Sequence[int]) -> str:
    """What to do, as sentences."""
    if failure.raised is not None:
        if len(who) < len(world):
            return (
                "Fix what raised it; where it depends on the rank or its data, let every rank do the same, or agree "
                "beforehand."
            )
        return "Fix what raised it: it is the same on every rank."
    if sender(world, failure) is not None:
        return (
            "Take the signal out; where a rank has to give up, raise an exception, or let all ranks agree on the end "
            "by an all-reduce."
        )
    if failure.signal == signal.SIGKILL:
        killed = next(rank for rank in world if rank.rank == failure.rank)
        if killed.memory_kills:
            return "Give a rank less to hold (smaller batches, fewer workers of its loaders), or the job more memory."
        return "Look at the kernel's log (dmesg), and at that of the scheduler or container, for who has ended it."
    if failure.signal is not None:
        return "Look at the rank's own output and the kernel's log (dmesg), and run with faulthandler for a stack."
    return "Let a rank that gives up inform the others: raise an exception, or agree on the end by an all-reduce."
