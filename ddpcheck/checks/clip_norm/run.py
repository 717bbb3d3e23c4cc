"""Are gradients clipped by the norm of the whole, reduced, unscaled gradient? The rows of clip-norm."""

from __future__ import annotations

from ddpcheck.checks.clip_norm import parts_read
from ddpcheck.checks.rows import NormRow, Words, read_norms
from ddpcheck.facts import norms
from ddpcheck.judging import step_alignment
from ddpcheck.judging.world import Judged, World

ROWS = (
    NormRow(
        "unequal-scale-factors",
        ("own", "group", "none"),
        "the ranks that hold parts of one model to scale their gradients by one factor, from the norm of the whole "
        "gradient",
        "factors of {factors}; the norms of their own parts were {norms}{and_whole}",
        {
            "own FSDP": Words(
                "torch.nn.utils.clip_grad_norm_ takes the norm of the rank's own shard: it knows nothing of FSDP's",
                "Call clip_grad_norm_() of the outermost FSDP module instead, on all ranks.",
            ),
            "own DTensor": Words(
                "each rank clips by the norm of its own shards, which nothing sums up over the ranks",
                "Use torch.nn.utils.clip_grad_norm_ with the DTensor parameters themselves, or all-reduce the sum of "
                "the squares over the ranks that hold other shards before the root is taken.",
            ),
            "own stages": Words(
                "each stage of the pipeline clips by the norm of its own layers",
                "All-reduce the sum of the squares over the stages before the root is taken, and clip by that "
                "(torch.nn.utils.clip_grads_with_norm_).",
            ),
            "group": Words(
                "the squares are summed up over {group} alone, and other ranks hold other parts of the model",
                "All-reduce the squares of what is split over all of {ranks}, and add those of what every rank has "
                "once.",
            ),
            "none": Words(
                "each rank multiplies its gradients by a number of its own, such as a bound over a norm, or one over "
                "the tokens or samples that it has",
                "All-reduce the number first, so that every part of one gradient is multiplied by the same.",
            ),
            "": Words(
                "each rank clips by a norm of its own, though they compute one model together",
                "All-reduce the squares of what is split over these ranks, and add those of what every rank has once.",
            ),
        },
    ),
    NormRow(
        "copies-counted-repeatedly",
        ("copies", "replicas"),
        "each element of the gradient to be counted once in the norm that clips it",
        "a norm of {norm:.4g}, in which {names} {are} counted {times} times; counted once, it is {whole:.4g}",
        {
            "": Words(
                "the squares of all gradients are summed up over the ranks, those of copies too",
                "Sum up over the ranks the squares of what is split over them alone, and add those of what every rank "
                "has once{no_sum}.",
            )
        },
        subject="{name}",
    ),
    NormRow(
        "all-gradients-counted-repeatedly",
        ("all copies",),
        "each element of the gradient to be counted once in the norm that clips it",
        "a sum of the squares of gradients that {times} ranks hold alike, a norm of {norm:.4g}; counted once, it is "
        "{whole:.4g}. Which of the two norms clips is not known, since the bound is not",
        {
            "": Words(
                "the squares of all gradients are summed up over ranks that hold copies",
                "Clip by the norm that each rank has: no sum over ranks is needed. If the sum is divided by the number "
                "of ranks, accept this.",
            )
        },
        counts=False,
    ),
    NormRow(
        "wrong-norm",
        ("largest", "sum", "mean", "mean square", "part"),
        "gradients to be clipped by the norm of the whole: the root of the sum of all squares",
        "a clip by {norm:.4g}, {made}; that of the whole is {whole:.4g}",
        {
            "sum copies": Words(
                "the norms of gradients that all ranks hold alike are summed up over the ranks",
                "Clip by the norm that each rank has. If the bound is meant for the sum of all gradients, accept this.",
            ),
            "part": Words(
                "the norm is of the parameters of one optimizer, and the gradients of several are scaled by it",
                "Take the norm of all parameters that are scaled, or scale those of each optimizer by their own.",
            ),
            "": Words(
                "the norms of the ranks' parts are not combined as the root of the sum of their squares",
                "All-reduce the squares of the norms, and take the root of that. The maximum is right for the infinity "
                "norm alone.",
            ),
        },
    ),
    NormRow(
        "clip-before-unscale",
        ("scaled",),
        "gradients to be clipped after the scaler has divided them by its scale",
        "the norm of gradients that were still multiplied by {scale:g}, which is clipped to {bound:g}: an update of no "
        "more than {left:.3g} in norm is left",
        {
            "": Words(
                "scaler.unscale_(optimizer) was not called before the clip",
                "Call scaler.unscale_(optimizer) between backward() and the clip.",
            )
        },
        subject="the gradients",
    ),
    NormRow(
        "clip-before-reduction",
        ("unreduced",),
        "gradients to be clipped after those of all ranks are added up",
        "a clip to {bound:g} on each rank by the norm of its own gradient: {norms}; the ranks step on one gradient",
        {
            "": Words(
                "the gradients are reduced after the clip, so that each rank's part in them is scaled by another "
                "factor, and what is stepped on is not clipped",
                "Clip after the reduction, right before step(). If what each rank gives is meant to be bounded, as for "
                "privacy, accept this.",
            )
        },
        severity="warning",
    ),
)


def judge(world: World) -> Judged:
    """Compare what the ranks measured before their steps with what they multiplied their gradients by."""
    windows, findings = read_norms(norms.of(world), ROWS)
    checked, made = step_alignment.coverage(world, windows)
    return Judged(
        checked=checked,
        of=made,
        findings=(*findings, *parts_read.judge(world)),
        skipped_because="" if checked else "ddpcheck saw no step whose whole gradient all ranks clipped by one norm",
    )
