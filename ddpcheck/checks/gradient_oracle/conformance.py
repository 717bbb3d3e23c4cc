"""`gradient-oracle`: whether each update is that of one process; if not, by which factor it is off, and since when."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ddpcheck.checks.gradient_oracle.micro_batches_per_step import changed_between, left_over, miscounted
from ddpcheck.evidence.oracle_comparison import OTHER_DTYPE, ComparedStep, Likeness
from ddpcheck.judging.world import Judged
from ddpcheck.trainings.epochs_of_samples import ONE_SHARE, apart_in_a_copy
from ddpcheck.trainings.situations import ALONG, SHARDED, SITUATIONS, Precision
from ddpcheck.trainings.suite_row import Row, one
from ddpcheck.trainings.trained_situation import Trained
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing, ranks_text

PARALLEL = 1e-4
"""One minus the cosine of two vectors that are said to point the same way; autocast leaves about this much."""

LIKE = 0.02
"""By how much of itself a factor may be off, to be called by its name."""

OF_THE_NORM = "one over the square root of the world size"


def judge(trained: Trained) -> Judged:
    """Judge every step of one training."""
    comparison = trained.comparison
    if comparison is None:
        return Judged(checked=0, skipped_because="the training came to no end")
    if not comparison.steps:
        # Nothing that was trained could be compared: a training that took no batch is not one to pass over.
        nothing = _cast(trained) or miscounted(trained)
        return Judged(
            checked=1 if nothing else 0, findings=(nothing,) if nothing else (), skipped_because=comparison.trouble
        )
    wrong = [step for step in comparison.steps if _wrong(trained, step)]
    found = _finding(trained, wrong, len(comparison.steps)) if wrong else None
    found = found or _unlowered(trained)
    found = found or miscounted(trained) or changed_between(trained) or left_over(trained)
    return Judged(checked=len(comparison.steps), findings=(found,) if found else ())


LOWERED: tuple[Precision, ...] = ("bfloat16",)
"""What a forward computes in only if the trainer sees to it: model and data have the other precisions already."""


def _cast(trained: Trained) -> Finding | None:
    """The finding of a model that was cast, where no lower precision was asked for: no update of it can be compared."""
    wanted = trained.situation.precision
    if trained.comparison is None or trained.comparison.trouble != OTHER_DTYPE or wanted in LOWERED:
        return None
    return Finding(
        rule="unrequested-cast",
        ranks=tuple(trained.ranks),
        subject="job.model",
        expected=f"the model to be trained in {wanted}, which it has, and in its shapes",
        found=trained.comparison.trouble,
        advice="Cast neither model nor data: job.precision says what they are, or that autocast is asked for.",
    )


def _unlowered(trained: Trained) -> Finding | None:
    """The finding of forwards in a higher precision than asked for; their updates are right to within the lower one."""
    wanted = trained.situation.precision
    if wanted not in LOWERED:
        return None
    found = {
        rank: other
        for rank, trace in enumerate(trained.traces)
        if (other := [m.forward.arithmetic for m in trace.micros if m.forward.arithmetic not in (wanted, "")])
    }
    if not found:
        return None
    rank, others = next(iter(found.items()))
    return Finding(
        rule="precision-not-lowered",
        ranks=tuple(found),
        subject="job.precision",
        expected=f"forwards in training to compute in {wanted}, as job.precision says",
        found=f"{listing(dict.fromkeys(others))} in {len(others)} of "
        f"{count(len(trained.traces[rank].micros), 'forward')} on {ranks_text(found)}",
        advice=f"Call the model within torch.autocast(job.device.type, dtype=torch.{wanted}), or raise "
        "ddpcheck.NotSupported where the library has no such thing.",
    )


def _must_be_exact(trained: Trained) -> bool:
    return trained.situation.exact and trained.world_size & (trained.world_size - 1) == 0


def _wrong(trained: Trained, step: ComparedStep) -> bool:
    if _must_be_exact(trained):
        return any(not gap.same_bits for gap in step.gaps)
    return any(gap.wrong for gap in step.gaps)


def _finding(trained: Trained, wrong: Sequence[ComparedStep], steps: int) -> Finding:
    first = wrong[0]
    exact = _must_be_exact(trained)
    gap = max(first.gaps, key=lambda g: math.inf if math.isnan(g.worst) else g.worst / (g.allowed or 1e-300))
    loss = trained.situation.loss
    mean = {"samples": "samples", "tokens": "tokens that count", "pairs": "pairs"}[loss]
    allowed = "not a bit, since nothing is rounded here" if exact else f"{gap.allowed:.2g} for rounding, as measured"
    often = "at every step" if len(wrong) == steps else f"at {len(wrong)} of {count(steps, 'step')}"
    cause, advice = _cause(trained, wrong)
    return Finding(
        rule="wrong-update",
        ranks=tuple(trained.ranks),
        subject=f"{gap.name} at step {first.step}",
        expected=(
            f"each update to be that of one process that takes the mean over all {mean} of the same global batch "
            f"(allowed: {allowed})"
        ),
        found=(
            f"{often}, from step {first.step} on, another update, with {trained.situation.about}: at {list(gap.index)} "
            f"{gap.found:.9g} instead of {gap.expected:.9g}; the whole update is {_said(first.update)}, the gradient "
            f"{_said(first.gradient)} (its norm is {first.norm:.4g}, expected {first.expected_norm:.4g})"
        ),
        cause=cause,
        advice=advice,
        step=first.step,
        count=len(wrong),
    )


def _said(likeness: Likeness) -> str:
    """How one vector lies to the right one."""
    if _parallel(likeness):
        return "as expected" if _like(likeness.ratio, 1.0) else f"{likeness.ratio:.4g} times the expected one"
    if likeness.ratio == 0.0:
        return "zero, or across the expected one"
    angle = math.degrees(math.acos(max(-1.0, min(1.0, likeness.cosine))))
    return f"{angle:.2g}° off the expected direction"


def _parallel(likeness: Likeness) -> bool:
    return 1 - abs(likeness.cosine) < PARALLEL


def _like(value: float, wanted: float) -> bool:
    return abs(value - wanted) <= LIKE * abs(wanted)


def _equal(likeness: Likeness | None) -> bool:
    return likeness is not None and likeness.cosine > 1 - PARALLEL and _like(likeness.ratio, 1.0)


def _rounded(likeness: Likeness) -> bool:
    """Right but for what is left of a number in single precision, and not right to the bits of double precision."""
    return _equal(likeness) and 1 - likeness.cosine < 1e-9 and 1e-12 < abs(likeness.ratio - 1) < 1e-5


# --- what it comes from


def factor(trained: Trained, step: ComparedStep) -> tuple[str, float] | None:
    """The factor by which the gradient of a step is off, by its name and value; None where it is no factor."""
    if not _parallel(step.gradient) or _equal(step.gradient):
        return None
    ratio, ranks = step.gradient.ratio, trained.world_size
    full, window = trained.situation.accumulation, step.micros[0] if step.micros else 0
    names: list[tuple[str, float]] = []
    if ranks > 1:
        names += [
            ("the world size", ranks),
            ("one over the world size", 1 / ranks),
            ("the world size squared", ranks**2),
        ]
        names += [("one over the world size squared", 1 / ranks**2)]
    if 0 < window < full:
        names += [("the micro-batches of the window over those of a full one", window / full)]
    if full > 1:
        names += [("the accumulation steps", full), ("one over the accumulation steps", 1 / full)]
        if ranks > 1:
            names += [("world size times accumulation steps", ranks * full)]
            names += [("one over world size times accumulation steps", 1 / (ranks * full))]
    if trained.situation.clip_norm is not None and ranks > 1:
        names += [(OF_THE_NORM, 1 / math.sqrt(ranks))]
    copies = len(trained.situation.readers(ranks))
    if 1 < copies < ranks:
        names += [("the copies of the model", copies), ("one over the copies of the model", 1 / copies)]
    batch = trained.situation.batch_size
    names += [("the direction", -1.0), ("the batch size", batch), ("one over the batch size", 1 / batch)]
    for name, value in names:
        if _like(ratio, value):
            return name, value
    return "a constant", ratio


def _cause(trained: Trained, wrong: Sequence[ComparedStep]) -> tuple[str, str]:
    """The likely cause, and the fix."""
    first = wrong[0]
    if apart_in_a_copy(trained):
        return "ranks that have one copy of the model among them took different samples", ONE_SHARE
    named = [factor(trained, step) for step in wrong]
    if all(named) and _summed(wrong):
        return (
            "the gradient is off by the number of micro-batches that each step has "
            f"({', '.join(map(str, sorted({step.micros[0] for step in wrong})))}): they were added up",
            "backward adds up over micro-batches: divide the loss by the number of them in the step.",
        )
    if all(named):
        names = {one[0] for one in named if one is not None}
        steady = names != {"a constant"} or all(_like(step.gradient.ratio, first.gradient.ratio) for step in wrong)
        if len(names) == 1 and steady and named[0] is not None:
            return _of_a_factor(trained, first, *named[0])
    if trained.situation.precision == "float64" and _rounded(first.gradient):
        # Before the mistakes below: all that would make the same gradient here are as like to it.
        return (
            "something on the way was rounded to single precision: the outputs, the loss or the gradient",
            "Leave float64 as it is: look for a precision setting, an autocast or a float() between model and step.",
        )
    if _equal(first.gradient):
        # Before the mistakes below: some make the right gradient, where the ranks have equal numbers of samples.
        return (
            "the gradient was right: what the optimizer made of it was not",
            "Look at the optimizer's settings, its state and its learning rate, and at what else changes parameters.",
        )
    others = first.others
    if "unclipped" in others and _equal(others["unclipped"]):
        return (
            "the gradient was not clipped at the step",
            "Clip after the last backward of the step and before optimizer.step(), by job.clip_norm.",
        )
    if _equal(others.get("copy")):
        along = ALONG[trained.situation.parallelism]
        return f"the gradient is that of one copy's own samples: it was not reduced along {along}", _OF_COPIES[along]
    if trained.world_size > 1 and _equal(others.get("own")):
        return (
            "the gradient is that of rank 0's own samples: it was not reduced over the ranks",
            "Compute the loss from the output of the DistributedDataParallel wrapper, and leave no_sync() before the "
            "last forward of a step.",
        )
    if _equal(others.get("last")):
        return (
            "the gradient is that of the last micro-batch alone",
            "Zero the gradients after a step, and not before every backward.",
        )
    if _equal(others.get("apart")):
        return (
            "the gradient is the mean of the ranks' own losses: each rank has held its samples against its own alone",
            "Gather the outputs and the targets of all ranks, with gradients, before the loss is computed.",
        )
    for mistake, means in (("ranks", "the ranks' own means"), ("means", "the means of the micro-batches")):
        if _equal(others.get(mistake)):
            unit = "tokens" if trained.situation.loss == "tokens" else "samples"
            return (
                f"the gradient is the mean of {means}, which are of unequal numbers of {unit} "
                f"({', '.join(map(str, first.numbers))} on the ranks)",
                f"Add up the losses of all {unit}, and divide by their number in the whole global batch: that of all "
                "ranks and all micro-batches of the step.",
            )
    if trained.situation.clip_norm is not None and _parallel(first.gradient):
        return (
            f"the gradient was clipped by another norm than its own ({first.norm:.4g} after it, "
            f"{first.expected_norm:.4g} expected)",
            "Clip once, after the last backward of the step, by the norm that DDP's averaged gradient has anyway.",
        )
    if trained.situation.clip_norm is not None:
        return (
            "the gradient was clipped in pieces: micro-batch by micro-batch, rank by rank, or parameter by parameter",
            "Clip once, after the last backward of the step, by the norm of all parameters together.",
        )
    return (
        "the gradient points elsewhere: other samples, other weights of samples, or a part of them left out",
        "Compare what the trainer does between the forward and the step with a plain loop.",
    )


_OF_COPIES = {
    "replicate": "Shard over the whole of job.mesh: over its dimension shard alone, nobody reduces what the copies "
    "have.",
    "dp": "Average the gradients over job.mesh['dp'] before they are clipped: by DistributedDataParallel(model, "
    "device_mesh=job.mesh['dp']), or by an all-reduce in its group.",
}


def _summed(wrong: Sequence[ComparedStep]) -> bool:
    """Whether windows of several lengths were each added up, in the place of a mean."""
    lengths = {step.micros[0] for step in wrong}
    return len(lengths) > 1 and all(_like(step.gradient.ratio, step.micros[0]) for step in wrong)


def _of_a_factor(trained: Trained, step: ComparedStep, name: str, value: float) -> tuple[str, str]:
    scaled = ""
    if step.factor is not None and _like(step.factor, 1.0):
        scaled = "; the loss went into backward as job.loss returned it"
    elif step.factor is not None:
        scaled = f"; the loss was multiplied by {step.factor:.4g} before backward on rank 0"
    if name == "the direction":
        return f"the gradient is off by its sign{scaled}", "Step against the gradient: look for a minus."
    if name.startswith("the micro-batches of the window"):
        return (
            f"the gradient is off by the factor {value:.4g}: {name}{scaled}",
            "Divide the loss of a last window by the number of micro-batches that it has.",
        )
    what = f"the gradient is off by the factor {value:.4g}: {name}{scaled}"
    if name == OF_THE_NORM:
        return (
            f"the gradient is off by the factor {value:.4g}: {name}, by the inverse of which its norm was too great "
            "when it was clipped",
            "Take the norm of the gradient as DDP leaves it, whole on every rank: add no squares up over the ranks.",
        )
    if trained.situation.loss == "pairs" and "world size" in name:
        return what, (
            "DDP takes the mean over the ranks. Multiply the loss by the world size where the gradient of what was "
            "gathered comes back to the rank's own part alone, and not where it is added up over the ranks, as "
            "torch.distributed.nn does."
        )
    if "world size" in name or "accumulation" in name:
        return what, (
            "DDP takes the mean over the ranks, and backward adds up over micro-batches: divide the loss by the "
            "accumulation steps, and by nothing else."
        )
    return what, "Look for what multiplies the loss or the gradient between job.loss and the step."


ROWS = (
    Row("gradient-oracle", ("plain",), one(judge), oracle=True),
    *(
        Row(f"gradient-oracle:{situation}", (situation,), one(judge), oracle=True)
        for situation in (
            "exact",
            "in-order",
            "drop-last",
            "few-samples",
            "accumulation",
            "accumulation-tail",
            "clipping",
            "accumulation-clipping",
            "schedule",
            "schedule-accumulation",
            "batchnorm",
            "dropout",
            "branches",
            "tied",
            "iterable",
            "validation",
            "float32",
            "bfloat16",
            "tokens",
            "tokens-accumulation",
            "pairs",
        )
    ),
    *(
        Row(f"gradient-oracle:{situation.name}", (situation.name,), one(judge), 2, situation.world_sizes, oracle=True)
        for situation in SITUATIONS
        if situation.name.removesuffix("-accumulation-clipping") in SHARDED
    ),
)
