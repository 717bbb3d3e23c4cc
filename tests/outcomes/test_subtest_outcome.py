"""From the reports of subtests in all ranks to one outcome for each, over records written by hand."""

from __future__ import annotations

import pytest

from ddpcheck.outcomes.subtest_outcome import subtests_of
from ddpcheck.vocabulary.model import PhaseReport, RankEnding
from tests.outcomes.test_test_outcome import finished, note, record


def said(outcome="passed", msg="case", at=1.0, **more):
    """A rank's report of a subtest."""
    kwargs = more.pop("kwargs", {})
    data = {"_subtest.context": {"msg": msg, "kwargs": kwargs}, "longrepr": {"reprcrash": {"message": "assert 0"}}}
    if outcome == "skipped":
        data["longrepr"] = ["test_x.py", 3, "Skipped: odd"]
    return PhaseReport(phase="call", outcome=outcome, at=at, data=data, **more)


def rank(number, *subtests) -> RankEnding:
    return finished(number, subtests=subtests)


def test_no_subtest():
    """A test that reports none has none."""
    assert subtests_of(record(finished(0), finished(1))) == []


def test_one_subtest_of_all_ranks_is_one():
    """It passes where every rank's passed."""
    (only,) = subtests_of(record(rank(0, said()), rank(1, said())))
    assert only.outcome.result == "passed"
    assert [ending.rank for ending in only.record.endings] == [0, 1]


def test_a_failure_in_any_rank_fails_it():
    """The rank that failed is the root, and the others are told of."""
    (only,) = subtests_of(record(rank(0, said()), rank(1, said("failed")), rank(2, said())))
    assert (only.outcome.result, only.outcome.root) == ("failed", 1)
    assert only.outcome.headline == "rank 1 failed first (of 3 ranks, gloo on cpu)"
    assert [n.text for n in only.outcome.notes] == ["passed", "passed"]


def test_the_first_failure_by_the_clock_and_a_lost_peer_last():
    """A subtest is decided as a test is."""
    (by_clock,) = subtests_of(record(rank(0, said("failed", at=2.0)), rank(1, said("failed", at=1.0))))
    assert by_clock.outcome.root == 1
    (by_weight,) = subtests_of(record(rank(0, said("failed", at=2.0)), rank(1, said("failed", at=1.0, reaction=True))))
    assert by_weight.outcome.root == 0


@pytest.mark.parametrize(("others", "result"), [("skipped", "skipped"), ("passed", "failed")])
def test_skipped_by_all_or_by_some(others, result):
    """All skipped is skipped; some skipped is a failure, as of a test."""
    (only,) = subtests_of(record(rank(0, said("skipped")), rank(1, said(others))))
    assert only.outcome.result == result


def test_names_and_order():
    """Message, parameters and turn tell subtests apart; the first to end comes first."""
    found = subtests_of(
        record(
            rank(0, said(msg="b", at=3.0), said(msg="a", at=4.0), said(msg="a", at=5.0), said(msg=None, at=6.0)),
            rank(1, said(msg="a", at=2.0), said(msg="a", at=4.0), said(msg="a", at=7.0, kwargs={"i": "1"})),
        )
    )
    names = [(one.record.endings[0].reports[0].data["_subtest.context"]["msg"], one.parameters) for one in found]
    assert names == [("a", {}), ("b", {}), ("a", {}), (None, {}), ("a", {"i": "1"})]
    assert [[e.rank for e in one.record.endings] for one in found] == [[0, 1], [0], [0, 1], [0], [1]]


def test_a_rank_that_did_not_come_to_its_end():
    """It is named where the subtest fails; where it passes, ranks may have subtests of their own."""
    failed, passed = subtests_of(record(rank(0), rank(1, said("failed"), said(msg="own", at=2.0))))
    assert note(failed.outcome, 0).text == "did not come to its end"
    assert passed.outcome.result == "passed"


def test_a_report_without_a_name():
    """What another plugin reports by itself is a part of the test as well."""
    nameless = PhaseReport(phase="call", outcome="failed", at=1.0, data={})
    (only,) = subtests_of(record(rank(0, nameless), rank(1)))
    assert (only.outcome.result, only.parameters) == ("failed", {})
