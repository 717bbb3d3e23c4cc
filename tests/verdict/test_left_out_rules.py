"""Rules that are left out, and advisories, in the verdict of a run."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ddpcheck.judging.world import Judged
from ddpcheck.verdict.settled import Settled
from ddpcheck.verdict.verdict import conclude
from tests.registered_rules import NAMED, register
from tests.verdict.test_verdict import HERE, finding, judged

CLIPPED = finding("gradient-sync", rule="clipped-alone")
OTHER = finding("gradient-sync", rule="other", subject="b")
LEFT_OUT = {"gradient-sync/clipped-alone"}


def test_a_check_that_lost_its_only_finding_is_not_checked():
    """In no world: it did not hold."""
    verdict = conclude([judged(CLIPPED, parameter_sync=2), judged(gradient_sync=4)], left_out=LEFT_OUT)
    result = verdict.checks["gradient-sync"]
    assert (result.status, result.checked) == ("not-checked", 0)
    assert result.skipped_because == "`gradient-sync/clipped-alone` was left out by `checks` or `skip`"
    assert (verdict.verdict, verdict.findings, verdict.left_out) == ("held", (), tuple(LEFT_OUT))


def test_other_rules_of_the_check_count():
    verdict = conclude([judged(CLIPPED, OTHER)], left_out=LEFT_OUT)
    assert [one.name for one in verdict.findings] == ["gradient-sync/other"]
    assert verdict.checks["gradient-sync"].status == "violated"


def test_a_rule_without_findings_changes_nothing():
    assert conclude([judged(gradient_sync=3)], left_out=LEFT_OUT) == conclude([judged(gradient_sync=3)])


def test_findings_without_a_rule_are_left_out_by_the_check_and_a_slash():
    """So says ``--checks`` where it names a rule."""
    assert conclude([judged(finding("gradient-sync"))], left_out={"gradient-sync/"}).findings == ()


def test_what_stopped_the_program_is_reported():
    """Whichever rules are left out."""
    stop = finding("rank-failure", rule="raised")
    assert conclude([judged(stop)], left_out={"rank-failure/raised"}).verdict == "failed"


def test_findings_of_two_rules_are_two():
    """At one line, and with the same cause."""
    pair = [replace(one, where=HERE) for one in (CLIPPED, OTHER)]
    assert len(conclude([judged(*pair)]).findings) == 2


@pytest.fixture
def advising(monkeypatch):
    register(monkeypatch, "gradient-sync", NAMED)
    return finding("gradient-sync", rule="named-alike", where=HERE)


def test_an_advisory_counts_for_nothing(advising):
    """Not for the word, the exit code, --strict or its check's status; the same twice is one."""
    verdict = conclude([judged(advising, gradient_sync=3), judged(advising)])
    assert (verdict.verdict, verdict.findings, verdict.exit_code(strict=True)) == ("held", (), 0)
    assert verdict.checks["gradient-sync"].status == "held"
    (told,) = verdict.advisories
    assert (told.name, told.severity, told.count) == ("gradient-sync/named-alike", "advisory", 2)


@pytest.mark.parametrize("choice", [{"chosen": {"batch-count"}}, {"left_out": {"gradient-sync/named-alike"}}])
def test_an_advisory_can_be_left_out(advising, choice):
    """With its check, or by its rule: then its check is checked all the same."""
    verdict = conclude([judged(advising, gradient_sync=3)], **choice)
    assert verdict.advisories == ()
    assert verdict.checks["gradient-sync"].status == ("not-checked" if "chosen" in choice else "held")


def test_a_long_run_keeps_its_advisories(advising):
    """What was judged of evidence that was let go is told of at the end."""
    told = replace(advising, check="gradient-sync", severity="advisory")
    before = {"gradient-sync": Judged(check="gradient-sync", checked=4, advisories=(told,))}
    settled = Settled()
    settled.take("world", before, {})
    after = {"gradient-sync": Judged(check="gradient-sync", checked=1)}
    said = settled.with_past("world", after)["gradient-sync"]
    assert (said.checked, said.findings, said.advisories) == (5, (), (told,))
