"""Moments of a checkpoint that a load through torch.distributed.checkpoint did not ask for."""

from __future__ import annotations

import pytest

from ddpcheck.checks.checkpoint_load_complete.run import judge
from tests.judging.own_reductions import optimizer, stepped
from tests.judging.written import world
from tests.judging.written_state import Forms, moment, plain, weight

SAVED = weight("model.a", 1), moment("a", 1)
RATE = plain("optimizer.param_groups.0.lr", 1)


def resumed(*asked, saved=SAVED, begun=False, number=0):
    """A checkpoint is saved, something of it is loaded, and an optimizer steps."""
    forms = Forms()
    records = [
        *forms.saved(10, "c", *saved, how="dcp.save", ranks=(0, 1)),
        *forms.read(20, "dcp.load", *asked, path="c", made=1),
        optimizer(1, begun=begun),
        stepped("gh", optimizer=1, number=number),
    ]
    return [one for one in judge(world(*[records] * 2)).findings if "did not ask for" in one.found]


def test_an_optimizer_that_has_made_no_step():
    """Its state dict has groups, and no moments that could be filled."""
    (found,) = resumed(weight("model.a", 1), RATE)
    assert (found.severity, found.ranks, found.where.line) == ("warning", (0, 1), 20)
    assert "1 moment in the checkpoint that the load did not ask for" in found.found


@pytest.mark.parametrize(("asked", "more"), [
    ([weight("model.a", 1)], {}),  # the model alone, on purpose
    ([weight("model.a", 1), RATE, moment("a", 1)], {}),
    ([weight("model.a", 1), RATE, plain("optimizer.a.exp_avg", 0)], {}),  # into a copy of the moment
    ([weight("model.a", 1), RATE], {"begun": True}),  # it has got moments by other means
    ([weight("model.a", 1), RATE], {"number": 3}),  # it goes on with its own
    ([weight("model.a", 1), RATE], {"saved": [weight("model.a", 1), RATE]}),  # there are none
])  # fmt: skip
def test_what_is_meant_or_complete(asked, more):
    assert resumed(*asked, **more) == []
