"""Whether an adapter does what an adapter is for, before anything is said of its library."""

from __future__ import annotations

from ddpcheck.checks.check import Rule
from ddpcheck.evidence import training_record
from ddpcheck.judging.world import Judged
from ddpcheck.trainings.suite_row import Row, one
from ddpcheck.trainings.trained_situation import Trained
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, ranks_text

CHECK = "adapter"
RULES = (
    Rule("unsupported-plain-training", "fit(job) supports not even an ordinary training"),
    Rule("no-training-forward", "fit(job) makes no training forward of job.model"),
    Rule("loss-never-called", "fit(job) never calls job.loss"),
    Rule("no-optimizer-step", "fit(job) makes no optimizer step over the parameters of job.model"),
    Rule("no-backward-from-loss", "no backward goes through a value of job.loss"),
    Rule("unchanged-parameters", "no optimizer step changes a parameter"),
    Rule("early-return", "fit(job) returns before its last epoch"),
)
"""What a finding of it can say; it is no folder of the registry, as it says nothing of a library."""


def judge(trained: Trained) -> Judged:
    """Judge the adapter by one ordinary training."""
    if trained.unsupported:
        finding: Finding | None = _supports_nothing(trained)
    elif trained.failed:
        finding = trained.failure()
    else:
        finding = _trains_nothing(trained) or _returns_early(trained)
    return Judged(check=CHECK, checked=1, findings=(finding,) if finding else ())


def _supports_nothing(trained: Trained) -> Finding:
    return _finding(
        list(trained.ranks),
        "fit(job) to carry out an ordinary training, at the least",
        f"ddpcheck.NotSupported on all ranks: {trained.unsupported}",
        "Raise NotSupported for what the library has not, by what the job asks for beyond that.",
        rule="unsupported-plain-training",
    )


def _trains_nothing(trained: Trained) -> Finding | None:
    idle = [rank for rank in trained.ranks if not trained.traces[rank].micros]
    if idle:
        evaluated = [rank for rank in idle if trained.traces[rank].evaluated]
        return _finding(
            idle,
            "fit(job) to train job.model, with a forward for each batch of job.dataset",
            f"no forward of job.model in training mode and with gradients on {ranks_text(idle)}"
            + (f"; {ranks_text(evaluated)} called it in evaluation mode, or under no_grad" if evaluated else ""),
            "Call job.model, or its wrapper, on the inputs of each batch, in train() mode and outside of no_grad.",
            rule="no-training-forward",
        )
    lossless = [rank for rank in trained.ranks if not any(m.losses for m in trained.traces[rank].micros)]
    if lossless:
        return _finding(
            lossless,
            "fit(job) to train with job.loss",
            f"job.loss was never called on {ranks_text(lossless)}, in "
            + count(len(trained.traces[lossless[0]].micros), "forward"),
            "Call job.loss(outputs, targets) on what the model returns, and go backward from its value.",
            rule="loss-never-called",
        )
    stepless = [rank for rank in trained.ranks if not trained.traces[rank].steps]
    if stepless:
        foreign = [rank for rank in stepless if trained.traces[rank].of(training_record.ForeignStep)]
        backward = any(m.factors for rank in stepless for m in trained.traces[rank].micros)
        found = f"no optimizer step over its parameters on {ranks_text(stepless)}"
        if foreign:
            found += f"; on {ranks_text(foreign)} an optimizer was stepped that has other parameters"
        elif not backward:
            found += ", and no backward from its loss"
        return _finding(
            stepless,
            "fit(job) to update the parameters of job.model",
            found,
            "Step job.optimizer after each backward; where the library makes a model of its own, make the optimizer by "
            "job.make_optimizer over the parameters of that.",
            rule="no-optimizer-step",
        )
    if not any(m.factors for trace in trained.traces for m in trace.micros):
        return _finding(
            list(trained.ranks),
            "the gradients to come from job.loss",
            "no backward went through a value of job.loss",
            "Go backward from what job.loss returns, and neither detach it nor make a tensor of its value.",
            rule="no-backward-from-loss",
        )
    still = [
        rank
        for rank in trained.ranks
        if all(step.before == step.after for step in trained.traces[rank].steps)
    ]  # fmt: skip
    if still:
        return _finding(
            still,
            "the steps of the optimizer to change the parameters",
            f"no step changed any parameter on {ranks_text(still)}",
            "Look for gradients that are zero or None at the step: zero_grad() between backward() and step(), say.",
            rule="unchanged-parameters",
        )
    return None


def _returns_early(trained: Trained) -> Finding | None:
    situation = trained.situation
    (an_epoch,) = situation.micro_batches(trained.world_size)
    early = [rank for rank in trained.ranks if len(trained.traces[rank].micros) <= an_epoch * (situation.epochs - 1)]
    if not early:
        return None
    found = len(trained.traces[early[0]].micros)
    return _finding(
        early,
        f"fit(job) to return after {count(situation.epochs, 'epoch')} of {count(an_epoch, 'batch', 'batches')} each",
        f"it returned after {count(found, 'batch', 'batches')} of {an_epoch * situation.epochs} on {ranks_text(early)}",
        "Train for job.epochs epochs, each over all batches of this rank's share of job.dataset.",
        rule="early-return",
    )


def _finding(ranks: list[int], expected: str, found: str, advice: str, *, rule: str) -> Finding:
    return Finding(
        check=CHECK,
        rule=rule,
        ranks=tuple(ranks),
        subject="fit(job)",
        expected=expected,
        found=found,
        advice=advice,
    )


ROWS = (Row(CHECK, ("plain",), one(judge), also_failed=True),)
