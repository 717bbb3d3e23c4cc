"""A verdict as SARIF 2.1.0, the format in which code scanning takes what a tool has found.

What GitHub asks for beyond the standard's schema: every result has a location,
with a line; rules have descriptions; paths are relative to the repository's
root; ``primaryLocationLineHash`` makes one alert of a finding over many runs.
"""

from __future__ import annotations

import json
import os
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec

from ddpcheck.report import finding_module, report_files
from ddpcheck.report.console import plain
from ddpcheck.report.finding_fingerprints import fingerprints
from ddpcheck.report.finding_text import circumstances, further_lines
from ddpcheck.report.line_hashes import line_hashes
from ddpcheck.report.repository_paths import Place, Repository, uri_path
from ddpcheck.report.sarif_rules import rules
from ddpcheck.report.source_lines import Sources
from ddpcheck.verdict.verdict import Accepted, Verdict
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import ranks_text, signal_name

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
ROOT = "%SRCROOT%"

_MOST_LINES = 100
"""Related locations that GitHub shows."""

_LARGEST = 1024 * 1024
"""Characters of a file whose lines are hashed."""

# A link of SARIF's in a plain text, such as [here](3), which no text of a user's means.
_LINK = re.compile(r"\[(?=[^\]]*\]\()")


def document(verdict: Verdict, repository: Repository, ended: datetime, strict: bool = False) -> dict[str, Any]:
    """The verdict as plain data; ``ended`` is when the run did, with its time zone."""
    report = _Report(verdict, repository, strict)
    results = report.results()
    run = {
        "tool": {
            "driver": {
                "name": "ddpcheck",
                "version": verdict.versions.get("ddpcheck") or "unknown",
                "rules": rules(report.rules),
            }
        },
        "originalUriBaseIds": {ROOT: {"uri": _file_uri(repository.root) + "/"}},
        "invocations": [report.invocation(ended)],
        "artifacts": [
            {"location": location, "roles": ["resultFile"], "sourceLanguage": "python"}
            for location in report.artifacts.values()
        ],
        "results": results,
        "properties": {
            "verdict": verdict.verdict,
            "worldSize": verdict.world_size,
            "nodes": verdict.nnodes,
            "steps": verdict.steps,
            "versions": verdict.versions,
            "checks": msgspec.to_builtins(verdict.checks),
        },
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [_plain(run)]}


def write(verdict: Verdict, path: Path, repository: Repository, strict: bool = False) -> None:
    """Write the SARIF, whole or not at all."""
    data = document(verdict, repository, datetime.now(timezone.utc), strict)
    report_files.write(path, json.dumps(data, indent=1) + "\n")


class _Report:
    """One run of SARIF, whose parts refer to each other by number."""

    def __init__(self, verdict: Verdict, repository: Repository, strict: bool) -> None:
        self.verdict, self.repository, self.strict = verdict, repository, strict
        named = [*(f.name for f in verdict.findings), *(a.finding.name for a in verdict.accepted)]
        self.rules = list(dict.fromkeys([*verdict.checks, *named]))
        self.artifacts: dict[str, dict[str, Any]] = {}
        self._sources = Sources(repository.folder, verdict.lines)
        self._hashes: dict[str, dict[int, str]] = {}
        self._told: set[tuple[str, str]] = set()

    def results(self) -> list[dict[str, Any]]:
        """One for each finding, those that are accepted among them: code scanning shows these as dismissed."""
        findings = [*self.verdict.findings, *(one.finding for one in self.verdict.accepted)]
        accepted = [*(None for _ in self.verdict.findings), *self.verdict.accepted]
        known = fingerprints(findings, self.repository, self._sources)
        return [
            {**self._result(finding, one), "suppressions": _suppressions(by)}
            for finding, one, by in zip(findings, known, accepted, strict=True)
        ]

    def _result(self, finding: Finding, fingerprint: str) -> dict[str, Any]:
        place = self.repository.place(finding)
        properties = {
            "severity": finding.severity,
            "ranks": list(finding.ranks),
            "step": finding.step,
            "subject": finding.subject,
            "expected": finding.expected,
            "found": finding.found,
            "module": finding_module.told(finding) or None,
            "cause": finding.cause or None,
            "advice": finding.advice,
            "also": list(finding.also),
        }
        result = {
            "ruleId": finding.name,
            "ruleIndex": self.rules.index(finding.name),
            "kind": "fail",
            "level": "error" if self.strict else finding.severity,
            "message": _message(self._text(finding, place)),
            "locations": [self._location(place, finding.where)],
            "stacks": self._stacks(finding),
            "relatedLocations": self._related(finding),
            "partialFingerprints": {"ddpcheckFinding/v1": fingerprint, **self._line_hash(finding, place)},
            "occurrenceCount": max(finding.count, 1),
            "properties": {name: value for name, value in properties.items() if value is not None},
        }
        return {name: value for name, value in result.items() if value != []}

    def _text(self, finding: Finding, place: Place) -> str:
        """All of it; the first sentence is what lists show."""
        parts = [f"{finding.subject}{circumstances(finding, self.verdict.world_size)}: found {finding.found}."]
        parts.append(f"Expected {finding.expected}.")
        parts += [f"Likely cause: {finding.cause}."] if finding.cause else []
        parts.append(f"Fix: {finding.advice}")
        parts += [f"As a consequence, it breaks {', '.join(finding.also)}."] if finding.also else []
        parts += ["It has no line of its own; this is the script that was run."] if place.stands_in else []
        return " ".join(parts)

    def _stacks(self, finding: Finding) -> list[dict[str, Any]]:
        """The calls that have led to the line, the innermost first, where there is more than one."""
        if len(finding.chain) < 2:
            return []
        frames = [{"location": self._location(self.repository.place_of(c), c)} for c in reversed(finding.chain)]
        return [{"message": {"text": "the calls that led here"}, "frames": frames}]

    def _related(self, finding: Finding) -> list[dict[str, Any]]:
        """The lines that show it, and where the ranks stood if it is about their standstill."""
        lines = [(where, ranks_text(ranks)) for where, ranks in further_lines(finding).items()]
        made = finding_module.line(finding)
        lines += [(made, finding_module.told(finding))] if made is not None and made != finding.where else []
        hang = self.verdict.hang
        if hang is not None and "no-hang" in (finding.check, *finding.also):
            for stand in hang.stands:
                waited = "stood here, and its device waited in" if stand.on_device else "waited in"
                pending = f" {waited} {stand.pending.name}" if stand.pending is not None else " stood here"
                lines += [(stand.where, f"rank {stand.rank}{pending}")] if stand.where is not None else []
        return [
            {"id": number, **self._location(self.repository.place_of(where), where), "message": _message(text)}
            for number, (where, text) in enumerate(lines[:_MOST_LINES], 1)
        ]

    # --- places

    def _location(self, place: Place, where: CallSite | None) -> dict[str, Any]:
        region: dict[str, Any] = {"startLine": place.line}
        code = self._sources.line(where) if where is not None else ""
        if code:
            region["snippet"] = {"text": code}
        location: dict[str, Any] = {"physicalLocation": {"artifactLocation": self._artifact(place), "region": region}}
        if where is not None and where.function:
            location["logicalLocations"] = [{"name": where.function, "kind": "function"}]
        return location

    def _artifact(self, place: Place) -> dict[str, Any]:
        if place.path not in self.artifacts:
            uri = {"uri": uri_path(place.path), "uriBaseId": ROOT} if place.inside else {"uri": _file_uri(place.path)}
            self.artifacts[place.path] = {**uri, "index": len(self.artifacts)}
        return dict(self.artifacts[place.path])

    def _line_hash(self, finding: Finding, place: Place) -> dict[str, str]:
        """GitHub's own; of several findings of a check on a line, all but the first get one that no line has."""
        where = finding.where
        if where is None or not place.inside:
            return {}
        if place.path not in self._hashes:
            text = self._sources.text(where)
            self._hashes[place.path] = line_hashes(text) if 0 < len(text) <= _LARGEST else {}
        found = self._hashes[place.path].get(place.line)
        if found is None:
            return {}
        number = 2
        known = found
        while (finding.check, known) in self._told:
            known, number = f"{found}:{number}", number + 1
        self._told.add((finding.check, known))
        return {"primaryLocationLineHash": known}

    # --- the invocation

    def invocation(self, ended: datetime) -> dict[str, Any]:
        """How the command itself went."""
        verdict = self.verdict
        internal = [_notification("error", f"ddpcheck itself failed: {text}") for text in verdict.internal]
        notes = [_notification("note", text) for text in verdict.notes]
        unchecked = [
            _notification("note", result.skipped_because or "not checked")
            | {"associatedRule": {"id": check, "index": self.rules.index(check)}}
            for check, result in verdict.checks.items()
            if result.status == "not-checked"
        ]
        began = ended - timedelta(seconds=verdict.seconds)
        invocation: dict[str, Any] = {
            "executionSuccessful": not internal and verdict.interrupted_by is None,
            "exitCode": int(verdict.exit_code(self.strict)),
            "commandLine": f"ddpcheck run {verdict.command}".rstrip(),
            "startTimeUtc": _time(began),
            "endTimeUtc": _time(ended),
            "workingDirectory": {"uri": _file_uri(self.repository.folder) + "/"},
            "toolExecutionNotifications": [*internal, *notes],
            "toolConfigurationNotifications": unchecked,
        }
        if verdict.interrupted_by is not None:
            invocation["exitCodeDescription"] = f"interrupted by {signal_name(verdict.interrupted_by)}"
        return invocation


def _notification(level: str, text: str) -> dict[str, Any]:
    return {"level": level, "message": _message(text)}


def _message(text: str) -> dict[str, str]:
    return {"text": _LINK.sub(r"\\[", text) or "-"}


def _plain(value: Any) -> Any:
    """Data whose texts are such that every reader of JSON takes them."""
    if isinstance(value, dict):
        return {_plain(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return plain(value) if isinstance(value, str) else value


def _file_uri(path: str) -> str:
    return "file://" + uri_path(os.path.abspath(path).rstrip("/"))


def _time(moment: datetime) -> str:
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _suppressions(accepted: Accepted | None) -> list[dict[str, Any]]:
    if accepted is None:
        return []
    kind = "inSource" if accepted.by == "comment" else "external"
    reason = accepted.reason or f"accepted by {accepted.source}"
    return [{"kind": kind, "status": "accepted", "justification": reason}]
