"""Do all ranks hold the same gradients on entry to every optimizer step?"""

from __future__ import annotations

from ddpcheck.checks.rows import Row, Words, read
from ddpcheck.checks.share_rows import ShareRow, read_shares
from ddpcheck.facts import mixing, tensors
from ddpcheck.judging import step_alignment
from ddpcheck.judging.replicated_parameters import why_none
from ddpcheck.judging.world import Judged, World

CLIP_ALIKE = "clip them on all ranks or on none, by the same bound"
_TREATED = "treated them differently (clipping, scaling or zeroing on one rank alone)"
_EQUAL_THEN = f"they were equal when backward() ended: what came between it and the step {_TREATED}"
_BY_PROGRAM = f"the program reduces them itself, and what came between its collective and the step {_TREATED}"
_ALIKE = "Treat gradients alike on every rank between {} and step()"
_CLIP = f": {CLIP_ALIKE} ({{clip}})."
_SUM_UP = (
    "Say where a local tensor is taken that its gradient is part of a sum (to_local(grad_placements=[Partial()])), or "
    "all-reduce these gradients {along} before the step."
)
_FORWARD = (
    "Compute the loss from the output of the wrapper itself; leave no_sync() before the last forward of a step{}."
)
ROWS = (
    Row(
        rule="different-gradients",
        moment="gradients",
        noun="gradient",
        expected="{whom} to hold the same gradients on entry to the optimizer's step",
        found="{differ} of {of} to differ on entry to step {step}: {names}{absent}",
        causes={
            "scales": Words(
                "they were equal when backward() ended, and then divided by gradient scales that are not: {scales}",
                "Give every rank's GradScaler the same initial scale, load its state on all of them, and let them "
                "update alike.",
            ),
            "after backward": Words(_EQUAL_THEN, _ALIKE.format("backward()") + "."),
            "after backward and clipped": Words(_EQUAL_THEN, _ALIKE.format("backward()") + _CLIP),
            "after reduction": Words(_BY_PROGRAM, _ALIKE.format("their reduction") + "."),
            "after reduction and clipped": Words(_BY_PROGRAM, _ALIKE.format("their reduction") + _CLIP),
            "converted": Words(
                "the module was converted (to(), cpu(), double() …) after it had been wrapped: DDP's hooks stay on "
                "what it had before",
                "Convert the module first, and wrap it then.",
            ),
            "backwards": Words(
                "the ranks made different numbers of backward() calls for this step ({backwards}): one of them has "
                "left out a step, so that each rank's gradients are of another batch",
                "Let all ranks step, or none: agree on it by an all-reduce of the condition.",
            ),
            "absent": Words(
                "a rank has skipped its backward(), or a branch that depends on the rank or its data",
                "Run the same forward and backward on every rank, or train such a model with "
                "find_unused_parameters=True.",
            ),
            "not reduced": Words("the reduction did not take place for them", _FORWARD.format("")),
            "declared and clipped": Words(
                "", "Sum them up {along} before the step, and treat them alike afterwards" + _CLIP
            ),
            "declared": Words(
                "each rank has computed them from its own part of the activations, and nothing sums them up {along}; "
                "or these ranks have read different samples",
                _SUM_UP,
            ),
            "": Words(
                "",
                _FORWARD.format(", and treat gradients alike on every rank between backward() and step()"),
            ),
        },
    ),
)  # fmt: skip
_AGREE = "all ranks to hold the same gradients on entry to the optimizer's step"
SHARES = (
    ShareRow(
        rule="reduction-to-one-rank",
        patterns=("one",),
        grounds=("joined",),
        severity="error",
        expected=_AGREE,
        found="{gradients} to be the sum of all ranks' on some ranks, and that of {over} alone on others, in {steps} "
        "of {of} looked at: {names}",
        causes={
            "": Words(
                "dist.reduce brings the sum to one rank alone, and every rank steps with what it has; nothing brings "
                "the parameters together afterwards",
                "Reduce gradients with all_reduce; or let that rank alone step, and broadcast the parameters.",
            )
        },
    ),
    ShareRow(
        rule="skipped-reduction",
        patterns=("skipped",),
        grounds=("joined",),
        expected=_AGREE,
        found="{gradients} to be each rank's own in {steps} of {of} looked at, and added up in the others: {names}",
        causes={
            "": Words(
                "the program reduces them before some steps, and has left it out before these: a window at the end of "
                "an epoch, or a branch, that steps without it",
                "Reduce the gradients before every step, those of an epoch's last and shorter window too.",
            )
        },
    ),
)
_NOTHING = "ddpcheck saw no step on which all ranks have gradients to compare: finite ones, other than zeros"


def judge(world: World) -> Judged:
    """Compare gradients on entry to steps, and look at whether what the program reduces reaches all ranks."""
    reading = read(tensors.of(world), ROWS)
    shares = read_shares(mixing.of(world), SHARES)
    most = max((finding.count for finding in shares.findings), default=0)
    checked, made = step_alignment.coverage(world, reading.windows, most)
    checked = max(checked, most)
    because = _NOTHING if reading.has_looks else why_none(world, step_alignment.optimizers(world))
    own = (*reading.findings, *shares.findings)
    return Judged(checked=checked, of=made, findings=own, skipped_because=because)
