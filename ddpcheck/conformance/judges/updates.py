"""`gradient-oracle`: whether each update is that of one process, and if not, by which factor it is off, and from when on."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ddpcheck.checks.world import Judged
from ddpcheck.conformance.compared import ComparedStep, Likeness
from ddpcheck.conformance.trained import Trained
from ddpcheck.model import Finding
from ddpcheck.wording import count

CHECK = "gradient-oracle"

PARALLEL = 1e-4
"""One minus the cosine of two vectors that are said to point the same way; autocast leaves about this much."""

LIKE = 0.02
"""By how much of itself a factor may be off, to be called by its name."""


def judge(trained: Trained) -> Judged:
    """Judge every step of one training."""
    comparison = trained.comparison
    if comparison is None or not comparison.steps:
        reason = comparison.trouble if comparison is not None else "the training came to no end"
        return Judged(check=CHECK, exercised=0, skipped_because=reason)
    wrong = [step for step in comparison.steps if _wrong(trained, step)]
    findings = (_finding(trained, wrong, len(comparison.steps)),) if wrong else _left_over(trained)
    return Judged(check=CHECK, exercised=len(comparison.steps), findings=findings)


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
        check=CHECK,
        severity="error",
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
        names += [("the world size", ranks), ("one over the world size", 1 / ranks), ("the world size squared", ranks**2)]
        names += [("one over the world size squared", 1 / ranks**2)]
    if 0 < window < full:
        names += [("the micro-batches of the window over those of a full one", window / full)]
    if full > 1:
        names += [("the accumulation steps", full), ("one over the accumulation steps", 1 / full)]
        if ranks > 1:
            names += [("world size times accumulation steps", ranks * full)]
            names += [("one over world size times accumulation steps", 1 / (ranks * full))]
    batch = trained.situation.batch_size
    names += [("the direction", -1.0), ("the batch size", batch), ("one over the batch size", 1 / batch)]
    for name, value in names:
        if _like(ratio, value):
            return name, value
    return "a constant", ratio


def _cause(trained: Trained, wrong: Sequence[ComparedStep]) -> tuple[str, str]:
    """The likely cause, and the mend."""
    first = wrong[0]
    named = [factor(trained, step) for step in wrong]
    if all(named):
        names = {one[0] for one in named if one is not None}
        if len(names) == 1 and (constant := named[0]) is not None:
            if constant[0] != "a constant" or _steady([step.gradient.ratio for step in wrong]):
                return _of_a_factor(trained, first, *constant)
    if trained.situation.precision == "float64" and _rounded(first.gradient):
        # Before the mistakes below: all that would make the same gradient here are as like to it.
        return (
            "something on the way was rounded to single precision: the outputs, the loss or the gradient",
            "Leave float64 as it is: look for a precision setting, an autocast or a float() between model and step.",
        )
    others = first.others
    if "unclipped" in others and _equal(others["unclipped"]):
        return (
            "the gradient was not clipped at the step",
            "Clip after the last backward of the step and before optimizer.step(), by job.clip_norm.",
        )
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
    if _equal(others.get("means")):
        unit = "tokens" if trained.situation.loss == "tokens" else "samples"
        return (
            f"the gradient is the mean of the means of the micro-batches, which have unequal numbers of {unit} "
            f"({_numbers(first)} on the ranks)",
            f"Add up the losses of all {unit}, and divide by their number in the whole global batch: that of all ranks "
            "and all micro-batches of the step.",
        )
    if _equal(first.gradient):
        return (
            "the gradient was right: what the optimizer made of it was not",
            "Look at the learning rate, the optimizer's state and its order, and at what else changes parameters.",
        )
    if trained.situation.clip_norm is not None and _parallel(first.gradient):
        return (
            f"the gradient was clipped by another norm than its own ({first.norm:.4g} after it, "
            f"{first.expected_norm:.4g} expected)",
            "Clip once, after the last backward of the step, by the norm that DDP's averaged gradient has on every rank.",
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


def _of_a_factor(trained: Trained, step: ComparedStep, name: str, value: float) -> tuple[str, str]:
    scaled = ""
    if step.factor is not None:
        scaled = f"; the loss was multiplied by {step.factor:.4g} before backward on rank 0"
    if name == "the direction":
        return f"the gradient is off by its sign{scaled}", "Step against the gradient: look for a minus."
    if name.startswith("the micro-batches of the window"):
        return (
            f"the gradient is off by the factor {value:.4g}: {name}{scaled}",
            "Divide the loss of a last window by the number of micro-batches that it has.",
        )
    what = f"the gradient is off by the factor {value:.4g}: {name}{scaled}"
    if "world size" in name or "accumulation" in name:
        return what, (
            "DDP takes the mean over the ranks, and backward adds up over micro-batches: divide the loss by the "
            "accumulation steps, and by nothing else."
        )
    return what, "Look for what multiplies the loss or the gradient between job.loss and the step."


def _steady(ratios: Sequence[float]) -> bool:
    return all(_like(ratio, ratios[0]) for ratio in ratios)


def _numbers(step: ComparedStep) -> str:
    return ", ".join(map(str, step.numbers))


# --- what no step has taken


def _left_over(trained: Trained) -> tuple[Finding, ...]:
    left = {rank: len(trained.traces[rank].rest) for rank in trained.ranks if trained.traces[rank].rest}
    if not left:
        return ()
    rank, number = next(iter(left.items()))
    return (
        Finding(
            check=CHECK,
            severity="error",
            ranks=tuple(left),
            subject="the last micro-batches",
            expected="every micro-batch to go into an optimizer step",
            found=f"{count(number, 'micro-batch', 'micro-batches')} on rank {rank} after the last step, with "
            f"{trained.situation.about}",
            cause="the last window of an accumulation was not full, and no step followed it",
            advice="Step at the end of an epoch, too, or begin the next epoch with what is left.",
        ),
    )
