"""Does what DDP does not reduce agree where it must? Judge of buffer-sync, and of models that ranks evaluate."""

from __future__ import annotations

from ddpcheck.checks.buffer_sync import recomputed
from ddpcheck.checks.rows import Row, Words, read
from ddpcheck.facts import buffers
from ddpcheck.judging.world import Judged, World

_TOGETHER = (
    "All-reduce the statistics that go into such a buffer, in the forward, before it is updated; or broadcast it from "
    "one rank before the model is evaluated or saved."
)
_LATE = Words(
    "it was registered after the module was wrapped, or was None then: DDP does not broadcast it",
    "Register every buffer as a tensor before the module is wrapped.",
)
_WITHOUT_WRAPPER = {
    "peers": Words("each rank computes them from activations of its own, or draws for itself", _TOGETHER),
    "reduced": Words(
        "they are updated from the tokens of each rank alone, and nothing adds these up over the ranks", _TOGETHER
    ),
    "": Words("they are updated from each rank's own data, and what shards the model leaves buffers alone", _TOGETHER),
}
ROWS = (
    Row(
        rule="different-buffers-in-forward",
        moment="buffers: broadcast",
        noun="buffer",
        expected="{whom} to hold the same buffers when DDP has broadcast them",
        found="{differing} to differ: {names}",
        causes={
            "late": _LATE,
            "": Words(
                "a buffer was assigned anew, and DDP broadcasts the tensor that it found at first",
                "Change buffers in place (copy_, add_), and leave the object that is registered.",
            ),
        },
    ),
    Row(
        rule="different-buffers-at-evaluation",
        moment="buffers: evaluation",
        noun="buffer",
        expected="{whom} to hold the same buffers when the model is evaluated on all of them",
        found="{differing} to differ: {names}{began}",
        causes=_WITHOUT_WRAPPER
        | {
            "late": _LATE,
            "not broadcast": Words(
                "the wrapper was built with broadcast_buffers=False, so that each rank keeps statistics of its own "
                "data",
                "Leave out broadcast_buffers=False, so that each forward through the wrapper begins with rank 0's "
                "buffers; to keep it, average or broadcast the buffers before an evaluation (dist.broadcast(buffer, "
                "src=0) for each of model.module.buffers()){sync}.",
            ),
        },
    ),
    Row(
        rule="different-buffers-after-step",
        moment="buffers: step",
        noun="buffer",
        expected="{whom} to hold the same buffers after a step",
        found="{differing} to differ: {names}{began}",
        causes=_WITHOUT_WRAPPER
        | {
            "late": _LATE,
            "overwritten": Words(
                "they are updated from each rank's own data; the next forward overwrites them with rank 0's, and what "
                "the other ranks had added is lost",
                "All-reduce the statistics that go into such a buffer, in the forward, before it is updated.",
            ),
            "own data": Words(
                "they are updated from each rank's own data, and nothing brings them together",
                "All-reduce the statistics that go into such a buffer, or let DDP broadcast it "
                "(broadcast_buffers=True).",
            ),
        },
    ),
    Row(
        rule="different-buffers-at-evaluation",
        moment="buffers: model",
        noun="buffer",
        expected="{whom} to hold the same buffers of a model that all of them evaluate",
        found="{differing} to differ: {names}",
        causes={
            "gone round": Words(
                "they are as each rank's last batch has left them: DDP broadcasts buffers at the beginning of a "
                "forward through the wrapper, and this evaluation goes round it",
                "Broadcast rank 0's buffers before all ranks evaluate, or evaluate on one rank.",
            ),
            "never together": Words(
                "nothing brings the buffers of this model together",
                "Broadcast rank 0's buffers before all ranks evaluate, or evaluate on one rank.",
            ),
        },
    ),
    Row(
        rule="different-model-attributes",
        moment="attributes",
        expected="the plain attributes of the model to be the same on all ranks",
        found="{names} to differ: {name} is {values}",
        causes={
            "": Words(
                "it was computed from each rank's own data, or from its rank; DDP broadcasts parameters and buffers "
                "alone",
                "If it is meant to be the same, compute it on one rank and broadcast it, or all-reduce what it is "
                "computed from.",
            )
        },
    ),
)
_NOTHING = "ddpcheck saw no buffer that several ranks hold of one model, after a step, a broadcast or in an evaluation"


def judge(world: World) -> Judged:
    """Compare buffers when DDP has broadcast them, when a model is evaluated, and when a step has been made."""
    reading = read(buffers.of(world), ROWS)
    twice = recomputed.judge(world)
    return Judged(
        checked=len(reading.windows) + reading.moments + sum(one.count for one in twice),
        findings=(*reading.findings, *twice),
        skipped_because=_NOTHING,
    )
