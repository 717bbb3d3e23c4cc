"""Checkpoints that torch.distributed.checkpoint has saved and loaded, name by name."""

from __future__ import annotations

from collections import defaultdict

from ddpcheck import evidence as ev
from ddpcheck.checks.checkpoint_reshard.compared import RULES, Answer, Saved, by_name, compared, is_cut
from ddpcheck.facts.mixing import is_trained_apart
from ddpcheck.judging.saved_state import Piece, State, same_turn, saved_at
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing


def judge(world: World) -> tuple[set[Saved], list[Finding]]:
    """Compare each name of each load with the last save to that place."""
    names, findings = set[Saved](), []
    for group in same_turn(world):
        record = group[0].record
        if not isinstance(record, ev.StateRead) or record.how != "dcp.load" or not record.path:
            continue
        given = saved_at(world, record.path, min(state.record.at for state in group))
        if not given:
            continue
        looked, found = _compared(world, given, group)
        names |= looked
        findings += found
    return names, findings


def _compared(world: World, given: list[State], group: list[State]) -> tuple[set[Saved], list[Finding]]:
    saved = by_name([piece for state in given for piece in state.pieces])
    held = by_name([piece for state in group for piece in state.pieces])
    looked = set[Saved]()
    other: dict[Answer, list[str]] = defaultdict(list)
    strange: list[tuple[Piece, Piece]] = []
    for name, pieces in held.items():
        before = saved.get(name)
        if not before:
            continue
        if is_cut(before) or is_cut(pieces):
            answer = compared(before, pieces)
            looked |= {(-1, name)} if answer else set()
            if answer in ("order", "values", "part"):
                other[answer].append(name)
            continue
        for piece in pieces:
            own = next((one for one in before if one.rank is piece.rank), None if len(before) > 1 else before[0])
            if own is None or not (own.seen and piece.seen) or own.entry.kind != piece.entry.kind:
                continue
            looked.add((-1, name))
            if own.digest != piece.digest:
                strange.append((own, piece))
    findings = [_changed(given, group, answer, names) for answer, names in other.items()]
    return looked, [*findings, *_of_others(given, group, strange, is_trained_apart(world))]


def _changed(given: list[State], group: list[State], answer: Answer, names: list[str]) -> Finding:
    what = "the same elements in another order" if answer == "order" else "other values"
    return Finding(
        rule=RULES[answer],
        ranks=tuple(sorted(state.rank.rank for state in group)),
        subject=names[0],
        expected="a load to bring back, by name, what was saved, however it is cut",
        found=f"{what} in {count(len(names), 'tensor')}, put together over all ranks: {listing(names)}",
        cause="the planner, or what is done to the parts before or after, does not keep their places",
        advice="Save and load DTensors with the planners of torch.distributed.checkpoint: they go by global places.",
        where=group[0].where,
        proof=given[0].rank.proof(given[0].record.site),
        links=("loaded state",),
    )


def _of_others(
    given: list[State], group: list[State], strange: list[tuple[Piece, Piece]], apart: bool
) -> list[Finding]:
    """What ranks hold after the load that they have not saved under that name."""
    harmful = [(own, piece) for own, piece in strange if _matters(own, apart)]
    found = []
    for severity, each in (("error", harmful), ("warning", [one for one in strange if one not in harmful])):
        if each:
            names = list(dict.fromkeys(piece.entry.name for _, piece in each))
            ranks = tuple(sorted({piece.rank.rank for _, piece in each}))
            streams = any(own.entry.role == "random" for own, _ in each)
            found.append(
                Finding(
                    rule="values-of-another-rank",
                    severity="error" if severity == "error" else "warning",
                    ranks=ranks,
                    subject=names[0],
                    expected="a load to bring back on each rank what that rank has saved under a name",
                    found=f"{count(len(names), 'name')} with what another rank has saved: {listing(names)}",
                    cause="a plain tensor or value of one name is written once, from one rank, and read by all",
                    advice="Put the rank into the name of what is each rank's own, such as its random states and its "
                    "place in the data."
                    if streams or severity == "warning"
                    else "Let a name mean the same on every rank: put the number of the stage, expert or rank into it.",
                    where=group[0].where,
                    proof=given[0].rank.proof(given[0].record.site),
                    links=("loaded state", *(f"entry {name}" for name in names[:10])),
                )
            )
    return found


def _matters(own: Piece, apart: bool) -> bool:
    """Whether it is trained, or a random state; of ranks that step copies for themselves, one's may serve all."""
    return own.entry.role == "random" or (own.entry.role in ("parameter", "moment") and not apart)
