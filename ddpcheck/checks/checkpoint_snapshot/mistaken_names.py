"""Tensors that are saved under the name of another one of the same model."""

from __future__ import annotations

from collections import defaultdict

from ddpcheck import evidence as ev
from ddpcheck.facts.states import State, saves
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import listing


def judge(world: World) -> list[Finding]:
    """Names under which another tensor of the model was saved than the one that the model has there."""
    groups: dict[str, list[tuple[State, list[tuple[str, str]]]]] = defaultdict(list)
    for state in saves(world):
        record = state.record
        assert isinstance(record, ev.StateSaved)
        if record.mistaken:
            entries = state.form.entries
            pairs = [(entries[place].name, entries[other].of) for place, other in record.mistaken]
            groups[str(state.where)].append((state, pairs))
    return [_finding(each) for each in groups.values()]


def _finding(each: list[tuple[State, list[tuple[str, str]]]]) -> Finding:
    state, pairs = each[0]
    name, other = pairs[0]
    return Finding(
        rule="wrong-tensor-name",
        ranks=tuple(sorted({one.rank.rank for one, _ in each})),
        subject=name,
        expected="each name in a checkpoint to have the tensor that the model has under it",
        found=f"{name} saved with the values of {other}, which are other ones in the model"
        + (f", and the same of {listing([one for one, _ in pairs[1:]])}" if len(pairs) > 1 else ""),
        cause="one variable is put under several names",
        advice="Put each tensor of the model under its own name, at once where it is made.",
        where=state.where,
        count=len(each),
        links=("saved state",),
    )
