"""Names of one checkpoint under which ranks hold different values: all but one rank's are lost."""

from __future__ import annotations

from collections import defaultdict

from ddpcheck import evidence as ev
from ddpcheck.facts.mixing import is_trained_apart
from ddpcheck.facts.states import Piece, State
from ddpcheck.judging.values_by_key import by_key
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing

WEIGHTS, STREAMS, OTHERS = "weights", "streams", "others"

_RULES = {WEIGHTS: "conflicting-weights", STREAMS: "conflicting-random-states", OTHERS: "conflicting-values"}
_WHAT = {WEIGHTS: "what is trained", STREAMS: "the states of random generators", OTHERS: "values"}
_ADVICE = {
    WEIGHTS: "Let a name mean the same on every rank: put the number of the stage, expert or part into it, or save "
    "DTensors, which say which part of a tensor they are.",
    STREAMS: "Save one state for each rank, under a name with its rank in it, and load it on that rank.",
    OTHERS: "Save one value for each rank, under a name with its rank in it, where each is needed.",
}
_OF_COPIES = "Save right after an average; and where each rank is to go on with its own moments, a file for each rank."


def judge(world: World, group: list[State]) -> tuple[int, list[Finding]]:
    """Of the ranks of one checkpoint: torch writes a plain tensor of one name once, from one of them."""
    record = group[0].record
    if not isinstance(record, ev.StateSaved) or record.how == "torch.save" or len(group) < 2:
        return 0, []
    by_name = by_key((piece.entry.name, piece) for state in group for piece in state.pieces)
    looked = 0
    differing: dict[str, list[list[Piece]]] = defaultdict(list)
    for pieces in by_name.values():
        plain = [one for one in pieces if one.entry.layout is None or one.entry.layout.ground != "DTensor"]
        if len(plain) < 2 or any(one.sharded or not one.seen for one in plain):
            continue
        looked += 1
        roles = {one.entry.role for one in plain}
        if len({(one.entry.kind, one.digest) for one in plain}) > 1 and roles != {"buffer"}:
            what = WEIGHTS if roles & {"parameter", "moment"} else STREAMS if "random" in roles else OTHERS
            differing[what].append(plain)
    apart = is_trained_apart(world)
    return looked, [_finding(group, what, each, apart) for what, each in differing.items()]


def _finding(group: list[State], what: str, each: list[list[Piece]], apart: bool) -> Finding:
    first = each[0]
    ranks = tuple(sorted({one.rank.rank for pieces in each for one in pieces}))
    names = [pieces[0].entry.name for pieces in each]
    other = next(
        (one for one in first if (one.entry.kind, one.digest) != (first[0].entry.kind, first[0].digest)), first[0]
    )
    shapes = {one.entry.kind for one in first}
    how = "other shapes" if len(shapes) > 1 else "other values"
    return Finding(
        rule=_RULES[what],
        severity="error" if what == WEIGHTS and not apart else "warning",
        ranks=ranks,
        subject=names[0],
        expected="a name in a checkpoint to mean the same on all ranks that save it",
        found=f"{_WHAT[what]} under {count(len(names), 'name')} for which rank {first[0].rank.rank} has {how} than "
        f"rank {other.rank.rank} ({listing(names)}); a plain tensor or value of one name is written once, and what the "
        "other ranks have is lost",
        cause=""
        if what != WEIGHTS
        else "each rank steps a copy of its own between averages, and the state of one copy is saved for all"
        if apart
        else "parts of one model are named alike on all ranks, as stages are that count their layers from zero",
        advice=_OF_COPIES if what == WEIGHTS and apart else _ADVICE[what],
        where=group[0].where,
        links=("saved state", *(f"entry {name}" for name in names[:10])),
    )
