"""Which rank failed first, of what, and which failures are only its consequence."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping, Sequence

from ddpcheck import evidence as ev
from ddpcheck.checks import known
from ddpcheck.checks.sequences import name
from ddpcheck.checks.stops import Failure, Stop, stop
from ddpcheck.checks.waits import is_gone
from ddpcheck.checks.world import Judged, Process, Rank, World
from ddpcheck.model import CallSite, Finding
from ddpcheck.wording import ranks_text, signal_name

MESSAGE = 600
"""Characters of an exception's message that are told."""


def judge(world: World) -> Iterable[Judged]:
    """Name the first failure of a world, unless ranks failed because their calls were not the same."""
    ended = stop(world)
    findings: tuple[Finding, ...] = ()
    if ended.kind == "failed":
        findings = (_failed(world, ended),)
    elif ended.kind == "lost":
        findings = (_lost(world, ended),)
    yield Judged(check="rank-failure", exercised=len(world), findings=findings)


# --- a failure of a rank's own


def _failed(world: World, ended: Stop) -> Finding:
    ranks = {rank.rank: rank for rank in world}
    first, *rest = ended.failures
    rank = ranks[first.rank]
    alike = [f for f in rest if _same(ranks, first, f)]
    others = [f for f in rest if f not in alike]
    who = tuple(sorted({first.rank, *(f.rank for f in alike)}))
    explained = known.explain(first.raised) if first.raised is not None else None
    where = _where(rank, first)
    found = f"{ranks_text(who)} {_what(rank, first)}"
    if others:
        found += "; later " + ", ".join(f"rank {f.rank} {_what(ranks[f.rank], f)}" for f in others[:3])
    if ended.lost:
        found += f"; {ranks_text(f.rank for f in ended.lost)} then lost its connection, as a consequence"
    elif ended.waits:
        found += f"; {ranks_text(ended.waits)} waited for it in {name(next(iter(ended.waits.values())).call)}"
    return Finding(
        check="rank-failure",
        severity="error",
        ranks=who,
        subject=first.raised.kind if first.raised else f"rank {first.rank}",
        expected="no rank to fail",
        found=found,
        cause=explained.cause if explained else _cause(rank, first),
        advice=explained.advice if explained else _advice(first, who, world),
        where=where,
        links=("stop",),
        proof=_proof(ranks, first, ended),
    )


def _same(ranks: Mapping[int, Rank], one: Failure, other: Failure) -> bool:
    if one.raised is None or other.raised is None:
        return one.raised is other.raised and (one.signal, one.code) == (other.signal, other.code)
    lines = ranks[one.rank].where(one.raised.site), ranks[other.rank].where(other.raised.site)
    return one.raised.kind == other.raised.kind and lines[0] == lines[1]


def _what(rank: Rank, failure: Failure) -> str:
    if failure.raised is not None:
        message = " ".join(failure.raised.message.split())
        shown = message if len(message) <= MESSAGE else message[:MESSAGE] + " …"
        return f"raised {failure.raised.kind}: {shown}" if shown else f"raised {failure.raised.kind}"
    if failure.signal is not None:
        at_exit = ", when its script had come to its end" if rank.of(ev.Ended) else ""
        return f"was killed by {signal_name(failure.signal)}{at_exit}"
    if failure.left is not None:
        return f"left by os._exit({failure.code or 0}) while the others went on"
    return f"left with exit code {failure.code}"


def _cause(rank: Rank, failure: Failure) -> str:
    if failure.signal == signal.SIGKILL:
        return "perhaps the machine was out of memory: its kernel ends the largest process by SIGKILL"
    if failure.signal in (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE):
        return "native code failed: an extension, or memory that is too small (/dev/shm, for SIGBUS)"
    if failure.signal == signal.SIGABRT:
        return (
            "native code gave up: a failed assertion, or an exception that nothing caught; its words are in the output"
        )
    if failure.left is not None:
        return "it ended itself without a word to the other ranks, which go on waiting for it"
    return ""


def _advice(failure: Failure, who: Sequence[int], world: World) -> str:
    if failure.raised is not None:
        if len(who) < len(world):
            return (
                "Mend what raised it; where it depends on the rank or its data, let every rank do the same, or agree "
                "beforehand."
            )
        return "Mend what raised it: it is the same on every rank."
    if failure.signal is not None:
        return "Look at the rank's own output and the kernel's log (dmesg), and run with faulthandler for a stack."
    return "Let a rank that gives up tell the others: raise an exception, or agree on the end by an all-reduce."


def _where(rank: Rank, failure: Failure) -> CallSite | None:
    if failure.raised is not None:
        return rank.where(failure.raised.site)
    if failure.left is not None and (found := rank.where(failure.left.site)) is not None:
        return found
    return _last_line(rank)


def _last_line(rank: Rank) -> CallSite | None:
    """The last line of the user's that is on record."""
    for record in reversed(rank.process.records):
        site = getattr(record, "site", 0)
        if site and record.n < rank.end and (found := rank.where(site)) is not None:
            return found
    return None


def _proof(ranks: Mapping[int, Rank], first: Failure, ended: Stop) -> tuple[tuple[int, CallSite], ...]:
    found: dict[tuple[int, CallSite], None] = {}
    for failure in (first, *ended.failures, *ended.lost):
        rank = ranks[failure.rank]
        if (where := _where(rank, failure)) is not None:
            found[failure.rank, where] = None
        if failure.raised is not None:
            for frame in known.users_lines(failure.raised.text, rank):
                found[failure.rank, frame] = None
    for r, wait in ended.waits.items():
        if (where := ranks[r].where(wait.site)) is not None:
            found[r, where] = None
    return tuple(found)


# --- only consequences


def _lost(world: World, ended: Stop) -> Finding:
    """Ranks that waited in vain, or lost a connection, and none that has failed of its own doing."""
    ranks = {rank.rank: rank for rank in world}
    first = ended.lost[0]
    rank = ranks[first.rank]
    others = [one for one in world if one.rank not in {f.rank for f in ended.lost}]
    late = known.is_timeout(first.raised)
    busy = [one for one in others if not _gone_before(one, first.at)]
    at = {one.rank: _place_at(one, first.at) for one in busy}
    call = next((c for c in reversed(rank.of(ev.Call)) if c.at <= first.at and c.of is None), None)
    waited = f" in {name(call)}" if call is not None else ""
    who = tuple(one.rank for one in (busy or others)) or (first.rank,)
    if late and busy:
        told = "; ".join(
            f"rank {r} was at {where.file}:{where.line}, in {doing}()" if where else f"rank {r} was at work elsewhere"
            for r, (where, doing) in at.items()
        )
        cause = f"{ranks_text(at)} was busy with something else for longer than the group's timeout"
        advice = (
            "Let all ranks wait where one works: a barrier before and behind it does not help beyond the timeout. Make "
            "the work short or asynchronous, or raise the timeout of init_process_group."
        )
        where = next((w for w, _ in at.values() if w is not None), None) or _where(rank, first)
        found = f"{ranks_text(f.rank for f in ended.lost)} gave up waiting{waited}: {_what(rank, first)}; {told}"
    else:
        gone = [one.rank for one in others if _gone_before(one, first.at)]
        found = f"{ranks_text(f.rank for f in ended.lost)} lost the others{waited}: {_what(rank, first)}"
        cause = f"{ranks_text(gone)} had ended, or left the group, before" if gone else ""
        advice = "Look at what the rank that is gone did last; let all ranks leave together, behind a barrier."
        where = _where(rank, first)
    return Finding(
        check="rank-failure",
        severity="error",
        ranks=who,
        subject=name(call) if call is not None else "the connection",
        expected="no rank to fail",
        found=found,
        cause=cause,
        advice=advice,
        where=where,
        links=("stop", *((f"call {call.group} {call.number}",) if call is not None else ())),
        also=("no-hang",) if late else (),
        proof=_proof(ranks, first, ended),
    )


def _gone_before(rank: Rank, at: float) -> bool:
    """Whether a rank had left, or ended, at a moment; without a record of its end, if it has one now."""
    ends = [*rank.of(ev.Left), *rank.of(ev.Ended)]
    return any(end.at < at for end in ends) or (not ends and is_gone(rank) and rank.signal is None)


def _place_at(rank: Rank, at: float) -> tuple[CallSite | None, str]:
    """Where a rank was at a moment, by its last pulse before."""
    before = [pulse for pulse in rank.of(ev.Pulse) if pulse.at <= at]
    if not before:
        return None, ""
    return rank.where(before[-1].site), before[-1].doing


# --- before there was a group


def unjoined(processes: Iterable[Process], exits: Mapping[tuple[str, int], tuple[int | None, int | None]]) -> Judged:
    """Processes that were to become ranks, and failed before they were: no world holds them."""
    findings = []
    for process in sorted(processes, key=lambda p: p.began.at if p.began else 0.0):
        raised, joining = process.last(ev.Raised), process.last(ev.Joining)
        if raised is None or process.of(ev.Joined) or raised.lost_peer:
            continue
        explained = known.explain(raised)
        rank = joining.rank if joining is not None and joining.rank is not None else None
        message = " ".join(raised.message.split())[:MESSAGE]
        who = f"rank {rank}" if rank is not None else f"process {process.pid}"
        findings.append(
            Finding(
                check="rank-failure",
                severity="error",
                ranks=(rank,) if rank is not None else (),
                subject=raised.kind,
                expected="no rank to fail",
                found=f"{who} raised {raised.kind}: {message}, before the process group stood",
                cause=explained.cause if explained else "",
                advice=explained.advice if explained else "Mend what raised it.",
                where=process.where(raised.site),
                links=("stop",),
            )
        )
    return Judged(check="rank-failure", exercised=len(findings), findings=tuple(findings[:1]))
