"""Findings as text: what was expected and found, where, and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from ddpcheck.verdict.verdict import Accepted
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import ranks_text


def text_of(findings: Sequence[Finding]) -> str:
    """All findings, one under the other."""
    return "\n".join(_one(finding) for finding in findings)


def accepted_line(accepted: Accepted) -> str:
    """A finding that somebody has accepted, with the reason, in one line."""
    finding = accepted.finding
    place = f", {finding.where}" if finding.where is not None else ""
    reason = accepted.reason or "no reason given yet"
    return f"{finding.severity} {finding.check}, {finding.subject}{place}: {reason} ({accepted.source})"


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
