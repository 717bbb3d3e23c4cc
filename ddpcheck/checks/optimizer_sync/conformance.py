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
            return _violated(
                trained,
                len(rounds),
                others,
                "the learning rate",
                "the same learning rate on all ranks",
                f"{rates} at step {number}, with {trained.situation.about}",
                "Let what sets the rate be the same on all ranks: reduce over the ranks what it depends on (a loss, a "
                "number of samples or tokens), and step the scheduler equally often.",
                number,
                rule="unequal-learning-rates",
            )
        others = [rank for rank, step in enumerate(steps) if step.moments != steps[0].moments]
        if others:
            return _violated(
                trained,
                len(rounds),
                others,
                "the optimizer's state",
                "the same optimizer state on all ranks",
                f"another state than rank 0's on {ranks_text(others)} after step {number}",
                "Begin with the same state and step with the same gradients on every rank.",
                number,
                rule="unequal-optimizer-states",
            )
    return Judged(checked=len(rounds))


def judge_schedule(trained: Trained, expected: Sequence[float]) -> Judged:
    """`optimizer-sync`: the learning rate of each step is that of a scheduler which is stepped once after each step."""
    found = [step.rates for step in trained.traces[0].steps if step.rates]
    for number, (groups, wanted) in enumerate(zip(found, expected, strict=False)):
        rate = next((one for one in groups if abs(one - wanted) > 1e-9 * abs(wanted)), wanted)
        if rate != wanted:
            stepped = next((n for n, one in enumerate(expected) if abs(rate - one) <= 1e-9 * one), None)
            told = f", which is that of step {stepped}" if stepped is not None else ""
            return _violated(
                trained,
                len(found),
                [0],
                "the learning rate",
                f"the rate {wanted:.6g} at step {number}"
                + (": job.scheduler is to be stepped once after each step" if expected[0] != expected[-1] else ""),
                f"{rate:.6g}{told}, on {count(trained.world_size, 'rank')}, with {trained.situation.about}",
                "Step the scheduler once for each optimizer step, and not once for each rank, micro-batch or epoch; "
                "scale no rate by the world size.",
                number,
                rule="wrong-learning-rate",
            )
    return Judged(checked=len(found))


def judge_plateau(trained: Trained) -> Judged:
    """`optimizer-sync`: a scheduler that waits for a plateau is stepped once after each epoch."""
    situation = trained.situation
    steps = trained.traces[0].steps
    apart = _stepped_apart(trained)
    if apart is not None:
        return apart
    if len(steps) < situation.epochs or len(steps) % situation.epochs:
        return _violated(
            trained,
            1,
            list(trained.ranks),
            "the steps",
            f"equally many steps in each of {count(situation.epochs, 'epoch')}, with an evaluation after each",
            count(len(steps), "step"),
            "Train for job.epochs epochs, and evaluate after each.",
            0,
            rule="unequal-epoch-lengths",
        )
    each = len(steps) // situation.epochs
    rates = [steps[epoch * each].rates[0] for epoch in range(situation.epochs)]
    # It lowers the rate after the second evaluation that is not twice as good, and never twice in one epoch.
    for epoch in range(1, situation.epochs):
        falls = rates[epoch] / rates[epoch - 1]
        wanted = 1.0 if epoch == 1 else 0.5
        if abs(falls - wanted) > 1e-9:
            return _violated(
                trained,
                len(rates),
                [0],
                "the learning rate",
                f"the rate of epoch {epoch} to be {wanted:g} times that of the one before: the scheduler is to be "
                "stepped once after each epoch, with the validation loss",
                f"{falls:g} times, on {count(trained.world_size, 'rank')} (the rates are "
                f"{', '.join(f'{rate:g}' for rate in rates)})",
                "Step the scheduler once for each evaluation, and not once for each rank.",
                epoch * each,
                rule="wrong-learning-rate",
            )
    return Judged(checked=len(rates))


def _stepped_apart(trained: Trained) -> Judged | None:
    """Where the ranks step their schedulers with values that differ: sooner or later their learning rates do, too."""
    rounds = list(zip(*(trace.of(training_record.Scheduled) for trace in trained.traces), strict=False))
    for number, stepped in enumerate(rounds):
        first = stepped[0].value
        others = [rank for rank, one in enumerate(stepped) if not abs(one.value - first) <= 1e-6 * abs(first)]
        if others:
            values = ", ".join(f"{one.value:.6g} on rank {rank}" for rank, one in enumerate(stepped))
            return _violated(
                trained,
                len(rounds),
                others,
                "the scheduler",
                "all ranks to step the scheduler with the same validation loss, that of the whole validation set",
                f"{values}, after evaluation {number}",
                "Reduce the loss over the ranks first: by what each has of its own, one rank may lower its rate, and "
                "another not.",
                None,
                rule="unequal-validation-losses",
            )
    return None


def _violated(
    trained: Trained,
    checked: int,
    ranks: list[int],
    subject: str,
    expected: str,
    found: str,
    advice: str,
    step: int | None,
    *,
    rule: str,
) -> Judged:
    finding = Finding(
        rule=rule, ranks=tuple(ranks), subject=subject, expected=expected, found=found, advice=advice, step=step
    )
    return Judged(checked=checked, findings=(finding,))


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
