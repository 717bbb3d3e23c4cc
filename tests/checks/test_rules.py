"""Rules: their names, and what becomes of the findings of an advisory one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ddpcheck.checks import registry
from ddpcheck.checks.check import Check, Rule
from ddpcheck.judging.world import Judged
from ddpcheck.verdict import judges
from ddpcheck.vocabulary.model import Finding
from tests.registered_rules import CLIPPED, NAMED, register


def finding(**given):
    return Finding(ranks=(0,), subject="w", expected="this", found="that", advice="Fix it.", **given)


@pytest.fixture(autouse=True)
def rules(monkeypatch):
    register(monkeypatch, "gradient-sync", CLIPPED, NAMED)


def test_rules_are_known_by_their_check():
    """Of a name it is known whether it is a check's or a rule's."""
    assert registry.every_rule()["gradient-sync/clipped-alone"] is CLIPPED
    assert registry.check_of("gradient-sync/clipped-alone") == registry.check_of("gradient-sync") == "gradient-sync"
    assert registry.check_of("gradient-sync/other") is None
    assert registry.check_of("clipped-alone") is None


def test_advisories_stand_apart():
    """The rule decides it, whatever severity the judge gives; a finding without a rule stays as it is."""
    said = Judged(checked=2, findings=(finding(rule="clipped-alone"), finding(rule="named-alike"), finding()))
    judged = registry.named(said, "gradient-sync")
    assert [(one.rule, one.name, one.severity) for one in judged.findings] == [
        ("gradient-sync/clipped-alone", "gradient-sync/clipped-alone", "error"),
        ("", "gradient-sync", "error"),
    ]
    assert [(one.rule, one.severity) for one in judged.advisories] == [("gradient-sync/named-alike", "advisory")]
    assert registry.named(judged, "gradient-sync") == judged


def test_an_assertion_drops_advisories(monkeypatch):
    """Its verdict is that of the other findings."""
    findings = (finding(rule="named-alike"), finding(rule="clipped-alone"))
    monkeypatch.setattr(registry, "part", lambda *_: SimpleNamespace(judge=lambda facts, rounds: findings))
    (left,) = registry.judge_of("gradient-sync", "assertion")([], [])
    assert left.rule == "gradient-sync/clipped-alone"


def test_rules_of_another_package(monkeypatch):
    """They stand below the id that the check has here, also where its judge calls it otherwise."""
    its = Check(holds="rates agree", rules=(Rule("rate", "rates differ"), Rule("name", "names differ", advisory=True)))
    theirs = registry.Others({"mylib/rates-agree": "mylib.rates_agree"}, {"mylib/rates-agree": its}, ())
    monkeypatch.setattr(registry, "others", lambda: theirs)
    assert registry.check_of("mylib/rates-agree/rate") == "mylib/rates-agree"
    given = (finding(rule="rate", check="rates-agree"), finding(rule="rates-agree/name"), finding())
    module = SimpleNamespace(judge=lambda world: Judged(checked=1, findings=given))
    monkeypatch.setattr(registry, "part", lambda *_: module)
    judged = judges._of_another_package("mylib/rates-agree", None)
    assert [(one.check, one.rule) for one in judged.findings] == [
        ("mylib/rates-agree", "mylib/rates-agree/rate"),
        ("mylib/rates-agree", ""),
    ]
    assert [one.rule for one in judged.advisories] == ["mylib/rates-agree/name"]
