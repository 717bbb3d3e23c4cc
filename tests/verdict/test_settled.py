"""What was judged of evidence that is held no longer goes into the verdict, once."""

from __future__ import annotations

import pytest

from ddpcheck.judging.world import Judged
from ddpcheck.verdict.settled import WANTING, Settled
from ddpcheck.vocabulary.model import CallSite, Finding

CHECK = "gradient-sync"
WHERE = CallSite(file="train.py", line=3, function="main")


def finding(step=1, count=1, ranks=(0,), where=WHERE, **more):
    said = {"subject": "w", "expected": "e", "found": f"at step {step}", "advice": "a", "check": CHECK}
    return Finding(**{**said, "ranks": ranks, "step": step, "count": count, "where": where, **more})


def said(checked=0, *findings, check=CHECK):
    return {check: Judged(check=check, checked=checked, findings=findings)}


def test_counts_add_up():
    """Of ten checks that were made, four are made again of what is still held, and two more later."""
    settled = Settled()
    settled.take("t", said(10), said(4))
    assert settled.with_past("t", said(6))[CHECK].checked == 12


def test_coverage_adds_up():
    """What was let go counts among all that the run had, and what a judge counts from its number only once."""
    before, after = Judged(checked=10, of=40), Judged(checked=4, of=34)
    settled = Settled()
    settled.take("t", {CHECK: before}, {CHECK: after})
    assert settled.with_past("t", {CHECK: Judged(checked=6, of=60)})[CHECK].of == 66
    settled.take("u", {CHECK: Judged(checked=10)}, {CHECK: Judged(checked=4)})
    assert settled.with_past("u", {CHECK: Judged(checked=6)})[CHECK].of == 12, "all that was compared, at the least"


def test_a_world_without_a_past_is_judged_as_it_is():
    judged = said(3)
    assert Settled().with_past("t", judged) == judged


def test_worlds_have_pasts_of_their_own():
    settled = Settled()
    settled.take("one", said(10), said(0))
    assert settled.with_past("other", said(1))[CHECK].checked == 1


def test_a_finding_of_what_went_is_told_by_its_first_time():
    settled = Settled()
    settled.take("t", said(10, finding(step=3, count=5)), said(4, finding(step=6, count=2)))
    (found,) = settled.with_past("t", said(6, finding(step=6, count=4, ranks=(1,))))[CHECK].findings
    assert (found.step, found.count, found.ranks) == (3, 7, (0, 1))


def test_one_that_went_altogether_stays():
    settled = Settled()
    settled.take("t", said(10, finding(count=5)), said(4))
    (found,) = settled.with_past("t", said(6))[CHECK].findings
    assert found.count == 5


def test_one_that_is_still_held_is_counted_once():
    settled = Settled()
    settled.take("t", said(10, finding(count=5)), said(4, finding(count=5)))
    (found,) = settled.with_past("t", said(6, finding(count=5)))[CHECK].findings
    assert found.count == 5


def test_another_place_is_another_finding():
    settled = Settled()
    settled.take("t", said(10, finding()), said(4))
    other = finding(where=CallSite(file="train.py", line=9, function="main"))
    assert len(settled.with_past("t", said(6, other))[CHECK].findings) == 2


def test_what_is_said_only_for_want_of_the_rest_is_no_finding():
    settled = Settled()
    settled.take("t", said(10), said(4, finding()))
    found = settled.with_past("t", said(6, finding(step=9)))[CHECK]
    assert (found.findings, found.checked, found.skipped_because) == ((), 0, WANTING), "nor does the check hold"
    settled.take("t", said(10, finding()), said(4))
    assert settled.with_past("t", said(6))[CHECK].findings == (), "nor later"


@pytest.mark.parametrize("check", ["rank-failure", "no-hang", "process-hygiene"])
def test_of_how_a_run_ends_nothing_is_settled_before(check):
    """A rank that waits while it is looked at may go on; but calls that were made were made."""
    settled = Settled()
    settled.take("t", said(10, finding(check=check), check=check), said(4, check=check))
    found = settled.with_past("t", said(5, check=check))[check]
    assert (found.checked, found.findings) == (11, ())


def test_a_reason_is_given_only_where_nothing_was_ever_checked():
    nothing = {CHECK: Judged(check=CHECK, checked=0, skipped_because="no steps")}
    settled = Settled()
    settled.take("t", nothing, nothing)
    assert settled.with_past("t", nothing)[CHECK].skipped_because == "no steps"
    settled.take("t", said(1), said(0))
    assert settled.with_past("t", nothing)[CHECK].skipped_because == ""
