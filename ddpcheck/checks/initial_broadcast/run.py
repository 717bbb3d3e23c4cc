"""Do all ranks hold rank 0's state from the wrap to the first step?"""

from __future__ import annotations

from ddpcheck.checks.initial_broadcast import wrapper_group
from ddpcheck.checks.rows import Row, Words, read
from ddpcheck.facts import tensors
from ddpcheck.judging import step_alignment
from ddpcheck.judging.replicated_parameters import declared_apart
from ddpcheck.judging.world import Judged, World

_BEFORE = "Load and initialise before the model is wrapped, or do the same on every rank."
ROWS = (
    Row(
        rule="different-initial-state",
        moment="wrapped",
        noun="tensor",
        expected="all ranks to hold rank 0's parameters and buffers when DDP's constructor returns",
        found="{differing} to differ: {names}",
        causes={"": Words("", "Let every rank build the same model, and ignore no parameter that must be the same.")},
    ),
    Row(
        rule="different-initial-state",
        moment="start",
        expected="{whom} to hold the same parameters until the first optimizer step",
        found="{differing} to differ on entry to the first step: {names}",
        causes={
            "wrapped": Words(
                "changed on some ranks between the wrap and the first step: a load, a reset, or an initialisation "
                "there",
                _BEFORE,
            ),
            "line": Words(  # at a line of a test: there may have been steps that were not seen
                "changed on some ranks after the wrap, outside of any optimizer step that was seen", _BEFORE
            ),
            "declared": Words(
                "nothing has made them the same {along}: no wrapper broadcasts what is sharded",
                "Draw or load them alike {along}, or broadcast them along it before the first step.",
            ),
            "": Words("", _BEFORE),
        },
    ),
)
_NOTHING = "ddpcheck saw no parameters or buffers, other than zeros, that a wrapper or a mesh makes copies of"


def judge(world: World) -> Judged:
    """Compare what ranks hold at the construction of wrappers, and on entry to the first step."""
    reading = read(tensors.of(world), ROWS)
    groups = [wrapper_group.judge(world, replicas) for replicas in step_alignment.wrappers(world)]
    unseen = step_alignment.why_unseen(step_alignment.optimizers(world)) or declared_apart(world)
    return Judged(
        checked=reading.moments,
        findings=(*reading.findings, *(one for one in groups if one is not None)),
        skipped_because=unseen or _NOTHING,
    )
