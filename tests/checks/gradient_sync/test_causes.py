"""Why gradients differ, as far as the records show it; where they do not, nothing is said."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.registry import judge_of
from tests.judging.training_steps import digests, optimizer, stepped
from tests.judging.written import transfers, world, wrapped

MOVED = (ev.Moved, {"wrapper": 0, "site": 4, "function": "to"})


def found(*ranks):
    """The one finding of ranks that make these steps with one wrapper."""
    (finding,) = judge_of("gradient-sync", "run")(
        world(*([wrapped(3), optimizer(0, 4), *own, transfers()] for own in ranks))
    ).findings
    return finding


def one(gradients, number=0, backwards=1, own=1, after="", armed=1):
    """A step of one rank; ``own`` counts the backward() calls that the wrapper reduced."""
    usage = ev.Usage(wrapper=0, forwards=1, armed=armed, reached=armed, backwards=own, after=digests(after))
    return stepped(9, gradients, number=number, backwards=backwards, usage=[usage])


def test_a_module_that_was_converted_has_lost_its_hooks():
    """As long as no gradient has been reduced since."""
    assert "was converted" in found([MOVED, one("gh")], [MOVED, one("ij")]).cause
    before = [one("gh"), MOVED, one("gh", 1)], [one("gh"), MOVED, one("ij", 1)]
    assert "was converted" in found(*before).cause


def test_where_there_were_no_gradients_nothing_was_reduced():
    """A step without any says nothing of the hooks."""
    none = stepped(9, "", usage=[ev.Usage(wrapper=0)])
    none = none[0], {**none[1], "gradients": ev.ABSENT * 2}
    assert "was converted" in found([MOVED, none, one("gh", 1)], [MOVED, none, one("ij", 1)]).cause


def test_what_was_reduced_after_a_conversion_has_its_hooks():
    """A `to()` that changes nothing is no cause of what comes later."""
    assert "converted" not in found([MOVED, one("gh"), one("gh", 1)], [MOVED, one("gh"), one("ij", 1)]).cause
    clipped = found([MOVED, one("gh", after="gh")], [MOVED, one("ij", after="gh")])
    assert clipped.cause.startswith("they were equal when backward() ended")


def test_a_backward_of_something_else_is_no_step_left_out():
    """Only the calls that the wrapper has reduced count, where it has reduced any on every rank."""
    assert "(2 on rank 0, 1 on rank 1)" in found([one("gh", backwards=2, own=2)], [one("ij")]).cause
    assert "left out" not in found([one("gh", backwards=2)], [one("ij")]).cause


@pytest.mark.parametrize(
    ("one_rank", "other", "cause"),
    [
        (one("gh"), one("ij"), ""),
        (one("gh", after="gh"), one("ij", after="ij"), "the reduction did not take place for them"),
        (one("gh", armed=0), one("ij", armed=0), "the reduction did not take place for them"),
    ],
)
def test_that_nothing_was_reduced_is_said_where_it_was_seen(one_rank, other, cause):
    """Where nobody has looked when backward() ended, it may have been what came after it."""
    finding = found([one_rank], [other])
    assert finding.cause == cause
    assert finding.advice
