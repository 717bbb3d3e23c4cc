"""Where the ranks of a hung program stand, and the first place where their collectives part."""

from __future__ import annotations

from typing import Literal

from ddpcheck import evidence as ev
from ddpcheck.judging.call_divergence import name, partings
from ddpcheck.judging.deadlock import is_gone, last_place, lives_on, waiting
from ddpcheck.judging.happens_before import UNFINISHED, members
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite, Struct
from ddpcheck.vocabulary.wording import signal_name


class Passed(Struct, frozen=True, kw_only=True):
    """One collective of one rank."""

    name: str
    """What it is, in words."""
    op: str
    group: str
    number: int
    where: CallSite | None = None
    code: str = ""
    """The text of the line."""


class Stand(Struct, frozen=True, kw_only=True):
    """Where one rank was when the program stood still."""

    rank: int
    state: Literal["waits", "runs", "ended", "never-joined"]
    how: str = ""
    """How it ended."""
    where: CallSite | None = None
    code: str = ""
    doing: str = ""
    """The innermost function, a library's included."""
    waited: float | None = None
    """Seconds, as far as the evidence goes."""
    last: Passed | None = None
    """The last collective that it had behind it."""
    pending: Passed | None = None
    """The collective that it waited in."""
    on_device: bool = False
    """Its device waited in it, and ``where`` is the line at which its host stood."""


class Parted(Struct, frozen=True, kw_only=True):
    """The first call of a group that the ranks did not make alike."""

    group: str
    number: int
    calls: dict[int, Passed | None]
    """By rank; None for one that made no such call."""


class Standstill(Struct, frozen=True, kw_only=True):
    """A world in which nothing moved any more."""

    stands: tuple[Stand, ...]
    parted: Parted | None = None


def standstill(world: World) -> Standstill:
    """Where every rank of a world stands, those that never came included."""
    present = {rank.rank: rank for rank in world}
    latest = max((record.at for rank in world for record in rank.process.records[-1:]), default=0.0)
    stands = [
        _stand(present[number], world, latest) if number in present else Stand(rank=number, state="never-joined")
        for number in range(world.world_size)
    ]
    return Standstill(stands=tuple(stands), parted=_parted(world, present))


def _stand(rank: Rank, world: World, latest: float) -> Stand:
    calls = sorted(_own(rank), key=lambda call: call.n)  # some are written down late
    wait = None if is_gone(rank) else waiting(rank, world)
    pending = wait.call if wait is not None else None
    behind = next((call for call in reversed(calls) if pending is None or call.n < pending.n), None)
    seen = world.now or world.stopped
    latest = seen.on(rank.process) if seen is not None else latest
    place, doing = last_place(rank)
    raised = rank.last(ev.Raised)
    gone = is_gone(rank) and not lives_on(rank, world)
    if gone or raised is not None:
        site = raised.site if raised is not None else ev.NO_SITE
    elif wait is not None:
        site = wait.host if wait.on_device else wait.site
    else:
        site = place
    how = _ending(rank, gone)
    return Stand(
        rank=rank.rank,
        state="ended" if how else "waits" if pending is not None else "runs",
        how=how,
        where=rank.where(site),
        code=rank.line(site),
        doing=doing if not how else "",
        waited=latest - wait.since if wait is not None and wait.since is not None else None,
        last=_passed(rank, behind),
        pending=_passed(rank, pending),
        on_device=wait is not None and wait.on_device,
    )


def _own(rank: Rank) -> list[ev.Call]:
    """Its calls, without the waits for them."""
    return [call for call in rank.of(ev.Call) if call.of is None and call.op != UNFINISHED]


def _ending(rank: Rank, gone: bool) -> str:
    """How a rank ended before the program was ended for it; empty for one that did not."""
    raised, ended = rank.last(ev.Raised), rank.last(ev.Ended)
    if raised is not None:
        return f"raised {raised.kind}"
    if not gone:
        return ""
    if rank.signal is not None and ended is None:
        return f"was killed by {signal_name(rank.signal)}"
    if ended is not None or rank.exit_code is not None:
        code = ended.code if ended is not None and ended.code is not None else rank.exit_code
        return f"ended with exit code {code}" if code is not None else "ended"
    return "left the group"


def _passed(rank: Rank, call: ev.Call | None) -> Passed | None:
    if call is None:
        return None
    return Passed(
        name=name(call),
        op=call.op,
        group=call.group,
        number=call.number,
        where=rank.where(call.site),
        code=rank.line(call.site),
    )


def _parted(world: World, present: dict[int, Rank]) -> Parted | None:
    """The earliest parting of all groups."""
    for one in partings(world):
        ranks = [number for number in members(one.group, world.world_size) if number in present]
        calls = {number: _passed(present[number], one.calls.get(number)) for number in ranks}
        return Parted(group=one.group, number=one.number, calls=calls)
    return None
