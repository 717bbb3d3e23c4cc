"""Why a rank failed, as far as that is on record, and what to do about it."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ddpcheck import evidence as ev
from ddpcheck.checks.rank_failure import marked_twice, missing_files
from ddpcheck.judging import known_errors
from ddpcheck.judging.known_errors import Explained
from ddpcheck.judging.world import Rank, World
from ddpcheck.judging.world_ending import Failure
from ddpcheck.vocabulary.wording import count, ranks_text


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


def because(world: World, failure: Failure, who: Sequence[int]) -> Explained:
    """The likely cause, if anything is known, and what to do; ``who`` are the ranks that failed alike."""
    rank = next(rank for rank in world if rank.rank == failure.rank)
    if (by := sender(world, failure)) is not None:
        where = by.rank.where(by.sent.site)
        at = f" ({where.file}:{where.line})" if where is not None else ""
        itself = by.rank is rank
        return Explained(
            cause=(
                f"the program itself sends this signal to its own process{at}"
                if itself
                else f"rank {by.rank.rank} sends it this signal{at}"
            ),
            advice=_TAKE_IT_OUT,
            where=where,
        )
    file = missing_files.elsewhere(world, failure)
    known = marked_twice.by_checkpoint(rank, failure)
    if known is None and failure.raised is not None:
        known = known_errors.explain(failure.raised)
    if known is None and file is not None and file.cause:
        return file
    found = file.found if file is not None else ""
    if known is not None:
        return replace(known, found=found)
    return Explained(cause=_why(world, failure), advice=_fix(world, failure, who), found=found)


_TAKE_IT_OUT = (
    "Take the signal out; where a rank has to give up, raise an exception, or let all ranks agree on the end by an "
    "all-reduce."
)


def _why(world: World, failure: Failure) -> str:
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


def _fix(world: World, failure: Failure, who: Sequence[int]) -> str:
    rank = next(rank for rank in world if rank.rank == failure.rank)
    if failure.raised is not None:
        place = rank.where(failure.raised.site)
        at = f" at {place.file}:{place.line}" if place is not None else ""
        if len(who) < len(world):
            return (
                f"Look at what {ranks_text(who)} had there{at} and the others had not: a sample, a file, a branch. "
                "Where a rank may fail alone, let all ranks agree on that before they go on."
            )
        return f"Look at what raised it{at}: all ranks fail alike, so that it does not depend on the rank."
    if failure.signal == signal.SIGKILL:
        if rank.memory_kills:
            return "Give a rank less to hold (smaller batches, fewer workers of its loaders), or the job more memory."
        return "Look at the kernel's log (dmesg), and at that of the scheduler or container, for who has ended it."
    if failure.signal is not None:
        return "Look at the rank's own output and the kernel's log (dmesg), and run with faulthandler for a stack."
    return "Let a rank that gives up inform the others: raise an exception, or agree on the end by an all-reduce."
