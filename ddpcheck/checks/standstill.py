"""Where the ranks of a hung program stand, and the first place where their collectives part."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

import msgspec

from ddpcheck import evidence as ev
from ddpcheck.checks.order import PAIRWISE, WAIT, members
from ddpcheck.checks.world import Rank, World
from ddpcheck.model import CallSite, Struct
from ddpcheck.wording import signal_name

_ENDED_BY_DDPCHECK = (9, 15)
"""Signals that end a program which hangs: they say nothing of how a rank would have gone on."""


_DDP = {
    "ddp-construct": "DDP's constructor",
    "ddp-buffers": "DDP's broadcast of buffers",
    "ddp-gradients": "DDP's reduction of gradients",
}


class Passed(Struct, frozen=True, kw_only=True):
    """One collective of one rank."""

    op: str
    detail: str
    group: str
    number: int
    where: CallSite | None = None
    code: str = ""
    """The text of the line."""

    def __str__(self) -> str:
        return f"{_DDP.get(self.op, self.op)} {self.detail}".rstrip()


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


class Parting(Struct, frozen=True, kw_only=True):
    """The first call of a group that the ranks did not make alike."""

    group: str
    number: int
    calls: dict[int, Passed | None]
    """By rank; None for one that made no such call."""


class Standstill(Struct, frozen=True, kw_only=True):
    """A world in which nothing moved any more."""

    stands: tuple[Stand, ...]
    parting: Parting | None = None


def standstill(world: World) -> Standstill:
    """Where every rank of a world stands, those that never came included."""
    present = {rank.rank: rank for rank in world}
    latest = max((record.at for rank in world for record in rank.process.records[-1:]), default=0.0)
    stands = [
        _stand(present[number], latest) if number in present else Stand(rank=number, state="never-joined")
        for number in range(world.world_size)
    ]
    return Standstill(stands=tuple(stands), parting=parting(world))


# --- one rank


def _stand(rank: Rank, latest: float) -> Stand:
    calls = sorted(rank.of(ev.Call), key=lambda call: call.n)  # some are written down late
    last = calls[-1] if calls else None
    how = _ending(rank)
    if how:
        raised = rank.last(ev.Raised)
        site = raised.site if raised is not None else ev.NO_SITE
        where, code = rank.where(site), rank.line(site)
        return Stand(rank=rank.rank, state="ended", how=how, where=where, code=code, last=_passed(rank, last))
    pulse = rank.last(ev.Pulse)
    if pulse is not None and last is not None and last.n > pulse.n:
        pulse = None  # it has gone on since
    if pulse is not None:
        pending = next((c for c in reversed(calls) if c.n == pulse.pending), None)
        site, doing = pulse.site, pulse.doing
    else:
        # No look was taken after the call: it waits, if nothing else came of it.
        newest = max((r.n for r in rank.process.records if not isinstance(r, (ev.Site, ev.Pulse))), default=0)
        pending = last if last is not None and last.waits and last.n == newest else None
        site, doing = (last.site if last is not None else ev.NO_SITE), ""
    since = pulse.since if pulse is not None and pulse.since is not None else (pending.at if pending else None)
    behind = next((c for c in reversed(calls) if pending is None or c.n < pending.n), None)
    return Stand(
        rank=rank.rank,
        state="waits" if pending is not None else "runs",
        where=rank.where(site),
        code=rank.line(site),
        doing=doing,
        waited=latest - since if since is not None else None,
        last=_passed(rank, behind),
        pending=_passed(rank, pending),
    )


def _ending(rank: Rank) -> str:
    """How a rank ended before the program was ended for it; empty for one that did not."""
    raised, ended, left = rank.last(ev.Raised), rank.last(ev.Ended), rank.last(ev.Left)
    if raised is not None:
        return f"raised {raised.kind}"
    if rank.signal is not None and rank.signal not in _ENDED_BY_DDPCHECK:
        return f"was killed by {signal_name(rank.signal)}"
    if ended is not None or rank.exit_code is not None:
        code = ended.code if ended is not None and ended.code is not None else rank.exit_code
        return f"ended with exit code {code}" if code is not None else "ended"
    return "left the group" if left is not None else ""


def _passed(rank: Rank, call: ev.Call | None) -> Passed | None:
    if call is None:
        return None
    return Passed(
        op=call.op if call.op != WAIT else _awaited(rank, call),
        detail=call.detail,
        group=call.group,
        number=call.number,
        where=rank.where(call.site),
        code=rank.line(call.site),
    )


def _awaited(rank: Rank, call: ev.Call) -> str:
    """What an asynchronous call is called that is being waited for."""
    return next((f"wait() for {one.op}" for one in rank.of(ev.Call) if one.n == call.of), call.op)


# --- all of them


def parting(world: World) -> Parting | None:
    """The first call, by time, of any group, that its ranks did not make alike."""
    if not world.complete:
        return None
    calls: dict[str, dict[int, dict[int, ev.Call]]] = defaultdict(lambda: defaultdict(dict))
    for rank in world:
        for call in rank.of(ev.Call):
            if call.op not in PAIRWISE and call.op != WAIT and not call.joined:
                calls[call.group][rank.rank][call.number] = call
    found = []
    for group, by_rank in calls.items():
        one = _first_difference(group, members(group, world.world_size), by_rank)
        if one is not None:
            at = min(c[one.number].at for c in by_rank.values() if one.number in c)
            found.append((at, one, by_rank))
    if not found:
        return None
    _, first, by_rank = min(found, key=lambda f: f[0])
    told = {r: _passed(world.ranks[r], by_rank[r].get(first.number)) for r in first.calls}
    return msgspec.structs.replace(first, calls=told)


def _first_difference(group: str, ranks: Sequence[int], by_rank: dict[int, dict[int, ev.Call]]) -> Parting | None:
    """The lowest number at which two ranks' calls differ, or at which some have a call and others have no more."""
    ends = {r: max(by_rank[r], default=-1) if r in by_rank else -1 for r in ranks}
    for number in sorted({n for r in ranks if r in by_rank for n in by_rank[r]}):
        there = {r: by_rank[r][number] for r in ranks if r in by_rank and number in by_rank[r]}
        unlike = len({(c.op, c.detail) for c in there.values()}) > 1
        # A number that is missing in between was not written down, which says nothing.
        if unlike or any(ends[r] < number for r in ranks):
            return Parting(group=group, number=number, calls=dict.fromkeys(ranks))
    return None
