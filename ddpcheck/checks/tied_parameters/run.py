"""Is a parameter that several modules share still one, or a copy that stays equal? Judge of tied-parameters."""

from __future__ import annotations

from ddpcheck import evidence as ev
from ddpcheck.checks.rows import Row, Words, read
from ddpcheck.facts import ties
from ddpcheck.judging.world import Judged, World

_ADD_UP = "Add up the gradients of both copies over their ranks before each step"
_TIED = Row(
    rule="tied-copies-differ",
    moment="names",
    grounds=("tied",),
    expected="{whom}, which were one parameter when the model was built, to be equal after every step",
    found="{names} to be two tensors that differ after step {step}",
    causes={
        "ranks": Words("each of them gets the gradient of its own use alone", f"{_ADD_UP}."),
        "names": Words(
            "the tie was lost when the model was materialised, moved or sharded, and each has its own gradient now",
            "Tie them once more when the model is on its device, before it is sharded or wrapped: assign the parameter "
            "of one module to the other.",
        ),
    },
)
ROWS = (
    _TIED,
    Row(
        rule="tied-copies-differ",
        moment="names",
        grounds=("stages",),
        expected="{names}, which are the same numbers when training begins on two stages of a pipeline whose other "
        "weights are not, to be equal after every step",
        found="them to differ after each of {times} that were looked at, from step {step} on",
        causes={
            "": Words(
                "one table serves both ends of the model, and each copy gets the gradient of its own use alone",
                f"{_ADD_UP}; where the two are meant to go their own ways, accept this.",
            )
        },
    ),
    Row(
        rule="tied-copies-differ",
        moment="names",
        grounds=("reduced",),
        expected="{names}, whose gradients the program adds up over {whom} before every step, to be copies of one "
        "parameter",
        found="the same gradients, and different values after each of {times} that were looked at",
        causes={
            "start": Words(
                "they differed when training began: each rank has drawn or loaded its own, and only the gradients are "
                "brought together",
                "Give all of them the same numbers once, before training: broadcast the parameter over these ranks.",
            ),
            "": Words(
                "they are stepped otherwise: at other rates, or with other settings",
                "Step them alike: the same optimizer, rates, decay and state.",
            ),
        },
    ),
)


def judge(world: World) -> Judged:
    """Compare what must be one parameter under each of its names; a lost tie says enough of a model, on any rank."""
    holdings = ties.of(world)
    reading = read(holdings, ROWS)
    tied = {one.expected: one for one in reversed(read(holdings, ROWS[:1]).findings)}
    has_ties = any(model.ties for _, model in world.of(ev.Model))
    return Judged(
        checked=reading.moments,
        findings=tuple(tied.values() or reading.findings),
        skipped_because="ddpcheck could not compare what the two names of a parameter hold"
        if has_ties
        else "ddpcheck saw no parameter with two names",
    )
