"""Steps that torch makes for the sake of a state dict: one that is not loaded over changes all later updates."""

from __future__ import annotations

from collections import defaultdict

from ddpcheck import evidence as ev
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import Finding

_COUNT = "step"
"""The moment that counts steps, in Adam and its like."""


def judge(world: World) -> list[Finding]:
    """Whether what was asked for its state before it had any was trained with, without a load in between."""
    groups: dict[str, list[tuple[Rank, ev.StateAsked, ev.Step]]] = defaultdict(list)
    for rank, asked in world.of(ev.StateAsked):
        later = [one for one in rank.of(ev.Step) if one.n > asked.n and one.optimizer == asked.optimizer]
        if not later:
            continue
        loaded = any(
            one.owner == "optimizer" and asked.n < one.n < later[0].n and one.kind == asked.kind
            for one in rank.of(ev.StateLoaded)
        )
        described = [one for one in rank.of(ev.Optimizer) if one.optimizer == asked.optimizer]
        is_cleared = bool(described) and not described[0].begun
        if not loaded and not is_cleared and _COUNT in asked.changed:
            groups[str(rank.where(asked.site))].append((rank, asked, later[0]))
    return [_finding(each) for each in groups.values()]


def _finding(each: list[tuple[Rank, ev.StateAsked, ev.Step]]) -> Finding:
    rank, asked, step = each[0]
    return Finding(
        rule="step-for-state-dict",
        severity="warning",  # the program may have put its numbers back by hand
        ranks=tuple(sorted({one.rank for one, _, _ in each})),
        subject=f"{asked.kind} {asked.optimizer}",
        step=step.number,
        expected="asking for a state to leave it as it was",
        found=f"{asked.how or 'state_dict'}() making a step of the {asked.kind}, which had no state yet, to give it "
        "one; the step stays counted, and with it every later update is another one",
        advice="Ask for the optimizer's state after its first step; leave it out of a checkpoint that is saved before, "
        "or build the optimizer anew.",
        where=rank.where(asked.site),
        links=(f"optimizer {asked.optimizer}",),
        proof=rank.proof(step.site),
    )
