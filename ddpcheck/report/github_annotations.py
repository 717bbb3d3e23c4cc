"""Findings as annotations, which GitHub shows on the lines of a pull request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ddpcheck.report.finding_text import circumstances, labelled
from ddpcheck.report.repository_paths import Repository
from ddpcheck.report.terminal_report import sentence
from ddpcheck.report.workflow_commands import MOST, command
from ddpcheck.verdict.verdict import Verdict
from ddpcheck.vocabulary.model import Finding, Severity


class _Annotation(NamedTuple):
    severity: Severity
    title: str
    message: str
    file: str = ""
    line: int | str = ""
    place: str = ""


def annotation_commands(verdict: Verdict, repository: Repository, strict: bool = False) -> list[str]:
    """The commands, errors first; where there are more than GitHub keeps, the last of a kind names the others."""
    found = [_of_finding(one, verdict, repository, strict) for one in verdict.findings]
    found += [
        _Annotation("error", "ddpcheck itself failed", f"{text}\nThis is a defect of ddpcheck, not of the program.")
        for text in verdict.internal
    ]
    if verdict.verdict in ("nothing-checked", "interrupted"):
        title = f"ddpcheck: {verdict.verdict.replace('-', ' ')}"
        found.append(_Annotation("warning", title, sentence(verdict, strict)))
    kinds: tuple[Severity, ...] = ("error", "warning")
    return [line for kind in kinds for line in _commands(kind, [one for one in found if one.severity == kind])]


def _of_finding(finding: Finding, verdict: Verdict, repository: Repository, strict: bool) -> _Annotation:
    said = [f"{label}: {text}" for label, text in labelled(finding)]
    if finding.also:
        said.append(f"breaks: {', '.join(finding.also)}")
    path = repository.path_of(finding.where.file) if finding.where is not None else None
    if finding.where is not None and path is None:  # no line of this repository
        said.insert(0, f"at {finding.where}")
    return _Annotation(
        severity="error" if strict else finding.severity,
        title=f"{finding.name}: {finding.subject}{circumstances(finding, verdict.world_size)}",
        message="\n".join(said),
        file=path or "",
        line=finding.where.line if finding.where is not None and path is not None else "",
        place=f" at {finding.where}" if finding.where is not None else "",
    )


def _commands(kind: Severity, found: Sequence[_Annotation]) -> list[str]:
    shown, left = (found, ()) if len(found) <= MOST else (found[: MOST - 1], found[MOST - 1 :])
    lines = [command(kind, one.message, file=one.file, line=one.line, title=one.title) for one in shown]
    if left:
        text = "\n".join(f"{one.title}{one.place}" for one in left)
        lines.append(command(kind, text, title=f"ddpcheck: {len(left)} more {kind}s; the report has all of them"))
    return lines
