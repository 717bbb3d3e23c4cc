"""How a world came to its end, and whose doing it was: failed, parted, lost or hung."""

from __future__ import annotations

import signal
from typing import Literal

from ddpcheck import evidence as ev
from ddpcheck.judging import known_errors
from ddpcheck.judging.call_divergence import Parting, compared, partings, sequences
from ddpcheck.judging.deadlock import BY_THE_AGENT, Wait, all_waits, at_its_end, certain, is_gone, lives_on
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import Struct

AT_EXIT = signal.SIGABRT
"""What an interpreter may die of when torch's threads outlive it: nothing of the program's."""


class Failure(Struct, frozen=True, kw_only=True):
    """A rank that failed of its own doing."""

    rank: int
    at: float
    raised: ev.Raised | None = None
    signal: int | None = None
    code: int | None = None
    left: ev.Ended | None = None
    """It ended itself by ``os._exit`` while the others went on."""


Kind = Literal["well", "failed", "parted", "lost", "hung", "interrupted"]


class Stop(Struct, frozen=True, kw_only=True):
    """What ended a world."""

    kind: Kind
    """``parted``: the ranks' calls were not the same, and that ended it; ``lost``: ranks tell that others are gone."""
    failures: tuple[Failure, ...] = ()
    """The first to fail first."""
    lost: tuple[Failure, ...] = ()
    """Ranks that only tell of another."""
    parting: Parting | None = None
    """The first place where the ranks' calls part."""
    waits: dict[int, Wait]
    compared: int = 0
    """How many calls there were to compare."""


@once_per_world
def stop(world: World) -> Stop:
    """How it ended."""
    found = sequences(world)
    parting = next(iter(partings(world, found)), None)
    lost = tuple(sorted(_lost(world), key=lambda f: f.at))
    waits = all_waits(world)
    failures = tuple(sorted(_failures(world, bool(lost), bool(waits)), key=lambda f: f.at))
    kind: Kind = "well"
    if failures:
        came = parting is not None and parting.kind != "missing" and _at_the_call(world, failures[0], parting)
        kind = "parted" if came else "failed"
    elif lost:
        kind = "parted" if parting else "lost"
    elif world.now is not None:
        kind = "hung" if certain(world) is not None else "interrupted"
    elif _was_ended(world) or (waits and not any(is_gone(rank) for rank in world)):
        kind = "hung"
    return Stop(kind=kind, failures=failures, lost=lost, parting=parting, waits=waits, compared=compared(found))


def _was_ended(world: World) -> bool:
    """Whether ranks that had not come to their end, or lived on behind it, were ended from outside."""
    lived = [rank for rank in world if rank.signal in BY_THE_AGENT]
    return bool(lived) and (any(lives_on(one, world) for one in lived) or not all(map(at_its_end, world)))


def _over(rank: Rank) -> bool:
    """Its script has come to its end."""
    return bool(rank.of(ev.Ended))


def _lost(world: World) -> list[Failure]:
    found = []
    for rank in world:
        raised = rank.last(ev.Raised)
        if raised is not None and _tells_of_another(raised):
            found.append(Failure(rank=rank.rank, at=raised.at, raised=raised))
    return found


def _failures(world: World, lost: bool, waits: bool) -> list[Failure]:
    found = [failure for rank in world if (failure := _failure(rank)) is not None]
    if found:
        return found
    killed = [rank for rank in world if rank.signal == signal.SIGKILL]
    if killed and len(killed) < len(world) and not _over(killed[0]) and world.stopped is None:
        # An agent begins with SIGTERM: whoever was killed at once was the first. What we killed was deaf to it.
        return [Failure(rank=rank.rank, at=_last(rank), signal=rank.signal) for rank in killed]
    if lost or waits:
        for rank in world:
            ended = rank.last(ev.Ended)
            if ended is not None and ended.how == "os._exit":
                found.append(Failure(rank=rank.rank, at=ended.at, code=ended.code, left=ended))
    return found


def _failure(rank: Rank) -> Failure | None:
    raised, ended = rank.last(ev.Raised), rank.last(ev.Ended)
    if raised is not None:
        return (
            None
            if _tells_of_another(raised)
            else Failure(rank=rank.rank, at=raised.at, raised=raised, code=rank.exit_code)
        )
    if rank.signal is not None and (rank.alone or rank.signal not in BY_THE_AGENT):
        if rank.signal == AT_EXIT and ended is not None:
            return None
        return Failure(rank=rank.rank, at=_last(rank), signal=rank.signal)
    code = rank.exit_code or (ended.code if ended is not None else None)
    if code:
        left = ended if ended is not None and ended.how == "os._exit" else None
        return Failure(rank=rank.rank, at=ended.at if ended is not None else _last(rank), code=code, left=left)
    return None


def _last(rank: Rank) -> float:
    """The last that was heard of it."""
    return max((record.at for record in rank.process.records[-3:]), default=0.0)


def _at_the_call(world: World, failure: Failure, parting: Parting) -> bool:
    """Whether a rank failed in the call at which the calls part."""
    call = parting.calls.get(failure.rank)
    if call is None:
        return False
    rank = next(rank for rank in world if rank.rank == failure.rank)
    if failure.raised is not None:
        return rank.where(failure.raised.site) == rank.where(call.site)
    return failure.signal is not None and rank.of(ev.Call)[-1].n == call.n


def _tells_of_another(raised: ev.Raised) -> bool:
    """A rank that has lost another one; not that it found its port taken, which is an error of the network as well."""
    return raised.lost_peer and not known_errors.is_port_taken(raised)
