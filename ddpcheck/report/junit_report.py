"""A verdict as JUnit XML, which continuous integration shows as a list of tests: one test for each check."""

from __future__ import annotations

import platform
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from ddpcheck.checks.registry import those
from ddpcheck.report import report_files
from ddpcheck.report.finding_text import accepted_line, text_of
from ddpcheck.verdict.verdict import CheckResult, Verdict
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import ranks_text

_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class _Case(NamedTuple):
    """One test of the list: ``kind`` is the element that tells how it ended, empty where it passed."""

    name: str
    kind: str = ""
    message: str = ""
    text: str = ""
    output: str = ""


def junit(verdict: Verdict, strict: bool = False, began: datetime | None = None) -> str:
    """The XML; what does not fail the command does not fail here: a warning does so with ``strict`` alone.

    ``began`` is when the run did, with its time zone.
    """
    cases = [case for check, result in verdict.checks.items() for case in _cases(check, result, verdict, strict)]
    cases += [_Case("ddpcheck", "error", _line(text), text) for text in verdict.internal]
    tally = {
        "tests": str(len(cases)),
        "failures": str(sum(case.kind == "failure" for case in cases)),
        "errors": str(sum(case.kind == "error" for case in cases)),
        "time": f"{verdict.seconds:.3f}",
    }
    root = ElementTree.Element("testsuites", {"name": "ddpcheck run", **tally})
    more = {"skipped": str(sum(case.kind == "skipped" for case in cases)), "hostname": _line(_host(verdict))}
    if began is not None:
        more["timestamp"] = began.isoformat(timespec="seconds")
    suite = ElementTree.SubElement(
        root, "testsuite", {"name": _line(verdict.command) or "ddpcheck run", **tally, **more}
    )
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in _properties(verdict).items():
        ElementTree.SubElement(properties, "property", {"name": name, "value": _line(value)})
    for case in cases:
        _add(suite, case)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def write(verdict: Verdict, path: Path, strict: bool = False) -> None:
    """Write the XML, whole or not at all."""
    began = datetime.now(timezone.utc) - timedelta(seconds=verdict.seconds)
    report_files.write(path, junit(verdict, strict, began))


def _host(verdict: Verdict) -> str:
    """Where rank 0 ran."""
    return next((rank.host for rank in verdict.ranks if rank.host), "") or platform.node()


def _cases(check: str, result: CheckResult, verdict: Verdict, strict: bool) -> list[_Case]:
    """One test; where a check has several findings one for each, since many readers look at a single failure.

    A check whose findings are all accepted passes, with --strict as well.
    """
    concerned = [one for one in verdict.accepted if check in (one.finding.check, *one.finding.also)]
    accepted = "\n".join(f"accepted: {accepted_line(one)}" for one in concerned)
    findings = [f for f in verdict.findings if f.check == check]
    if findings:
        names = [check, *(f"{check} [{number}]" for number in range(2, len(findings) + 1))]
        cases = [_found(name, one, strict) for name, one in zip(names, findings, strict=True)]
        return [cases[0]._replace(output="\n".join(filter(None, (cases[0].output, accepted)))), *cases[1:]]
    if result.accepted and not any(check in f.also for f in verdict.findings):
        return [_Case(check, output=accepted)]
    if result.status in ("violated", "at-risk"):
        return [_consequence(check, result, verdict, strict)]
    if result.status == "not-checked":
        return [_Case(check, "skipped", result.skipped_because or "not checked")]
    return [_Case(check, output=f"held: {result.coverage} compared")]


def _found(name: str, finding: Finding, strict: bool) -> _Case:
    text = text_of([finding]) + (f"\n  rule      {finding.rule}" if finding.rule else "")
    if finding.severity == "warning" and not strict:
        return _Case(name, output=text)
    kind = "error" if finding.check in those("stops") else "failure"
    on = f"{ranks_text(finding.ranks)}: " if finding.ranks else ""
    return _Case(name, kind, f"{on}{finding.subject}: {finding.found}", text)


def _consequence(check: str, result: CheckResult, verdict: Verdict, strict: bool) -> _Case:
    causes = [f for f in verdict.findings if check in f.also]
    text = result.status.replace("-", " ")
    text += f" as a consequence of {causes[0].check}: {causes[0].subject}" if causes else ""
    if result.status == "at-risk" and not strict:
        return _Case(check, output=text)
    return _Case(check, "error" if check in those("stops") else "failure", text, text_of(causes[:1]))


def _properties(verdict: Verdict) -> dict[str, str]:
    properties = {"verdict": verdict.verdict, "world_size": str(verdict.world_size), "nnodes": str(verdict.nnodes)}
    properties |= {"parallelism": verdict.parallelism} if verdict.parallelism else {}
    properties |= {"accepted": str(len(verdict.accepted))} if verdict.accepted else {}
    properties |= {f"version.{package}": version or "unknown" for package, version in verdict.versions.items()}
    return properties | {f"note.{number}": note for number, note in enumerate(verdict.notes, 1)}


def _add(suite: ElementTree.Element, case: _Case) -> None:
    element = ElementTree.SubElement(suite, "testcase", {"classname": "ddpcheck", "name": case.name, "time": "0"})
    if case.kind:
        sort = "not-checked" if case.kind == "skipped" else case.name.partition(" [")[0]
        ending = ElementTree.SubElement(element, case.kind, {"type": sort, "message": _line(case.message)})
        ending.text = _valid(case.text) or None
    if case.output:
        ElementTree.SubElement(element, "system-out").text = _valid(case.output)


def _line(text: str) -> str:
    return " ".join(_valid(text).split())


def _valid(text: str) -> str:
    """The text without the characters that XML cannot hold, each told by its number."""
    return _NO_XML.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
