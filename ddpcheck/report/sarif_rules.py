"""The checks as rules of SARIF: what each holds, and the text of ``ddpcheck explain`` as its help."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ddpcheck.checks.registry import every_check
from ddpcheck.report.explanations import text_of_check

TAGS = ("correctness", "distributed", "pytorch")

_LONGEST = 1024
"""Characters of a description that GitHub takes."""


def rules(checks: Iterable[str]) -> list[dict[str, Any]]:
    """One rule for each check."""
    return [_rule(check) for check in checks]


def _rule(check: str) -> dict[str, Any]:
    its = every_check().get(check)
    holds = its.holds if its is not None else check
    sentence = f"{holds[:1].upper()}{holds[1:]}."
    severity = its.severity if its is not None else "error"
    markdown = text_of_check(check) if its is not None else sentence
    return {
        "id": check,
        "name": "".join(word.capitalize() for word in re.split(r"\W+", check)),
        "shortDescription": {"text": sentence[:_LONGEST]},
        "fullDescription": {"text": sentence[:_LONGEST]},
        "help": {"text": _without_marks(markdown), "markdown": markdown},
        "defaultConfiguration": {"level": severity},
        "properties": {"tags": list(TAGS), "precision": "high", "problem.severity": severity},
    }


def _without_marks(markdown: str) -> str:
    """Markdown for those who show it as it is: without the signs of headings, quotes and code."""
    return re.sub(r"(?m)^(#+ |> |```\w*$)", "", markdown).replace("`", "").strip()
