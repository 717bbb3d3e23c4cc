"""A verdict as GitLab's Code Quality report, which merge requests show on the lines that they change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ddpcheck.checks.registry import those
from ddpcheck.report import report_files
from ddpcheck.report.console import plain
from ddpcheck.report.finding_fingerprints import fingerprints
from ddpcheck.report.finding_text import circumstances
from ddpcheck.report.repository_paths import Repository
from ddpcheck.report.source_lines import Sources
from ddpcheck.verdict.verdict import Verdict
from ddpcheck.vocabulary.model import Finding


def document(verdict: Verdict, repository: Repository, strict: bool = False) -> list[dict[str, Any]]:
    """One entry for each finding; what has no line in the repository is put on the script's first one."""
    known = fingerprints(verdict.findings, repository, Sources(repository.folder, verdict.lines))
    return [_entry(f, one, verdict, repository, strict) for f, one in zip(verdict.findings, known, strict=True)]


def write(verdict: Verdict, path: Path, repository: Repository, strict: bool = False) -> None:
    """Write the report, whole or not at all."""
    report_files.write(path, json.dumps(document(verdict, repository, strict), indent=1) + "\n")


def _entry(
    finding: Finding, fingerprint: str, verdict: Verdict, repository: Repository, strict: bool
) -> dict[str, Any]:
    place, at = repository.place(finding), ""
    if finding.where is not None and not place.inside:
        place, at = repository.place_of_script(), f" at {finding.where}"
    about = f"{finding.subject}{circumstances(finding, verdict.world_size)}{at}"
    return {
        "description": plain(f"{finding.name}: {about}: {finding.message} Fix: {finding.advice}"),
        "check_name": finding.name,
        "fingerprint": fingerprint,
        "severity": _severity(finding, strict),
        "location": {"path": plain(place.path), "lines": {"begin": place.line}},
    }


def _severity(finding: Finding, strict: bool) -> str:
    if finding.severity == "warning":
        return "major" if strict else "minor"
    return "blocker" if finding.check in those("stops") else "critical"
