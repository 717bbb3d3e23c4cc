"""Learning rates and optimizer state: the same on all ranks, and the rates those of one process."""

from __future__ import annotations

from collections.abc import Sequence

from ddpcheck.evidence import training_record
from ddpcheck.judging.world import Judged
from ddpcheck.trainings.situations import rates
from ddpcheck.trainings.suite_row import ANY, Row, each, one
from ddpcheck.trainings.trained_situation import Trained
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, ranks_text


def judge_state(trained: Trained) -> Judged:
    """`optimizer-sync`: after every step all ranks have the same learning rates and the same optimizer state."""
    rounds = list(zip(*(trace.steps for trace in trained.traces), strict=False))
    for number, steps in enumerate(rounds):
        others = [rank for rank, step in enumerate(steps) if step.rates != steps[0].rates]
        if others:
            rates = ", ".join(f"{step.rates[0]:.6g} on rank {rank}" for rank, step in enumerate(steps) if step.rates)
            finding = Finding(
                rule="unequal-learning-rates",
                ranks=tuple(others),
                subject="the learning rate",
                expected="the same learning rate on all ranks",
                found=f"{rates} at step {number}, with {trained.situation.about}",
                advice="Let what sets the rate be the same on all ranks: reduce over the ranks what it depends on (a "
                "loss, a number of samples or tokens), and step the scheduler equally often.",
                step=number,
            )
            return Judged(checked=len(rounds), findings=(finding,))
        others = [rank for rank, step in enumerate(steps) if step.moments != steps[0].moments]
        if others:
            finding = Finding(
                rule="unequal-optimizer-states",
                ranks=tuple(others),
                subject="the optimizer's state",
                expected="the same optimizer state on all ranks",
                found=f"another state than rank 0's on {ranks_text(others)} after step {number}",
                advice="Begin with the same state and step with the same gradients on every rank.",
                step=number,
            )
            return Judged(checked=len(rounds), findings=(finding,))
    return Judged(checked=len(rounds))


def judge_schedule(trained: Trained, expected: Sequence[float]) -> Judged:
    """`optimizer-sync`: the learning rate of each step is that of a scheduler which is stepped once after each step."""
    found = [step.rates for step in trained.traces[0].steps if step.rates]
    for number, (groups, wanted) in enumerate(zip(found, expected, strict=False)):
        rate = next((one for one in groups if abs(one - wanted) > 1e-9 * abs(wanted)), wanted)
        if rate != wanted:
            stepped = next((n for n, one in enumerate(expected) if abs(rate - one) <= 1e-9 * one), None)
            told = f", which is that of step {stepped}" if stepped is not None else ""
            finding = Finding(
                rule="wrong-learning-rate",
                ranks=(0,),
                subject="the learning rate",
                expected=f"the rate {wanted:.6g} at step {number}"
                + (": job.scheduler is to be stepped once after each step" if expected[0] != expected[-1] else ""),
                found=f"{rate:.6g}{told}, on {count(trained.world_size, 'rank')}, with {trained.situation.about}",
                advice="Step the scheduler once for each optimizer step, and not once for each rank, micro-batch or "
                "epoch; scale no rate by the world size.",
                step=number,
            )
            return Judged(checked=len(found), findings=(finding,))
    return Judged(checked=len(found))


def judge_plateau(trained: Trained) -> Judged:
    """`optimizer-sync`: a scheduler that waits for a plateau is stepped once after each epoch."""
    situation = trained.situation
    steps = trained.traces[0].steps
    apart = _stepped_apart(trained)
    if apart is not None:
        return apart
    if len(steps) < situation.epochs or len(steps) % situation.epochs:
        finding = Finding(
            rule="unequal-epoch-lengths",
            ranks=tuple(trained.ranks),
            subject="the steps",
            expected=f"equally many steps in each of {count(situation.epochs, 'epoch')}, with an evaluation after each",
            found=count(len(steps), "step"),
            advice="Train for job.epochs epochs, and evaluate after each.",
            step=0,
        )
        return Judged(checked=1, findings=(finding,))
    each = len(steps) // situation.epochs
    rates = [steps[epoch * each].rates[0] for epoch in range(situation.epochs)]
    # It lowers the rate after the second evaluation that is not twice as good, and never twice in one epoch.
    for epoch in range(1, situation.epochs):
        falls = rates[epoch] / rates[epoch - 1]
        wanted = 1.0 if epoch == 1 else 0.5
        if abs(falls - wanted) > 1e-9:
            finding = Finding(
                rule="wrong-learning-rate",
                ranks=(0,),
                subject="the learning rate",
                expected=f"the rate of epoch {epoch} to be {wanted:g} times that of the one before: the scheduler is "
                "to be stepped once after each epoch, with the validation loss",
                found=f"{falls:g} times, on {count(trained.world_size, 'rank')} (the rates are "
                f"{', '.join(f'{rate:g}' for rate in rates)})",
                advice="Step the scheduler once for each evaluation, and not once for each rank.",
                step=epoch * each,
            )
            return Judged(checked=len(rates), findings=(finding,))
    return Judged(checked=len(rates))


def _stepped_apart(trained: Trained) -> Judged | None:
    """Where the ranks step their schedulers with values that differ: sooner or later their learning rates do, too."""
    rounds = list(zip(*(trace.of(training_record.Scheduled) for trace in trained.traces), strict=False))
    for number, stepped in enumerate(rounds):
        first = stepped[0].value
        others = [rank for rank, one in enumerate(stepped) if not abs(one.value - first) <= 1e-6 * abs(first)]
        if others:
            values = ", ".join(f"{one.value:.6g} on rank {rank}" for rank, one in enumerate(stepped))
            finding = Finding(
                rule="unequal-validation-losses",
                ranks=tuple(others),
                subject="the scheduler",
                expected="all ranks to step the scheduler with the same validation loss, that of the whole validation "
                "set",
                found=f"{values}, after evaluation {number}",
                advice="Reduce the loss over the ranks first: by what each has of its own, one rank may lower its "
                "rate, and another not.",
            )
            return Judged(checked=len(rounds), findings=(finding,))
    return None


def _optimizing(trained: Trained) -> Judged:
    """The state on all ranks, and the rates: but where they depend on what was evaluated, or may on the tokens."""
    judged, situation = judge_state(trained), trained.situation
    own_rates = situation.rates == "plateau" or situation.loss != "samples"
    return judged if judged.findings or own_rates else _schedule(trained)


def _schedule(trained: Trained) -> Judged:
    return judge_schedule(trained, rates(trained.situation, len(trained.traces[0].steps)))


ROWS = (
    Row("optimizer-sync", (ANY,), each(_optimizing), least=2),
    Row("optimizer-sync:schedule", ("schedule",), one(_schedule)),
    Row("optimizer-sync:schedule-accumulation", ("schedule-accumulation",), one(_schedule)),
    Row("optimizer-sync:plateau", ("plateau",), one(judge_plateau)),
)
