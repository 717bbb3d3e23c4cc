"""Checks and their rules as rules of SARIF, with the text of ``ddpcheck explain`` as their help."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ddpcheck.checks.registry import check_of, every_check, every_rule
from ddpcheck.report.explanations import text_of_check

TAGS = ("correctness", "distributed", "pytorch")

_LONGEST = 1024
"""Characters of a description that GitHub takes."""


def rules(names: Iterable[str]) -> list[dict[str, Any]]:
    """One rule for each check, or rule of a check."""
    return [_rule(name) for name in names]


def _rule(name: str) -> dict[str, Any]:
    check = check_of(name) or name
    its, rule = every_check().get(check), every_rule().get(name)
    says = rule.says if rule is not None else its.holds if its is not None else name
    sentence = f"{says[:1].upper()}{says[1:]}."
    severity = its.severity if its is not None else "error"
    markdown = text_of_check(check) if its is not None else sentence
    return {
        "id": name,
        "name": "".join(word.capitalize() for word in re.split(r"\W+", name)),
        "shortDescription": {"text": sentence[:_LONGEST]},
        "fullDescription": {"text": sentence[:_LONGEST]},
        "help": {"text": _without_marks(markdown), "markdown": markdown},
        "defaultConfiguration": {"level": severity},
        "properties": {"tags": list(TAGS), "precision": "high", "problem.severity": severity},
    }


def _without_marks(markdown: str) -> str:
    """Markdown for those who show it as it is: without the signs of headings, quotes and code."""
    return re.sub(r"(?m)^(#+ |> |```\w*$)", "", markdown).replace("`", "").strip()
