"""Which rank failed first, of what, and which failures are only its consequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ddpcheck import evidence as ev
from ddpcheck.checks.rank_failure import causes
from ddpcheck.judging import known_errors
from ddpcheck.judging.call_divergence import name
from ddpcheck.judging.deadlock import BY_THE_AGENT, is_gone, lives_on
from ddpcheck.judging.world import Judged, Rank, World
from ddpcheck.judging.world_ending import Failure, Stop, stop
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import ranks_text, signal_name

MESSAGE = 4000
"""Characters of an exception's message that are told."""
SHORT_MESSAGE = 400
"""Of that of a later failure."""
_ENDED = "all ranks were ended from outside, and how they would have ended was not seen"
"""Why nothing was checked."""
SHORT = 300.0
"""Seconds: a group's timeout below it was chosen, and is what is at fault."""


def judge(world: World) -> Judged:
    """Name the first failure of a world, unless ranks failed because their calls were not the same."""
    ended = stop(world)
    findings: tuple[Finding, ...] = ()
    if ended.kind == "failed":
        findings = (_failed(world, ended),)
    elif ended.kind == "lost":
        findings = (_lost(world, ended),)
    seen = sum(not _was_ended(rank, world) for rank in world)
    return Judged(checked=seen, of=len(world), findings=findings, skipped_because=_ENDED)


def _was_ended(rank: Rank, world: World) -> bool:
    """Whether others have ended it, before it was seen to fail or to come to its end."""
    ended = rank.signal in BY_THE_AGENT and not rank.alone
    return ended and (not rank.of(ev.Ended) or lives_on(rank, world))


# --- a failure of a rank's own


def _failed(world: World, ended: Stop) -> Finding:
    ranks = {rank.rank: rank for rank in world}
    first, *rest = ended.failures
    rank = ranks[first.rank]
    alike = [f for f in rest if _same(ranks, first, f)]
    others = [f for f in rest if f not in alike]
    who = tuple(sorted({first.rank, *(f.rank for f in alike)}))
    because = causes.because(world, first, who)
    where = because.where or _where(rank, first) or _died_at(ranks, first, ended)
    found = f"{ranks_text(who)} {_what(rank, first)}"
    found += f"; {because.found}" if because.found else ""
    if others:
        found += "; later " + ", ".join(f"rank {f.rank} {_what(ranks[f.rank], f, SHORT_MESSAGE)}" for f in others[:3])
    if ended.lost:
        found += f"; {ranks_text(f.rank for f in ended.lost)} then lost its connection, as a consequence"
    elif ended.waits:
        found += f"; {ranks_text(ended.waits)} waited for it in {name(next(iter(ended.waits.values())).call)}"
    return Finding(
        rule="failed-rank",
        ranks=who,
        subject=first.raised.kind if first.raised else f"rank {first.rank}",
        expected="no rank to fail",
        found=found,
        cause=because.cause,
        advice=because.advice,
        where=where,
        links=("stop",),
        proof=(*((first.rank, line) for line in because.proof), *_proof(ranks, first, ended)),
    )


def _same(ranks: Mapping[int, Rank], one: Failure, other: Failure) -> bool:
    if one.raised is None or other.raised is None:
        return one.raised is other.raised and (one.signal, one.code) == (other.signal, other.code)
    lines = ranks[one.rank].where(one.raised.site), ranks[other.rank].where(other.raised.site)
    return one.raised.kind == other.raised.kind and lines[0] == lines[1]


def _what(rank: Rank, failure: Failure, most: int = MESSAGE) -> str:
    if failure.raised is not None:
        message = " ".join(failure.raised.message.split())
        shown = message if len(message) <= most else message[:most] + " …"
        return f"raised {failure.raised.kind}: {shown}" if shown else f"raised {failure.raised.kind}"
    if failure.signal is not None:
        at_exit = ", when its script had come to its end" if rank.of(ev.Ended) else ""
        return f"was killed by {signal_name(failure.signal)}{at_exit}"
    if failure.left is not None:
        return f"left by os._exit({failure.code or 0}) while the others went on"
    return f"left with exit code {failure.code}"


def _where(rank: Rank, failure: Failure) -> CallSite | None:
    if failure.raised is not None:
        return rank.where(failure.raised.site)
    if failure.left is not None and (found := rank.where(failure.left.site)) is not None:
        return found
    return None


def _last_line(rank: Rank) -> tuple[CallSite | None, bool]:
    """The last line of the user's that is on record, and whether the rank was still there, by what is known."""
    behind = False
    for record in reversed(rank.process.records):
        site = getattr(record, "site", 0)
        if site and record.n < rank.end and (found := rank.where(site)) is not None:
            return found, not behind and isinstance(record, (ev.Call, ev.Pulse))
        behind |= not isinstance(record, ev.Site)
    return None, False


def _died_at(ranks: Mapping[int, Rank], first: Failure, ended: Stop) -> CallSite | None:
    """The line at which a rank died without a word: where it was, or else where another one missed it."""
    last, there = _last_line(ranks[first.rank])
    if there:
        return last
    for failure in ended.lost:
        if (where := _where(ranks[failure.rank], failure)) is not None:
            return where
    for r, wait in ended.waits.items():
        if (where := ranks[r].where(wait.site)) is not None:
            return where
    return last


def _proof(ranks: Mapping[int, Rank], first: Failure, ended: Stop) -> tuple[tuple[int, CallSite], ...]:
    found: dict[tuple[int, CallSite], None] = {}
    for failure in (first, *ended.failures, *ended.lost):
        rank = ranks[failure.rank]
        if (where := _where(rank, failure)) is not None:
            found[failure.rank, where] = None
        if failure.raised is not None:
            callers = where.chain[:-1] if where is not None else ()  # shown as the way to the line
            for frame in known_errors.users_lines(failure.raised.text, rank):
                if frame not in callers:
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
    call = next((c for c in reversed(rank.of(ev.Call)) if c.at <= first.at and c.of is None), None)
    others = [one for one in world if one.rank != first.rank]
    busy = [one for one in others if not _came(one, call, first.at) and not _gone_before(one, first.at)]
    if known_errors.is_timeout(first.raised) and busy:
        return _late(world, ended, call, busy)
    gone = [one.rank for one in others if _gone_before(one, first.at)]
    return Finding(
        rule="lost-connection",
        ranks=tuple(gone) or (first.rank,),
        subject=name(call) if call is not None else "the connection",
        expected="no rank to fail",
        found=f"{ranks_text(f.rank for f in ended.lost)} lost the others{_in(call)}: {_what(rank, first)}",
        cause=f"{ranks_text(gone)} had ended, or left the group, before" if gone else "",
        advice="Look at what the rank that is gone did last; let all ranks leave together, behind a barrier.",
        where=_where(rank, first),
        links=("stop", *_links(call)),
        proof=_proof(ranks, first, ended),
    )


def _late(world: World, ended: Stop, call: ev.Call | None, busy: Sequence[Rank]) -> Finding:
    """A rank has given up waiting for others that were at work elsewhere."""
    first = ended.lost[0]
    rank = next(rank for rank in world if rank.rank == first.rank)
    at = {one.rank: _place_at(one, first.at) for one in busy}
    told = "; ".join(
        f"rank {r} was then at {where.file}:{where.line}, in {doing}" if where else f"rank {r} was at work elsewhere"
        for r, (where, doing) in at.items()
    )
    given = rank.joined.timeout
    set_at = rank.where(rank.joined.site) if given is not None and given < SHORT else None
    limit = f" of {given:g} s" if given is not None else ""
    proof = [(r, where) for r, (where, _) in at.items() if where is not None]
    return Finding(
        rule="group-timeout-exceeded",
        ranks=tuple(at),
        subject=name(call) if call is not None else "the connection",
        expected="no rank to fail",
        found=f"rank {first.rank} gave up waiting{_in(call)}: {_what(rank, first)}; {told}",
        cause=f"{ranks_text(at)} was busy with something else for longer than the group's timeout{limit}",
        advice=(
            "Give init_process_group a longer timeout, or make what one rank does alone short, or asynchronous: the "
            "others wait for it in their next collective."
        ),
        where=set_at or _where(rank, first),
        links=("stop", *_links(call)),
        also=("no-hang",),
        proof=tuple(dict.fromkeys([*proof, *_proof({r.rank: r for r in world}, first, ended)])),
    )


def _in(call: ev.Call | None) -> str:
    return f" in {name(call)}" if call is not None else ""


def _links(call: ev.Call | None) -> tuple[str, ...]:
    return (f"call {call.group} {call.number}",) if call is not None else ()


def _came(rank: Rank, call: ev.Call | None, at: float) -> bool:
    """Whether a rank had come to the same call by a moment."""
    return call is not None and any(
        own.group == call.group and own.number >= call.number and own.at <= at for own in rank.of(ev.Call)
    )


def _gone_before(rank: Rank, at: float) -> bool:
    """Whether a rank had left, or ended, at a moment; without a record of its end, if it has one now."""
    ends: list[ev.Record] = [*rank.of(ev.Left), *rank.of(ev.Raised), *rank.of(ev.Ended)]
    return any(end.at < at for end in ends) or (not ends and is_gone(rank))


def _place_at(rank: Rank, at: float) -> tuple[CallSite | None, str]:
    """Where a rank was at a moment, by its last pulse before."""
    before = [pulse for pulse in rank.of(ev.Pulse) if pulse.at <= at]
    if not before:
        return None, ""
    doing = before[-1].doing
    return rank.where(before[-1].site), doing if doing.startswith("<") else f"{doing}()"
