"""Do all ranks issue the same collectives in the same order, and have the same parameters in the same order?"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from ddpcheck import evidence as ev
from ddpcheck.judging import call_divergence, call_divergence_causes
from ddpcheck.judging.call_divergence import Parting, group_name
from ddpcheck.judging.crossed_calls import Crossing, crossings
from ddpcheck.judging.world import Judged, World
from ddpcheck.judging.world_ending import Stop, stop
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import listing, ranks_text, signal_name

_RULES = {
    "op": "different-collectives",
    "detail": "mismatched-collective-arguments",
    "peer": "different-root-ranks",
    "missing": "missing-collective",
    "line": "crossed-calls",
}
"""By the kind of parting."""


def judge(world: World) -> Judged:
    """Compare the ranks' calls group by group, and the order of their wrappers' parameters."""
    ended = stop(world)
    crossed = crossings(world)
    findings = [*_orders(world)]
    # A hang is told with the calls that part; what comes after a failure is its consequence.
    if ended.kind != "hung" and not findings:
        parting = ended.parting
        if parting is not None and (ended.kind != "failed" or _before_the_failure(ended, parting)):
            findings.append(_finding(world, ended, parting))
        elif crossed and crossed[0].sure and ended.kind != "failed":
            findings.append(_crossed(world, ended, crossed))
    unknown = "" if findings else _unseen(world) or (_swapped(world, crossed[0]) if crossed else "")
    return Judged(
        checked=0 if unknown else ended.compared,
        findings=tuple(findings),
        skipped_because=unknown or ("" if ended.compared else "no collective was recorded on two ranks of its group"),
    )


def _unseen(world: World) -> str:
    """Why the order of calls is not held where not all were seen."""
    overlooked = {one.what for rank in world for one in rank.of(ev.Overlooked)}
    if "calls" in overlooked:
        return "calls by symmetric memory or by a group written in Python are not seen"
    return "the calls that replays of a CUDA graph make are not seen" if "capture" in overlooked else ""


def _before_the_failure(ended: Stop, parting: Parting) -> bool:
    return parting.kind != "missing" and all(parting.at < failure.at for failure in ended.failures)


def _finding(world: World, ended: Stop, parting: Parting) -> Finding:
    ranks = {rank.rank: rank for rank in world}
    why = call_divergence_causes.why(world, parting)
    odd = why.ranks or parting.odd
    stopped = ended.kind == "parted"
    missing = parting.kind == "missing"
    return Finding(
        rule=_RULES[parting.kind],
        severity="warning" if missing and not stopped else "error",
        ranks=odd,
        subject=f"call {parting.number} on {group_name(parting.group)}",
        expected="all ranks to issue the same collectives in the same order",
        found=(
            f"other calls {call_divergence.before(parting)}: {call_divergence.told(world, parting)}"
            f"{_outcome(ended, parting)}"
        ),
        cause=why.cause,
        advice=why.advice,
        where=why.where or _where(world, parting, odd),
        links=(*(("stop",) if stopped else ()), parting.link, *why.links),
        also=("rank-failure",) if stopped else (),
        proof=tuple(dict.fromkeys([*why.proof, *call_divergence.proof(world, parting)])),
        step=_step(ranks[next(iter(parting.calls))].of(ev.Step), parting),
    )


def _crossed(world: World, ended: Stop, crossed: list[Crossing]) -> Finding:
    """Calls that match, and come from lines that the ranks call in different orders."""
    ranks = {rank.rank: rank for rank in world}
    crossing = crossed[0]
    first, then = crossing.first, crossing.then
    why = call_divergence_causes.why(world, first)
    proof = [*why.proof, *call_divergence.proof(world, first), *call_divergence.proof(world, then)]
    return Finding(
        rule=_RULES[first.kind],
        ranks=why.ranks or first.odd,
        subject=f"call {first.number} on {group_name(first.group)}",
        expected="all ranks to issue the same collectives in the same order",
        found=(
            f"matching calls from lines in different orders: {_meeting(world, crossing)}. Both ranks call "
            f"{_lines(world, crossing)[-1]}, and these calls do not meet"
            f"{_outcome(ended, first) if ended.kind == 'well' else ''}"
        ),
        count=sum(one.sure and one.way == crossing.way for one in crossed),
        cause=why.cause,
        advice=why.advice,
        where=why.where or _where(world, first, first.odd),
        links=(first.link, *why.links),
        proof=tuple(dict.fromkeys(proof)),
        step=_step(ranks[first.odd[0]].of(ev.Step), first),
    )


def _meeting(world: World, crossing: Crossing) -> str:
    both = (crossing.first, crossing.then)
    return "; ".join(f"in call {one.number}, {call_divergence.told(world, one)}" for one in both)


def _swapped(world: World, crossing: Crossing) -> str:
    """Why calls whose lines met each other in both orders are not held."""
    lines = " and ".join(_lines(world, crossing))
    return f"calls at {lines} met in both orders, and whether these lines make one call was not seen"


def _lines(world: World, crossing: Crossing) -> list[str]:
    """The lines that met first, that of the crossed calls last."""
    first = crossing.first
    found = call_divergence.telling_lines(world, {r: call.site for r, call in first.calls.items()})
    return [f"{found[r].file}:{found[r].line}" for r in (*first.odd, *(r for r in found if r not in first.odd))]


def _outcome(ended: Stop, parting: Parting) -> str:
    if ended.kind == "interrupted":
        return ""
    if ended.kind != "parted":
        if parting.kind == "missing" or ended.kind != "well":
            return "; the program went on all the same"
        return "; nothing was raised, and the program went on with whatever came of it" + _by_place(parting)
    first = (*ended.failures, *ended.lost)[0]
    if first.raised is None:
        return f"; of which rank {first.rank} died ({signal_name(first.signal)})" if first.signal else ""
    message = first.raised.message.strip().splitlines()
    said = f": {message[0][:160]}" if message else ""
    return f"; so rank {first.rank} raised {first.raised.kind}{said}"


def _by_place(parting: Parting) -> str:
    """What has come of it where as many elements were reduced, in tensors of other shapes."""
    tensors = [_SHAPED.match(call.detail) for call in parting.calls.values() if call.op in _REDUCING]
    found = {(one[1], math.prod(map(int, one[2].split(", ")))) for one in tensors if one is not None and one[2]}
    if parting.kind != "detail" or len(tensors) < len(parting.calls) or None in tensors or len(found) != 1:
        return ""
    return ": elements were added up by their place in memory, whatever they stand for"


_REDUCING = ("all_reduce", "reduce")
_SHAPED = re.compile(r"(\w+)\[([\d, ]*)\] sum")


def _where(world: World, parting: Parting, odd: tuple[int, ...]) -> CallSite | None:
    found = dict(call_divergence.proof(world, parting))
    return next((found[r] for r in (*odd, *found) if r in found), None)


def _step(steps: list[ev.Step], parting: Parting) -> int | None:
    """The optimizer step that was next."""
    first = min(call.n for call in parting.calls.values())
    before = [step.number for step in steps if step.n < first]
    return max(before) + 1 if before else None


# --- the order of parameters


def _orders(world: World) -> Iterator[Finding]:
    """Parameters that DDP pairs by place, where ranks have the same ones in another order."""
    built: dict[tuple[str, int], list[tuple[int, ev.Wrapped]]] = {}
    for rank in world:
        seen: dict[str, int] = {}
        for wrapped in rank.of(ev.Wrapped):
            place = seen[wrapped.group] = seen.get(wrapped.group, -1) + 1
            built.setdefault((wrapped.group, place), []).append((rank.rank, wrapped))
    ranks = {rank.rank: rank for rank in world}
    for wrappers in built.values():
        first_rank, first = wrappers[0]
        odd = [(r, w) for r, w in wrappers[1:] if w.order != first.order and sorted(w.order) == sorted(first.order)]
        if not odd:
            continue
        r, other = odd[0]
        place, (mine, its) = next(
            (i, p) for i, p in enumerate(zip(first.order, other.order, strict=True)) if p[0] != p[1]
        )
        lines = [(one, ranks[one].where(w.site)) for one, w in wrappers]
        yield Finding(
            rule="different-parameter-order",
            ranks=tuple(one for one, _ in odd),
            subject=mine,
            expected=f"the parameters of {first.kind} in one order on all ranks, since DDP pairs them by their place",
            found=(
                f"{mine} on rank {first_rank} and {its} on rank {r} at place {place}: "
                f"{listing(first.order[place:], 3)} against {listing(other.order[place:], 3)}; "
                f"{ranks_text(one for one, _ in odd)} differs, and each takes over and averages another's parameters"
            ),
            cause=(
                "the model is built in an order that is another in each process, such as that of a set of strings, "
                "whose hashes depend on PYTHONHASHSEED"
            ),
            advice="Sort the names before the modules are built.",
            where=ranks[first_rank].where(first.site),
            links=(f"wrapper {first.wrapper}",),
            proof=tuple((one, where) for one, where in lines if where is not None),
        )
        return
