"""Do all ranks hold the same parameters after every optimizer step, and wherever they evaluate them?"""

from __future__ import annotations

from functools import partial

from ddpcheck.checks.parameter_sync.meetings import read_meetings
from ddpcheck.checks.rows import Row, Words, read
from ddpcheck.facts import buffers, group_sizes, mixing, owners, tensors
from ddpcheck.judging import step_alignment
from ddpcheck.judging.replicated_parameters import why_none
from ddpcheck.judging.world import Judged, World

_REPAIRS = "Find what changes parameters on one rank alone: to reduce gradients never repairs parameters."
_COPY_BACK = (
    "Let every rank copy each slice of what was gathered into its parameter, those of a last round that does not give "
    "every rank one included."
)
ROWS = (
    Row(
        rule="different-parameters",
        moment="parameters",
        expected="{whom} to hold the same parameters after the optimizer's step",
        found="{differ} of {of} to differ after step {step}: {names}{unseen}",
        causes={
            "gradients": Words("their gradients differed", _REPAIRS),
            "rates": Words("their learning rates differ", _REPAIRS),
            "state": Words("the optimizers' states differ", _REPAIRS),
            "start": Words("they differed before the first step", _REPAIRS),
            "alone": Words("they were changed on one rank alone, outside of the optimizer", _REPAIRS),
            "owned": Words("a rank does not take over what the owner of a parameter hands to all", _COPY_BACK),
            "left over": Words(
                "their number does not divide by the number of ranks, and the last round is left out", _COPY_BACK
            ),
            "": Words(
                "", "Find what one rank alone does in these steps, to parameters or to gradients after backward()."
            ),
        },
    ),
    Row(
        rule="different-evaluated-copy",
        moment="evaluated",
        expected="all ranks to hold the same parameters of a model that all of them evaluate",
        found="{differ} of {of} to differ: {names}",
        causes={
            "": Words(
                "it was built or updated on each rank by itself, and no wrapper has brought the ranks together",
                "Wrap the model (or broadcast its state) before its first use; update copies from wrapped models.",
            )
        },
    ),
    Row(
        rule="different-parameters",
        moment="received",
        expected="parameters that rank {owner} steps for all ranks to arrive on every rank",
        found="{differing} on {odd} to be as they were before, though other parameters of rank {owner} had "
        "arrived: {names}",
        causes={
            "": Words(
                "the owner sends it at some steps only, or what was there before is written back on these ranks",
                "Send every parameter from its owner to all ranks after each step.",
            )
        },
    ),
)
_NOTHING = "ddpcheck saw no step change a parameter that several ranks hold, and leave it finite"


def judge(world: World) -> Judged:
    """Compare parameters after steps, where they meet or arrive from their owners, and in models that all evaluate."""
    reading = read((*tensors.of(world), *buffers.of(world), *owners.of(world)), ROWS)
    begun, findings = read_meetings(mixing.of(world), group_sizes.of(world), partial(group_sizes.name, world))
    checked, made = step_alignment.coverage(world, reading.windows | begun, reading.moments)
    because = _NOTHING if reading.has_looks else why_none(world, step_alignment.optimizers(world))
    return Judged(checked=checked, of=made, findings=(*reading.findings, *findings), skipped_because=because)
