"""Files that were made of other files: one rank's part in the place of the whole."""

from __future__ import annotations

from ddpcheck import evidence as ev
from ddpcheck.checks.checkpoint_reshard.compared import RULES, Answer, Saved, by_name, compared
from ddpcheck.judging.file_history import LOADS
from ddpcheck.judging.saved_state import Piece, State, saved_at, saves
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing


def judge(world: World) -> tuple[set[Saved], list[Finding]]:
    """Compare what is saved of loaded parts with these parts."""
    names, findings = set[Saved](), []
    for state in saves(world):
        plain = [one for one in state.pieces if not one.sharded and not one.entry.live and "[" in one.entry.kind]
        given = _loaded_for(world, state) if plain else []
        if not given or len({one.rank for one in given}) < max(2, len(given)):
            continue
        parts = by_name([one for other in given for one in other.pieces if one.sharded])
        answers: dict[str, Answer] = {}
        for one in plain:
            if one.entry.name in parts:
                answers[one.entry.name] = compared(parts[one.entry.name], [one])
        # Where all are parts, none was meant to be the whole.
        if any(answer in ("equal", "order") for answer in answers.values()):
            names |= {(-1, name) for name in answers}
            wrong = [name for name, answer in answers.items() if answer in ("part", "order")]
            if wrong:
                findings.append(_finding(state, given, wrong, parts, answers))
    return names, findings


def _loaded_for(world: World, state: State) -> list[State]:
    """What was saved of the files that this rank has loaded since it saved, or stepped, the last time."""
    rank, n = state.rank, state.record.n
    before = [one.n for kind in (ev.StateSaved, ev.Step) for one in rank.of(kind) if one.n < n]
    since = max(before, default=0)
    found: dict[tuple[object, ...], State] = {}
    for file in rank.of(ev.File):
        if file.op == "read" and file.how in LOADS and since < file.n < n:
            for one in saved_at(world, file.path, file.at):
                found[one.rank, one.record.path] = one
    return list(found.values())


def _finding(
    state: State, given: list[State], wrong: list[str], parts: dict[str, list[Piece]], answers: dict[str, Answer]
) -> Finding:
    name = wrong[0]
    shape = "x".join(map(str, parts[name][0].shape))
    part = answers[name] == "part"
    return Finding(
        rule=RULES[answers[name]],
        ranks=(state.rank.rank,),
        subject=name,
        expected="a file that is made of all ranks' parts to hold, by name, the whole of each tensor",
        found=(
            f"one rank's part of {name}, of which the whole is {shape}"
            if part
            else f"the parts of {name} in another order"
        )
        + (
            f"; and so it is with {count(len(wrong) - 1, 'more name')} ({listing(wrong[1:])})" if len(wrong) > 1 else ""
        ),
        cause="parts that happen to be equal were taken for copies"
        if part
        else "the parts are joined in another order",
        advice="Go by what is declared of each tensor, its placements or its global shape, never by its values.",
        where=state.where,
        proof=given[0].rank.proof(given[0].record.site),
        links=("loaded state",),
    )
