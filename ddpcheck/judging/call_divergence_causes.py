"""Why the ranks' calls part: what the data, the lines and the wrappers say of it."""

from __future__ import annotations

import ast

from ddpcheck import evidence as ev
from ddpcheck.judging import parting_ways, program_text, uneven_batches
from ddpcheck.judging.call_divergence import Calls, Parting, name, place, visits
from ddpcheck.judging.happens_before import UNFINISHED
from ddpcheck.judging.parting_ways import Turn
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite, Struct
from ddpcheck.vocabulary.wording import ranks_text

TAKE_OUT = "Call a collective on every rank of its group: take it out of the condition."
EVALUATE = (
    "Evaluate on one rank with `model.module`, under no_grad(), or on all ranks; let all ranks go through the wrapper "
    "alike."
)
TOGETHER = (
    "Let all ranks leave together: all-reduce the decision (as a flag, with MAX) before it is acted upon, or let each "
    "rank make the calls that the others still make."
)
FEWER_BATCHES = uneven_batches.EVEN_OUT[0].upper() + uneven_batches.EVEN_OUT[1:]
ALIKE = (
    "Let all ranks come to the same conclusion before they branch: broadcast or all-reduce the decision, or take the "
    "call out of the condition."
)


class Why(Struct, frozen=True, kw_only=True):
    """A likely cause, and what to do about it."""

    cause: str
    advice: str
    where: CallSite | None = None
    """The line that shows it best, where that is not the call itself."""
    proof: tuple[tuple[int, CallSite], ...] = ()
    ranks: tuple[int, ...] = ()
    """The ranks that it lies with, where that is not those of the parting."""
    links: tuple[str, ...] = ()


def why(world: World, parting: Parting) -> Why:
    """The most likely cause of a parting."""
    ranks = {rank.rank: rank for rank in world}
    turn = _turn(ranks, parting)
    if parting.kind == "line":
        return _by_source(ranks, parting, turn) or Why(cause="", advice=ALIKE)
    if parting.kind == "detail":
        return _by_source(ranks, parting, turn) or _unlike(ranks, parting)
    if parting.kind == "peer":
        return Why(
            cause="the ranks do not agree on who sends or receives: the rank was computed, or is a local one",
            advice="Give the same global rank as src or dst on every rank.",
        )
    return (
        _fewer_batches(ranks, parting)
        or _skipped(ranks, parting)
        or _elsewhere(ranks, parting, turn)
        or _by_source(ranks, parting, turn)
        or Why(cause="", advice=ALIKE)
    )


def _unlike(ranks: dict[int, Rank], parting: Parting) -> Why:
    first = next(iter(parting.calls.values()))
    if first.op == "new_group":
        return Why(
            cause="the ranks make other groups, or in another order",
            advice="Call new_group on every rank with the same ranks in the same order, members or not.",
        )
    if first.op.startswith("ddp-"):
        return Why(
            cause="the ranks use their wrappers in another order",
            advice="Call the wrapped models, and their backward, in the same order on every rank.",
        )
    r = (parting.odd or tuple(parting.calls))[0]
    made = _made_at(ranks[r], parting.calls[r]) if r in parting.calls else None
    last = f"; `{made[0]}` is last set at {made[1].file}:{made[1].line}" if made is not None else ""
    return Why(
        cause=f"the size, type or operation depends on the rank or on its data{last}",
        advice="Give tensors of one size and type on every rank: pad them, or exchange the sizes first.",
        proof=((r, made[1]),) if made is not None else (),
    )


def _made_at(rank: Rank, call: ev.Call) -> tuple[str, CallSite] | None:
    """The variable that a collective was given first, and the line before it that has set it last, by the text."""
    where = rank.where(call.site)
    for said in program_text.calls(rank.process, call.op) if where is not None else ():
        first = said.node.args[:1] if isinstance(said.node, ast.Call) else []
        if said.where == where and first and isinstance(first[0], ast.Name):
            lines = [
                one.where
                for one in program_text.settings(rank.process, first[0].id)
                if (one.where.file, one.where.function) == (where.file, where.function) and one.where.line < where.line
            ]
            return (first[0].id, max(lines, key=lambda line: line.line)) if lines else None
    return None


# --- batches


def _fewer_batches(ranks: dict[int, Rank], parting: Parting) -> Why | None:
    """A loader of some ranks ran out while others went on in the same pass."""
    over: dict[tuple[int, int], dict[int, ev.PassEnded]] = {}
    for r, rank in ranks.items():
        until = parting.calls[r].n if r in parting.calls else rank.end
        for ended in rank.of(ev.PassEnded):
            if ended.exhausted and ended.n < until:
                over.setdefault((ended.loader, ended.number), {})[r] = ended
    for (loader, number), short in sorted(over.items(), key=lambda item: min(p.at for p in item[1].values())):
        taken = {r: count for r, rank in ranks.items() if (count := _taken(rank, loader, number)) is not None}
        most = max(taken.values(), default=0)
        fewer = {r: ended for r, ended in short.items() if taken.get(r, most) < most}
        if fewer:
            return _short(ranks, fewer, [r for r in taken if taken[r] == most])
    return None


def _short(ranks: dict[int, Rank], fewer: dict[int, ev.PassEnded], most: list[int]) -> Why:
    r, over = next(iter(fewer.items()))
    passes = [p for p in ranks[r].of(ev.Pass) if p.loader == over.loader and p.number == over.number]
    where = ranks[r].where(passes[-1].site) if passes else None
    at = f" at {where.file}:{where.line}" if where else ""
    loaders = {
        one: next((made for made in ranks[one].process.of(ev.Loader) if made.loader == over.loader), None)
        for one in (*fewer, *most)
    }
    advice = uneven_batches.fix(loaders, trains=any(ended.backwards for ended in fewer.values()))
    origin = uneven_batches.place(ranks[r], loaders[r])
    batches = " and ".join(str(n) for n in sorted({p.batches for p in fewer.values()}))
    return Why(
        cause=(
            f"the loader{at} gave {ranks_text(fewer)} {batches} {'batch' if batches == '1' else 'batches'}, and "
            f"{ranks_text(most)} more: who has fewer has no batch for this step, and the others have one"
        ),
        advice=advice[0].upper() + advice[1:],
        ranks=tuple(fewer),
        proof=tuple((r, one) for one in (origin, where) if one is not None),
        links=(f"loader {over.loader}",),
    )


def _taken(rank: Rank, loader: int, number: int) -> int | None:
    """The number of the last batch of a pass."""
    last = None
    for batch in rank.of(ev.Batch):
        if batch.loader == loader and batch.pass_ == number:
            last = batch.number if last is None else max(last, batch.number)
    return last


def _skipped(ranks: dict[int, Rank], parting: Parting) -> Why | None:
    """Before the calls part, the ranks make them for different batches: one has gone on without."""
    places = {r: _batches_before(rank, parting) for r, rank in ranks.items() if r in parting.calls}
    if len(places) < 2:
        return None
    for number in sorted(set.intersection(*(set(p) for p in places.values()))):
        at = {r: places[r][number][0] for r in places}
        if None in at.values() or len(set(at.values())) == 1:
            continue
        farthest = max(at.values(), key=lambda p: p or ())
        ahead = tuple(r for r in at if at[r] == farthest)
        if len(ahead) == len(at):
            return None
        r = ahead[0]
        call = places[r][number][1]
        where = ranks[r].where(call.site)
        _, pass_, batch = farthest or (0, 0, 0)
        stayed = next(one for one in at if one not in ahead)
        turn = parting_ways.gone_on(ranks[stayed], places[stayed][number][1].site)
        way = f"by {turn}" if turn is not None else "a `continue`, or an exception that was caught there"
        return Why(
            cause=(
                f"{ranks_text(ahead)} has gone on to the next batch (batch {batch} of pass {pass_}) without "
                f"{name(call)} for the one before: {way}"
            ),
            advice=(
                "Let every rank make the same calls for every batch; let all ranks skip one, by a flag that is "
                "all-reduced, or none."
            ),
            ranks=ahead,
            where=where,
            proof=((r, turn.where),) if turn is not None else (),
        )
    return None


def _batches_before(rank: Rank, parting: Parting) -> dict[int, tuple[tuple[int, int, int] | None, ev.Call]]:
    """By number, for which batch (loader, pass, batch) a call was made."""
    records: list[ev.Call | ev.Batch] = [*rank.of(ev.Call), *rank.of(ev.Batch)]
    records.sort(key=lambda record: record.n)
    found: dict[int, tuple[tuple[int, int, int] | None, ev.Call]] = {}
    now: tuple[int, int, int] | None = None
    for record in records:
        if isinstance(record, ev.Batch):
            now = (record.loader, record.pass_, record.number)
        elif record.group == parting.group and record.number <= parting.number and record.op.startswith("ddp-"):
            found.setdefault(record.number, (now, record))
    return found


# --- lines


def _elsewhere(ranks: dict[int, Rank], parting: Parting, turn: Turn | None) -> Why | None:
    """The exceptional rank makes its call at another line than the others: what the lines' past says of it."""
    r = next((r for r in parting.odd if r in parting.calls), None)
    theirs = [(ranks[o], call) for o, call in parting.calls.items() if o not in parting.odd]
    if r is None or not theirs:
        return None
    call = parting.calls[r]
    where = ranks[r].where(call.site)
    other, its = theirs[0]
    been = max(visits(o, where, o.end) for o, _ in theirs)
    back = visits(ranks[r], other.where(its.site), call.n)
    who, whom = ranks_text(parting.odd), ranks_text(o.rank for o, _ in theirs)
    proof = ((r, turn.where),) if turn is not None else ()
    told = _told(turn, who, whom) if turn is not None else ""
    if been:
        times = visits(ranks[r], where, call.n) + 1
        if times > been:
            more = told or "a loop or a condition around it runs more often there"
            return Why(
                cause=f"{who} comes to this line {times} times, and {whom} {been}: {more}",
                advice=_advice(turn),
                where=where,
                proof=proof,
            )
        return None
    if call.op == "ddp-buffers":
        under = f" (it stands under {turn})" if turn is not None and turn.inside and turn.around else ""
        return Why(
            cause=f"only {who} comes to this line{under}: a forward through the wrapper communicates with all ranks, "
            "also in evaluation",
            advice=EVALUATE,
            where=where,
            proof=proof,
        )
    if not back and its.op == "ddp-gradients":
        more = told or "it judged a condition otherwise, or caught an exception on the way"
        return Why(
            cause=f"{who} has not come to the backward{place(other, its)}: {more}", advice=_advice(turn), proof=proof
        )
    if turn is not None:
        return _by_source(ranks, parting, turn)
    if not back and parting_ways.is_for_some_ranks(ranks[r], call.site) is not False:
        return Why(
            cause=f"only {who} comes to this line: it stands under a condition on the rank",
            advice=TAKE_OUT,
            where=where,
        )
    if (left := _left_a_pass(ranks[r], call)) is not None:
        return Why(
            cause=f"{who} has left the loop over its batches early, after {left} of them", advice=ALIKE, where=where
        )
    several = len(theirs) > 1
    goes = ("come back to" if back else "are at") if several else ("comes back to" if back else "is at")
    return Why(
        cause=(
            f"only {who} comes to this line, while {whom} {goes}"
            f"{place(other, its).replace(' at', '')}: either "
            "a call that one rank makes alone, or a loop that one rank has left alone"
        ),
        advice=ALIKE,
        where=where,
    )


def _turn(ranks: dict[int, Rank], parting: Parting) -> Turn | None:
    """The place in the source at which the exceptional rank's way parts from another's."""
    r = next((r for r in parting.odd if r in parting.calls), None)
    o = next((o for o in parting.calls if o not in parting.odd), None)
    if o is None:
        return None
    its = ranks[o], parting.calls[o].site
    return parting_ways.turn((ranks[r], parting.calls[r].site), its) if r is not None else parting_ways.past(*its)


def _by_source(ranks: dict[int, Rank], parting: Parting, turn: Turn | None) -> Why | None:
    """What the program's text says of it, where that names one place."""
    if turn is None:
        return None
    others = tuple(o for o in ranks if o in parting.calls and o not in parting.odd)
    r = next((r for r in parting.odd if r in parting.calls), None)
    # Without a call of its own, the exceptional rank is the one that has come past those of the others.
    one, other = (parting.odd, others) if r is not None else (others, parting.odd)
    alone = one if turn.inside else other
    blamed = turn.around and turn.branches[0].about_ranks and alone[0] in parting.calls
    first = alone[0] if blamed else r
    return Why(
        cause=_told(turn, ranks_text(one), ranks_text(other)),
        advice=_advice(turn),
        ranks=tuple(alone) if blamed else (),
        where=ranks[first].where(parting.calls[first].site) if first is not None else None,
        proof=(((alone if blamed else parting.odd)[0], turn.where),),
    )


def _told(turn: Turn, one: str, other: str) -> str:
    """The place in words; ``one`` is whose call it leads past, if that is ``inside``."""
    comes, passes = (one, other) if turn.inside else (other, one)
    kinds = {branch.kind for branch in turn.branches}
    at = turn.branches[0].of
    if kinds == {"break"}:
        return f"{passes} has left the loop at line {at} early, by {turn}"
    if kinds == {"return"}:
        return f"{passes} has left {turn.function}() early, by {turn}"
    if kinds == {"continue"}:
        return f"{passes} has gone on in the loop at line {at}, by {turn}"
    if kinds == {"loop"}:
        return f"{comes} runs more often than {passes} through {turn}"
    if kinds == {"except"}:
        return f"an exception that was caught on one of them alone, at {turn}"
    if turn.around and "loop" in kinds:
        return f"{comes} comes more often than {passes} to the call under {turn}"
    if turn.around:
        return f"only {comes} comes to the call under {turn}"
    return f"{passes} has come past the call of {comes}, by {turn}"


def _advice(turn: Turn | None) -> str:
    if turn is None:
        return ALIKE
    if turn.around:
        return TAKE_OUT if turn.branches[0].about_ranks else ALIKE
    return TOGETHER


def _left_a_pass(rank: Rank, call: ev.Call) -> int | None:
    """The batch at which a rank left a loop, if that was the last it did with its data before a call."""
    data = [r for kind in (ev.Pass, ev.Batch, ev.PassEnded) for r in rank.of(kind) if r.n < call.n]
    last = max(data, key=lambda r: r.n, default=None)
    return last.batches if isinstance(last, ev.PassEnded) and not last.exhausted else None


def _unfinished(rank: Rank, group: str, number: int) -> bool:
    return any(c.op == UNFINISHED and c.group == group and c.number == number for c in rank.of(ev.Call))


def unfinished(world: World, waits_for: Calls) -> Why | None:
    """A backward on some rank has left parameters out, so that others wait for its part of the reduction."""
    for waits in waits_for.values():
        if waits.op != "ddp-gradients":
            continue
        for rank in world:
            if _unfinished(rank, waits.group, waits.number):
                call = next((c for c in rank.of(ev.Call) if c.op == UNFINISHED and c.number == waits.number), None)
                return Why(
                    cause=(
                        f"on rank {rank.rank} some parameters had no part in this backward: a branch of the forward "
                        "that depends on the data left them out, and DDP waits for their gradients before it reduces"
                    ),
                    advice=(
                        "Let every parameter have a part in the loss on every rank (add 0 times the output of the "
                        "part that is left out), or pass find_unused_parameters=True."
                    ),
                    ranks=(rank.rank,),
                    where=rank.where(call.site) if call is not None else None,
                )
    return None
