"""Findings as text: what was expected and found, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ddpcheck.report import finding_module
from ddpcheck.verdict.verdict import Accepted
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import ranks_text


def text_of(findings: Sequence[Finding]) -> str:
    """All findings, one under the other."""
    return "\n".join(_one(finding) for finding in findings)


def accepted_line(accepted: Accepted) -> str:
    """A finding that somebody has accepted, with the reason, in one line."""
    finding = accepted.finding
    place = f", {finding.where}" if finding.where is not None else ""
    reason = accepted.reason or "no reason given yet"
    return f"{finding.severity} {finding.name}, {finding.subject}{place}: {reason} ({accepted.source})"


def _one(finding: Finding) -> str:
    verb = "violated" if finding.severity == "error" else "at risk"
    lines = [f"{finding.check} {verb}: {finding.subject} ({ranks_text(finding.ranks)})"]
    if finding.where is not None:
        lines.append(f"  where     {finding.where}")
    lines += [f"  expected  {finding.expected}", f"  found     {finding.found}"]
    if part := finding_module.told(finding):
        lines.append(f"  module    {part}")
    if finding.cause:
        lines.append(f"  cause     likely: {finding.cause}")
    lines.append(f"  fix       {finding.advice}")
    return "\n".join(lines)


def in_a_line(finding: Finding) -> str:
    """``train.py:41  error  gradient-sync/different-gradients  net.weight``."""
    place = f"{finding.where.file}:{finding.where.line}" if finding.where is not None else ""
    return "  ".join(filter(None, (place, finding.severity, finding.name, finding.subject)))


def labelled(finding: Finding) -> Iterator[tuple[str, str]]:
    """What a reader has to know of a finding, part by part, each with its label."""
    yield "expected", finding.expected
    yield "found", finding.found
    if finding.cause:
        yield "cause", f"likely: {finding.cause}"
    yield "fix", finding.advice


def circumstances(finding: Finding, world_size: int) -> str:
    """On which ranks, at which step and how often, in brackets; empty where there is nothing to say."""
    parts = []
    if finding.ranks:
        whole = world_size > 1 and set(finding.ranks) == set(range(world_size))
        ranks = "all ranks" if whole else ranks_text(finding.ranks)
        parts += [ranks] if ranks != finding.subject else []
    if finding.step is not None:
        parts.append(f"{'first at ' if finding.count > 1 else ''}step {finding.step:,}")
    if finding.count > 1:
        parts.append(f"{finding.count:,} times")
    return f" ({', '.join(parts)})" if parts else ""


def further_lines(finding: Finding) -> dict[CallSite, list[int]]:
    """The other lines that show it, each with the ranks that were there."""
    ranks: dict[CallSite, list[int]] = {}
    for rank, where in finding.proof:
        if where != finding.where and rank not in ranks.setdefault(where, []):
            ranks[where].append(rank)
    return ranks
