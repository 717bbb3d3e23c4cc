"""Does a scheduler move the learning rates of an optimizer that steps, or of one that was replaced by another?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ddpcheck import evidence as ev
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite, Finding

AT_LEAST = 4
"""Steps at which the rates of the optimizer that does step were read."""


def findings(world: World) -> Iterator[Finding]:
    """Of each line that steps such a scheduler, say it once.

    Whoever copies rates from one optimizer to another has other rates in that:
    where all that step keep theirs, nobody does.
    """
    met: dict[CallSite | None, list[tuple[Rank, ev.ScheduledInVain, ev.Optimizer]]] = defaultdict(list)
    for rank in world:
        stepped = {step.optimizer for step in rank.of(ev.Step)}
        for record in rank.of(ev.ScheduledInVain):
            instead = _instead(rank, record)
            if record.optimizer not in stepped and instead is not None and _all_keep_their_rates(rank, stepped):
                met[rank.where(record.site)].append((rank, record, instead))
    for where, each in met.items():
        yield _finding(where, each)


def _instead(rank: Rank, record: ev.ScheduledInVain) -> ev.Optimizer | None:
    """An optimizer of the same class that steps, and was made later."""
    return next((o for o in rank.of(ev.Optimizer) if o.kind == record.of and o.optimizer > record.optimizer), None)


def _all_keep_their_rates(rank: Rank, optimizers: set[int]) -> bool:
    for number in optimizers:
        rates = [step.rates for step in rank.of(ev.Step) if step.optimizer == number and step.rates]
        if len(rates) < AT_LEAST or any(one != rates[0] or ev.UNREAD in one for one in rates):
            return False
    return True


def _finding(where: CallSite | None, each: list[tuple[Rank, ev.ScheduledInVain, ev.Optimizer]]) -> Finding:
    rank, record, instead = each[0]
    made = rank.where(instead.site)
    return Finding(
        rule="scheduler-of-idle-optimizer",
        severity="warning",
        ranks=tuple(sorted({one.rank for one, _, _ in each})),
        subject=f"the {record.kind}",
        expected="a scheduler to set the learning rates of an optimizer that steps",
        found=f"the {record.kind} to have moved those of an {record.of} that makes no step from {record.first:.4g} to "
        f"{record.last:.4g}, while the {instead.kind} that steps in its place keeps its own throughout",
        cause="the optimizer was made anew when the model was sharded or wrapped, and the scheduler has the one before",
        advice="Build the scheduler from the optimizer that is stepped, after the last one was made.",
        where=where,
        links=(f"optimizer {instead.optimizer}",),
        proof=((rank.rank, made),) if made is not None and made != where else (),
    )
