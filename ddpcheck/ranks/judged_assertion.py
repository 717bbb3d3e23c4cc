"""One assertion in one rank: its facts go to the judge, and the verdict that all ranks share is raised or warned of."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from ddpcheck.ranks.current_rank import Violation, current
from ddpcheck.report.finding_text import text_of
from ddpcheck.vocabulary.wording import NOT_CHECKED


class AtRisk(pytest.PytestWarning):
    """An invariant holds by luck, or for the wrong reason."""


def assert_judged(
    check: str,
    title: str,
    facts: Any,
    answers: Mapping[str, Callable[[Any], Any]] | None = None,
    stuck: bool = False,
) -> bool:
    """Have all ranks' facts judged, warn of what is at risk, and raise the Violation that all ranks share.

    Returns whether there was something to judge.

    ``stuck``: this rank cannot go on, and is not to wait for those who cannot come.
    """
    __tracebackhide__ = True
    verdict = current(f"ddpcheck.{title}")._judge(check, title, msgspec.to_builtins(facts), answers, stuck)
    errors = tuple(f for f in verdict.findings if f.severity == "error")
    if errors:  # before any warning, which may be raised as an error itself
        raise Violation(text_of(errors), errors, verdict.number, verdict.at)
    for finding in verdict.findings:
        warnings.warn(AtRisk(text_of([finding])), stacklevel=3)
    return not any(NOT_CHECKED in finding.links for finding in verdict.findings)
