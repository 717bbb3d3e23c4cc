"""A verdict as JSON, schema 3: what other programs rely on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ddpcheck.report import finding_module, report_files
from ddpcheck.verdict.verdict import CheckResult, Verdict
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import signal_name

SCHEMA = 3


def document(verdict: Verdict) -> dict[str, Any]:
    """The verdict as plain data; advisories, where they are to be shown."""
    shown = verdict.advisories
    advisories = {} if shown is None else {"advisories": [_finding(one, verdict.lines) for one in shown]}
    return {
        "schema": SCHEMA,
        "verdict": verdict.verdict,
        "world_size": verdict.world_size,
        "nnodes": verdict.nnodes,
        "command": verdict.command,
        "seconds": round(verdict.seconds, 3),
        "steps": verdict.steps,
        "checks": {check: _check(result) for check, result in verdict.checks.items()},
        "findings": [_finding(one, verdict.lines) for one in verdict.findings],
        "accepted": [
            {**_finding(one.finding, verdict.lines), "by": one.by, "source": one.source, "reason": one.reason or None}
            for one in verdict.accepted
        ],
        **advisories,
        "ranks": [
            {"rank": r.rank, "exit_code": r.exit_code, "signal": r.signal, "host": r.host or None}
            for r in verdict.ranks
        ],
        "hang": _plain(verdict.hang),
        "interrupted_by": signal_name(verdict.interrupted_by) if verdict.interrupted_by is not None else None,
        "parallelism": verdict.parallelism or None,
        "notes": list(verdict.notes),
        "internal": list(verdict.internal),
        "versions": dict(verdict.versions),
    }


def write(verdict: Verdict, path: Path) -> None:
    """Write the JSON, whole or not at all."""
    report_files.write(path, json.dumps(document(verdict), indent=1) + "\n")


def _check(result: CheckResult) -> dict[str, Any]:
    """What other programs rely on is always there; what is accepted, where something is."""
    return {
        "status": result.status,
        "checked": result.checked,
        "coverage": {"compared": result.checked, "of": result.of, "unit": result.unit},
        "skipped_because": result.skipped_because,
        **({"accepted": result.accepted} if result.accepted else {}),
    }


def _finding(finding: Finding, lines: Mapping[str, str]) -> dict[str, Any]:
    """What other programs rely on is always there; the module, where the subject is a parameter of a known one."""
    fields = {
        "check": finding.check,
        "rule": finding.rule or None,
        "severity": finding.severity,
        "ranks": list(finding.ranks),
        "step": finding.step,
        "subject": finding.subject,
        "message": finding.message,
        "where": _place(finding.where),
        "chain": [
            {**(_place(one) or {}), "text": lines.get(f"{one.file}:{one.line}", ""), "through": list(one.through)}
            for one in finding.chain
        ],
        "count": finding.count,
        "advice": finding.advice,
        "expected": finding.expected,
        "found": finding.found,
        "cause": finding.cause or None,
        "also": list(finding.also),
        "proof": [{"rank": rank, **(_place(where) or {})} for rank, where in finding.proof],
    }
    return fields if finding.module is None else {**fields, "module": finding_module.data(finding.module, lines)}


def _plain(value: Any) -> Any:
    """Structs as plain data; a line without those that have led to it."""
    if isinstance(value, CallSite):
        return _place(value)
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else value


def _place(where: CallSite | None) -> dict[str, Any] | None:
    return None if where is None else {"file": where.file, "line": where.line, "function": where.function}
