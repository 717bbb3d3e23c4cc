"""Findings that are accepted by their rule: comments, entries and baselines."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from ddpcheck.acceptance import baseline as baselines
from ddpcheck.acceptance.accepted_verdict import new_baseline, with_accepted
from ddpcheck.acceptance.baseline import Baseline
from ddpcheck.acceptance.rules import Rules
from tests.acceptance.written_findings import CODE, entry, finding, ignore, sites, verdict
from tests.registered_rules import CLIPPED, NAMED, register

RULE = "gradient-sync/clipped-alone"
FOUND = finding(rule=RULE)
OTHER = finding(rule="gradient-sync/other", subject="net.bias")


@pytest.fixture(autouse=True)
def rules(monkeypatch):
    register(monkeypatch, "gradient-sync", CLIPPED, NAMED)


def kept(before, rules=Rules()):  # noqa: B008
    return [one.rule for one in with_accepted(before, rules).findings]


def commented(tmp_path, name, *findings, **more):
    lines = {**CODE, 5: f"{CODE[5]}  # ddpcheck: ignore[{name}] it is meant"}
    (tmp_path / "train.py").write_text("\n".join(lines.get(number, "pass") for number in range(1, 15)))
    return verdict(tmp_path, *findings, lines=lines, **more), lines


def test_a_comment_may_name_a_rule(tmp_path):
    """Findings of other rules at the line count."""
    assert kept(commented(tmp_path, RULE, FOUND, OTHER)[0]) == [OTHER.rule]
    assert kept(commented(tmp_path, "gradient-sync", FOUND, OTHER)[0]) == []


def test_a_comment_of_an_unknown_rule_accepts_nothing(tmp_path):
    """A note says which rule it may have meant."""
    before, lines = commented(tmp_path, "gradient-sync/cliped-alone", FOUND)
    after = with_accepted(before, Rules(), sites(lines=lines))
    assert len(after.findings) == 1
    assert f"there is no rule 'gradient-sync/cliped-alone': did you mean {RULE}?" in after.notes[-1]


def test_a_comment_whose_rule_found_nothing_is_to_go(tmp_path):
    """Unless the rule was left out: then nobody knows."""
    before, lines = commented(tmp_path, RULE, OTHER)
    assert f"`ignore[{RULE}]` matches nothing" in with_accepted(before, Rules(), sites(lines=lines)).notes[-1]
    before, lines = commented(tmp_path, RULE, FOUND, OTHER, left_out={RULE})
    assert with_accepted(before, Rules(), sites(lines=lines)).notes == ()


def test_an_entry_may_name_a_rule(tmp_path):
    accepting = Rules(source="pyproject.toml", base=str(tmp_path), ignores=(ignore(RULE),))
    assert kept(verdict(tmp_path, FOUND, OTHER), accepting) == [OTHER.rule]
    assert accepting.concern(FOUND)
    assert not accepting.concern(OTHER)


@pytest.mark.parametrize("way", ["comment", "entry"])
def test_an_accepted_advisory_is_not_shown(tmp_path, way):
    """Neither among the advisories nor among what is accepted; and what accepts it is not to be removed."""
    advisory = finding(rule="gradient-sync/named-alike")
    before, lines = commented(tmp_path, "gradient-sync/named-alike" if way == "comment" else "parameter-sync", advisory)
    assert len(before.advisories) == 1
    accepting = Rules(base=str(tmp_path), ignores=(ignore("gradient-sync/named-alike"),) if way == "entry" else ())
    after = with_accepted(before, accepting, sites(lines=lines))
    assert (after.advisories, after.accepted, after.checks["gradient-sync"].status) == ((), (), "held")
    assert not any("named-alike" in note for note in after.notes)


def test_a_baseline_knows_rules(tmp_path):
    """What is written names them, and accepts these alone; advisories are not in it."""
    path = tmp_path / "known.json"
    found = verdict(tmp_path, FOUND, finding(rule="gradient-sync/named-alike", subject="net.bias"))
    baselines.write(new_baseline(found, Rules(baseline=Baseline(path=str(path)))))
    document = json.loads(path.read_text())
    assert (document["schema"], [one["rule"] for one in document["findings"]]) == (2, [RULE])
    known = Rules(baseline=baselines.read(path))
    assert kept(verdict(tmp_path, FOUND), known) == []
    other = replace(FOUND, rule=OTHER.rule)
    assert kept(verdict(tmp_path, other), known) == [OTHER.rule]


def test_a_baseline_of_schema_1_means_the_whole_check(tmp_path):
    """Until it is written again: its reasons stay, and there are no entries of both kinds."""
    path = tmp_path / "known.json"
    old = {"check": "gradient-sync", "severity": "error", "file": "train.py", "function": "train",
           "code": "optimizer.step()", "subject": "net.weight", "count": 1, "reason": "known"}  # fmt: skip
    path.write_text(json.dumps({"schema": 1, "findings": [old]}))
    known = Rules(baseline=baselines.read(path))
    other = replace(FOUND, rule=OTHER.rule)
    assert kept(verdict(tmp_path, FOUND, other), known) == []
    written = new_baseline(verdict(tmp_path, FOUND), known, sites()).entries
    assert [(one.rule, one.reason) for one in written] == [(RULE, "known")]
    assert with_accepted(verdict(tmp_path, FOUND), known, sites()).notes == ()


def test_an_entry_that_matches_nothing_is_named_by_its_rule(tmp_path):
    known = Rules(baseline=Baseline(path=str(tmp_path / "known.json"), entries=(entry(rule=RULE),)))
    (note,) = with_accepted(verdict(tmp_path), known, sites()).notes
    assert f"({RULE} in train.py)" in note
