"""Rules of a check, made up for a test."""

from __future__ import annotations

import pytest

from ddpcheck.checks import registry
from ddpcheck.checks.check import Rule

CLIPPED = Rule("clipped-alone", "a rank clips its gradients, and others do not")
NAMED = Rule("named-alike", "two parameters have names alike", advisory=True)


def register(monkeypatch: pytest.MonkeyPatch, check: str, *rules: Rule) -> None:
    """Let a check have these rules, and no others."""
    known = {**registry.checks()}
    known[check] = known[check]._replace(rules=rules)
    monkeypatch.setattr(registry, "checks", lambda: known)
