"""`metric-oracle`: what the trainer reports of the validation set is what one process finds on all of it."""

from __future__ import annotations

from ddpcheck.checks.world import Judged
from ddpcheck.conformance import facts
from ddpcheck.conformance.trained import Trained
from ddpcheck.model import Finding
from ddpcheck.wording import count, ranks_text

CHECK = "metric-oracle"

ROUNDING = 1e-6
"""Of a metric, relative to it: a loss in single precision that is added up in another order."""


def judge(trained: Trained) -> Judged:
    """Judge everything that was reported, on every rank that has reported."""
    reported = [(rank, fact) for rank, trace in enumerate(trained.traces) for fact in trace.of(facts.Reported)]
    if not reported:
        return Judged(check=CHECK, exercised=0, skipped_because="the adapter reports no metric by job.report")
    findings = []
    for name in dict.fromkeys(fact.name for _, fact in reported):
        wrong = [(rank, fact) for rank, fact in reported if fact.name == name and _wrong(fact)]
        if wrong:
            findings.append(_finding(trained, name, wrong))
    return Judged(check=CHECK, exercised=len(reported), findings=tuple(findings))


def _wrong(fact: facts.Reported) -> bool:
    return not abs(fact.value - fact.expected) <= ROUNDING * max(1e-3, abs(fact.expected))


def _finding(trained: Trained, name: str, wrong: list[tuple[int, facts.Reported]]) -> Finding:
    _, first = wrong[0]
    number = trained.situation.validation
    ranks = sorted({rank for rank, _ in wrong})
    apart = len({fact.value for _, fact in wrong if fact.expected == first.expected}) > 1
    told = "; the ranks report different values" if apart else ""
    return Finding(
        check=CHECK,
        severity="error",
        ranks=tuple(ranks),
        subject=f"the {name}",
        expected=f"what one process finds on all {count(number, 'sample')} of the validation set: {first.expected:.9g}",
        found=f"{first.value:.9g} reported on {ranks_text(ranks)}, with {count(trained.world_size, 'rank')}{told}",
        advice=(
            "Count each sample once (a DistributedSampler repeats some), add up sums and counts over the ranks and "
            "divide at the end; gather outputs where a metric is no mean, and take away the padding."
        ),
        count=len(wrong),
    )
