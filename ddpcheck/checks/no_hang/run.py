"""Does every rank make progress? Deadlocks as soon as they are certain, and what a hang has hung in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddpcheck import evidence as ev
from ddpcheck.judging import call_divergence, call_divergence_causes
from ddpcheck.judging.call_divergence import Parting, group_name, name, place
from ddpcheck.judging.deadlock import Wait, at_its_end, is_gone, last_place, lives_on, stuck
from ddpcheck.judging.device_waits import waits_for_what_is_not_known
from ddpcheck.judging.world import Judged, Rank, World
from ddpcheck.judging.world_ending import Stop, stop
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import listing, ranks_text

LONGEST = 60
"""Characters of a line of the program that are told."""


def judge(world: World) -> Judged:
    """What a world that was ended from outside has hung in."""
    checked = sum(1 for _, call in world.of(ev.Call) if call.waits)
    ended = stop(world)
    if ended.kind != "hung":
        return Judged(
            checked=checked, skipped_because="" if checked else "no call in which a rank waits for others was seen"
        )
    return Judged(checked=max(1, checked), findings=(_finding(world, ended),))


def _finding(world: World, ended: Stop) -> Finding:
    ranks = {rank.rank: rank for rank in world}
    waits = ended.waits
    for_ever = stuck(world, waits, [rank.rank for rank in world if at_its_end(rank)])
    parting = ended.parting
    why = call_divergence_causes.unfinished(world, {r: w.call for r, w in waits.items()})
    if why is None and parting is not None:
        why = call_divergence_causes.why(world, parting)
    others = [rank for rank in world if rank.rank not in waits]
    behind = [rank for rank in others if lives_on(rank, world)] if not waits else []
    positions = [*_waits(world, ranks, waits.values()), *(_position(rank, world) for rank in others)]
    late = behind or [rank for rank in others if not is_gone(rank)]
    odd = (why.ranks if why else ()) or (parting.odd if parting else ()) or tuple(r.rank for r in late or others)
    where = (why.where if why else None) or _where(ranks, ended, odd, late)
    found = f"{'a deadlock' if for_ever is not None else 'no progress'}: {'; '.join(positions)}"
    if parting is not None and all(r in waits and waits[r].call.n == call.n for r, call in parting.calls.items()):
        found += f". Here their calls diverge, {call_divergence.before(parting)}"
    elif parting is not None:
        found += f". The ranks' calls diverge {call_divergence.before(parting)}: {call_divergence.told(world, parting)}"
    found += _before(ranks, waits.values()) + "".join(_flight_records(world, waits))
    subject, links = _subject(parting, waits)
    return Finding(
        rule="deadlock-between-ranks" if for_ever is not None else "no-progress",
        ranks=odd or tuple(ranks),
        subject=subject,
        expected="every rank to make progress",
        found=found,
        cause=why.cause if why else _cause(waits, others, behind),
        advice=why.advice if why and why.advice else _advice(others, behind),
        where=where,
        links=("stop", *links, *(why.links if why else ())),
        also=("collective-order",) if parting is not None else (),
        proof=_proof(world, ended, why),
    )


def _subject(parting: Parting | None, waits: dict[int, Wait]) -> tuple[str, tuple[str, ...]]:
    if parting is not None:
        return f"call {parting.number} on {group_name(parting.group)}", (parting.link,)
    for wait in waits.values():
        call = wait.call
        return f"{name(call)}, call {call.number} on {group_name(call.group)}", (f"call {call.group} {call.number}",)
    return "the program", ()


def _waits(world: World, ranks: dict[int, Rank], waits: Iterable[Wait]) -> list[str]:
    """What each rank waits in, at which line, and whom for; ranks that do the same together."""
    texts: dict[tuple[str, str], list[int]] = {}
    waits = list(waits)
    called = call_divergence.callers(world, {wait.rank: wait.site for wait in waits})
    for wait in waits:
        rank = ranks[wait.rank]
        where = rank.where(wait.site)
        numbered = f", call {wait.call.number} on {group_name(wait.call.group)}," if wait.on_device else ""
        text = f"in {name(wait.call)}{numbered}" + (f" at {where.file}:{where.line}" if where else "")
        text += call_divergence.by_way_of(called.get(wait.rank))
        if wait.lacking:
            text += f" for {ranks_text(wait.lacking)}"
        texts.setdefault((text, _host(rank, wait)), []).append(wait.rank)
    return [_waiting(who, text, host) for (text, host), who in texts.items()]


def _waiting(who: list[int], text: str, host: str) -> str:
    one = len(who) == 1
    if not host:
        return f"{ranks_text(who)} {'waits' if one else 'wait'} {text}"
    if one:
        return f"{ranks_text(who)}'s device waits {text}; its host stands {host}"
    return f"the devices of {ranks_text(who)} wait {text}; their hosts stand {host}"


def _host(rank: Rank, wait: Wait) -> str:
    """Where the main thread of a rank stands whose device waits; empty for a rank that waits itself."""
    if not wait.on_device:
        return ""
    where = rank.where(wait.host)
    if where is None:
        return "elsewhere"
    code = " ".join(rank.line(wait.host).split("  #")[0].split())
    return f"at {where.file}:{where.line}" + (f" (`{code[:LONGEST]}`)" if code else "")


def _flight_records(world: World, waits: dict[int, Wait]) -> Iterator[str]:
    """What NCCL itself has told of the calls that devices wait in."""
    for rank in world:
        told = rank.last(ev.FlightRecord)
        if told is not None and rank.rank in waits and told.call == waits[rank.rank].call.n:
            sizes = f" of {' and '.join(str(size) for size in told.sizes)}" if told.sizes else ""
            yield f". NCCL's flight recorder says of rank {rank.rank}: {told.name}{sizes} is {told.state}"


def _before(ranks: dict[int, Rank], waits: Iterable[Wait]) -> str:
    """The calls that the waiting ranks have made last."""
    texts: dict[str, list[int]] = {}
    for wait in waits:
        if previous := _previous(ranks[wait.rank], wait.call):
            texts.setdefault(previous, []).append(wait.rank)
    told = [f"{ranks_text(who)} made {text}" for text, who in texts.items()]
    return f". Before that, {'; '.join(told)}" if told else ""


def _previous(rank: Rank, call: ev.Call) -> str:
    for own in reversed(rank.of(ev.Call)):
        if own.n < call.n and own.of is None:
            return f"{name(own)}{place(rank, own)}"
    return ""


def _position(rank: Rank, world: World) -> str:
    """What a rank does that does not wait in a call."""
    lives = lives_on(rank, world)
    if rank.of(ev.Ended):
        return (
            f"rank {rank.rank} has come to its end, and its process goes on" if lives else f"rank {rank.rank} has ended"
        )
    if (left := rank.last(ev.Left)) is not None:
        where = rank.where(left.site)
        at = f" at {where.file}:{where.line}" if where else ""
        return f"rank {rank.rank} has left the group{at}" + (f" and {_stands(rank)}" if lives else "")
    if lives:
        return f"rank {rank.rank} has come to the end of its script and {_stands(rank)}"
    return f"rank {rank.rank} {_stands(rank)}"


def _stands(rank: Rank) -> str:
    site, doing = last_place(rank)
    where = rank.where(site)
    inside = f"in {doing}()" if doing and not doing.startswith("<") else ""
    if rank.silent:
        seen = f", and was last seen at {where.file}:{where.line}" if where is not None else ""
        return f"has run no Python code for {rank.silent:.0f} s{seen}"
    if where is None:
        return f"is {inside}" if inside else "is at work elsewhere"
    return f"is at {where.file}:{where.line}" + (f", {inside}" if inside else "")


def _running_threads(rank: Rank) -> list[ev.Started]:
    """The threads that the program had started, and that were there at the end of its script."""
    last = rank.last(ev.Lingering)
    starts = [one for one in rank.of(ev.Started) if one.kind == "thread"]
    return [one for one in starts if last is not None and one.name in last.threads]


def _where(ranks: dict[int, Rank], ended: Stop, odd: tuple[int, ...], others: list[Rank]) -> CallSite | None:
    if ended.parting is not None:
        for r in (*odd, *ended.parting.calls):
            call = ended.parting.calls.get(r)
            if call is not None and (where := ranks[r].where(call.site)) is not None:
                return where
    for rank in others:
        started = [one.site for one in _running_threads(rank)]
        for where in map(rank.where, (*started, last_place(rank)[0])):
            if where is not None:
                return where
    for wait in ended.waits.values():
        if (where := ranks[wait.rank].where(wait.site)) is not None:
            return where
    return None


def _proof(world: World, ended: Stop, why: call_divergence_causes.Why | None) -> tuple[tuple[int, CallSite], ...]:
    found = dict.fromkeys(why.proof if why else ())
    for rank in world:
        wait = ended.waits.get(rank.rank)
        pulse = rank.last(ev.Pulse)
        site = wait.site if wait is not None else pulse.site if pulse is not None and not is_gone(rank) else 0
        for where in (rank.where(site), rank.where(wait.host) if wait is not None else None):
            if where is not None:
                found[rank.rank, where] = None
    if ended.parting is not None:
        found.update(dict.fromkeys(call_divergence.proof(world, ended.parting)))
    return tuple(found)


def _cause(waits: dict[int, Wait], others: list[Rank], behind: list[Rank]) -> str:
    """``behind``: ranks that live on behind their end, where nobody waits for them."""
    alive = behind or [rank for rank in others if not is_gone(rank)]
    if silent := [rank.rank for rank in alive if rank.silent]:
        return (
            f"on {ranks_text(silent)} native code keeps the GIL, so that no other thread runs, or the process was "
            "stopped (SIGSTOP)"
        )
    if threads := [thread.name for rank in behind for thread in _running_threads(rank)]:
        kind = "the thread" if len(threads) == 1 else "the threads"
        return f"{kind} {listing(threads)} of {ranks_text(r.rank for r in behind)} did not return"
    if behind and not any(rank.of(ev.Lingering) or rank.of(ev.Ended) for rank in behind):
        return (
            f"what the script of {ranks_text(r.rank for r in behind)} does after it has left the group does not return"
        )
    if behind:
        return f"a thread, an exit handler or native code did not return on {ranks_text(r.rank for r in behind)}"
    if alive and waits:
        return (
            f"{ranks_text(r.rank for r in alive)} does something else that does not end, or takes longer than allowed"
        )
    if others and waits:
        return f"{ranks_text(r.rank for r in others)} has come to its end before the others"
    if waits:
        return ""
    if unknown := [rank.rank for rank in others if waits_for_what_is_not_known(rank.process)]:
        whose = "device of" if len(unknown) == 1 else "devices of"
        return (
            f"the {whose} {ranks_text(unknown)} may be in an asynchronous call that was not waited for by the program, "
            "and that other ranks have not made"
        )
    return "what the ranks wait for is no collective: a file, a lock, a process or a queue"


def _advice(others: list[Rank], behind: list[Rank]) -> str:
    if behind:
        return (
            "Let threads, exit handlers and native code return: end what they wait for, and give a wait a timeout. A "
            "longer --stall-timeout helps an end that is merely slow."
        )
    if others:
        return (
            "Look at the line where that rank is; let work of one rank alone be short, or give the group a longer "
            "timeout and the run a longer --stall-timeout."
        )
    return call_divergence_causes.ALIKE
