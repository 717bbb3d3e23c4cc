"""`metric-oracle`: what the trainer reports of the validation set is what one process finds on all of it."""

from __future__ import annotations

from ddpcheck.evidence import training_record
from ddpcheck.judging.world import Judged
from ddpcheck.trainings.suite_row import Row, one
from ddpcheck.trainings.trained_situation import Trained
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing, ranks_text

ROUNDING = 1e-6
"""Of a metric, relative to it: a loss in single precision that is added up in another order."""


def judge(trained: Trained) -> Judged:
    """Judge everything that was reported, on every rank that has reported."""
    reported = [
        (rank, fact) for rank, trace in enumerate(trained.traces) for fact in trace.of(training_record.Reported)
    ]
    if not reported:
        return Judged(checked=0, skipped_because="the adapter reports no metric by job.report")
    by_cause: dict[tuple[str, str], list[list[tuple[int, training_record.Reported]]]] = {}
    for name in dict.fromkeys(fact.name for _, fact in reported):
        wrong = [(rank, fact) for rank, fact in reported if fact.name == name and not _same(fact.value, fact.expected)]
        if wrong:
            by_cause.setdefault(_cause(trained, [fact for _, fact in wrong]), []).append(wrong)
    findings = [_finding(trained, metrics, *cause) for cause, metrics in by_cause.items()]
    return Judged(checked=len(reported), findings=tuple(findings))


def _same(value: float, expected: float) -> bool:
    return abs(value - expected) <= ROUNDING * max(1e-3, abs(expected))  # NaN is the same as nothing


_IN_GENERAL = (
    "Count each sample once (a DistributedSampler repeats some), add up sums and counts over the ranks and divide at "
    "the end; gather outputs where a metric is no mean, and take away the padding."
)


def _cause(trained: Trained, wrong: list[training_record.Reported]) -> tuple[str, str]:
    """The mistake by which all that was reported of a metric is what it is, and the fix."""
    alike = [
        name
        for name in wrong[0].others
        if all(_same(fact.value, fact.others.get(name, float("nan"))) for fact in wrong)
    ]
    if "repeated" in alike:
        return (
            "the samples that a sampler repeats, to even the ranks out, are counted twice",
            "Cut off what is more than len(job.validation) once the outputs are gathered and back in order, or "
            "evaluate without padding.",
        )
    if "left out" in alike:
        return (
            "the last samples, which do not divide evenly, are left out",
            "Evaluate every sample once: set no drop_last, and cut off no more than the padding.",
        )
    if "own" in alike:
        return (
            "each rank that reports takes its own part of the samples for the whole",
            "Reduce over the ranks before anything is reported or decided: sums and counts of a mean, gathered outputs "
            "of any other metric.",
        )
    if "mean" in alike or "mean of padded" in alike:
        padded = "" if "mean" in alike else ", with the samples in them that a sampler repeats"
        return (
            f"the ranks' own values are averaged{padded}: that is not the value over all samples",
            "Add up sums and counts over the ranks and divide at the end; gather outputs where a metric is no mean.",
        )
    return "", _IN_GENERAL


def _finding(
    trained: Trained, metrics: list[list[tuple[int, training_record.Reported]]], cause: str, advice: str
) -> Finding:
    """What is wrong by one cause, metric by metric: the first report of each."""
    number, firsts = trained.situation.validation, [wrong[0][1] for wrong in metrics]
    reports = [one for wrong in metrics for one in wrong]
    ranks = sorted({rank for rank, _ in reports})
    apart = any(
        len({fact.value for _, fact in wrong if fact.expected == wrong[0][1].expected}) > 1 for wrong in metrics
    )
    told = f"; the ranks report different values, this is rank {metrics[0][0][0]}'s" if apart else ""
    return Finding(
        rule="wrong-metric-value",
        ranks=tuple(ranks),
        subject=listing([f"the {fact.name}" for fact in firsts]),
        expected=(
            f"what one process finds on all {count(number, 'sample')} of the validation set: "
            + ", ".join(f"{fact.name} {fact.expected:.6g}" for fact in firsts)
        ),
        found=", ".join(f"{fact.name} {fact.value:.6g}" for fact in firsts)
        + f" on {ranks_text(ranks)} of {trained.world_size}{told}",
        cause=cause,
        advice=advice,
        count=len(reports),
    )


ROWS = (
    Row("metric-oracle", ("validation",), one(judge)),
    Row("metric-oracle:few-validation", ("few-validation",), one(judge)),
)
