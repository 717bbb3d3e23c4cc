"""Findings as text: what was expected and found, where, and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import ranks_text


def text_of(findings: Sequence[Finding]) -> str:
    """All findings, one under the other."""
    return "\n".join(_one(finding) for finding in findings)


def _one(finding: Finding) -> str:
    verb = "violated" if finding.severity == "error" else "at risk"
    lines = [f"{finding.check} {verb}: {finding.subject} ({ranks_text(finding.ranks)})"]
    if finding.where is not None:
        lines.append(f"  where     {finding.where}")
    lines += [f"  expected  {finding.expected}", f"  found     {finding.found}"]
    if finding.cause:
        lines.append(f"  cause     likely: {finding.cause}")
    lines.append(f"  fix       {finding.advice}")
    return "\n".join(lines)
