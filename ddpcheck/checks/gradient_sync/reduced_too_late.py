"""Gradients that are reduced after the step that is made on them, and serve no other."""

from __future__ import annotations

from collections import defaultdict

from ddpcheck import evidence as ev
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import count, listing

ENOUGH = 2
"""Steps on one rank."""


def findings(world: World) -> list[Finding]:
    """Collectives over gradients whose step has been made: they are thrown away before another one is."""
    lines: dict[CallSite | None, dict[Rank, list[ev.LateReduction]]] = defaultdict(lambda: defaultdict(list))
    for rank in world:
        for one in rank.of(ev.LateReduction):
            lines[rank.where(one.site)][rank].append(one)
    often = {line: its for line, its in lines.items() if any(len(each) >= ENOUGH for each in its.values())}
    return [_finding(where, its) for where, its in often.items()]


def _finding(where: CallSite | None, its: dict[Rank, list[ev.LateReduction]]) -> Finding:
    rank, each = next(iter(its.items()))
    first = each[0]
    described = [one for one in rank.of(ev.Optimizer) if one.optimizer == first.optimizer and one.n < first.n]
    names = [described[-1].parameters[place].name for place in first.places] if described else ["a gradient"]
    step = next((s for s in rank.of(ev.Step) if (s.optimizer, s.number) == (first.optimizer, first.number)), None)
    site = rank.where(step.site) if step is not None else None
    return Finding(
        rule="reduction-after-step",
        severity="warning",
        ranks=tuple(one.rank for one in its),
        subject=names[0],
        step=first.number,
        expected="gradients to be reduced before the step that is made on them",
        found=f"those of {count(len(names), 'parameter')} reduced after the step, and gone without another one when "
        f"the next backward() begins: {listing(names)}",
        cause="the collective stands after optimizer.step(), and before zero_grad()",
        advice="Reduce them between backward() and the step.",
        where=where,
        count=sum(map(len, its.values())),
        links=(f"optimizer {first.optimizer}",),
        proof=((rank.rank, site),) if site is not None else (),
    )
