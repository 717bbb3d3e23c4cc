"""The matrix: what is said of every recorded program, a line for each rule that fires and one for all statuses.

A line is ``program | check/rule | severity | lines``; the line ``program | = | verdict | statuses`` has a letter for
each check, in the order of the head: ``h`` held, ``w`` at risk, ``V`` violated, ``.`` not checked. ``~`` stands for
what differs from run to run, with its reason in :mod:`tests.recordings.varying`. ``program @device`` has what is said
otherwise on simulated devices (:mod:`tests.recordings.devices`). The last lines count the programs that each rule
fires on, with ``!`` behind fewer than two.
"""

from __future__ import annotations

import difflib
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ddpcheck.checks.check import OF_ASSERTIONS, Rule
from ddpcheck.checks.registry import checks, every_rule
from ddpcheck.conformance import adapter_check
from ddpcheck.judging.world import Judged
from ddpcheck.verdict.verdict import Verdict
from ddpcheck.vocabulary.model import Finding
from tests.recordings.catalogue import DEVICE, ROOT
from tests.recordings.varying import VARYING

MATRIX = Path(__file__).with_name("matrix.txt")

LETTERS = {"held": "h", "at-risk": "w", "violated": "V", "not-checked": "."}
SEPARATOR = " | "
STATUSES = "="
SEVERITIES = ("error", "warning", "advisory")
OURS = ("ddpcheck itself", "failed")

Matrix = dict[str, list[str]]
"""By program: its lines."""


def head() -> list[str]:
    """How the file begins: the order of the statuses' letters."""
    return [f"# statuses: {' '.join(sorted(checks()))}"]


def lines(program: str, verdict: Verdict) -> list[str]:
    """What is said of a program."""
    varies = VARYING.get(program, {})
    letters = "".join("~" if c in varies else LETTERS[verdict.checks[c].status] for c in sorted(checks()))
    word = "~" if "verdict" in varies else verdict.verdict
    ours = [_failure(program, text) for text in (*verdict.internal, *_miscounted(verdict))]
    found = (*verdict.findings, *(verdict.advisories or ()))
    return [SEPARATOR.join((program, STATUSES, word, letters)), *sorted([*_fired(program, found), *ours])]


def _miscounted(verdict: Verdict) -> Iterator[str]:
    """Findings that count more than their check has compared: they count something else."""
    for finding in verdict.findings:
        coverage = verdict.checks[finding.check]
        if finding.count > coverage.checked:
            yield f"{finding.rule} was found {finding.count} times in {coverage.coverage}"


def lines_of_check(program: str, judged: Judged) -> list[str]:
    """What one check of a trainer, or one assertion, says."""
    worst = {f.severity for f in judged.findings}
    status = "violated" if "error" in worst else "at-risk" if "warning" in worst else "held" if judged.checked else ""
    return [SEPARATOR.join((program, STATUSES, status or "not-checked")), *sorted(_fired(program, judged.findings))]


def lines_of_failure(program: str, error: Exception) -> list[str]:
    """What is said of a program whose judge failed."""
    return [_failure(program, "".join(traceback.format_exception_only(error)))]


def _failure(program: str, text: str) -> str:
    return SEPARATOR.join((program, *OURS, text.splitlines()[-1].replace(f"{ROOT}/", "")))


def _fired(program: str, findings: Iterable[Finding]) -> list[str]:
    varies = VARYING.get(program, {})
    by_rule: dict[tuple[str, str], set[str]] = defaultdict(set)
    for finding in findings:
        if finding.rule not in varies and finding.check not in varies:
            by_rule[finding.rule or finding.check, finding.severity].add(place(finding))
    fired = [
        SEPARATOR.join((program, rule, severity, ", ".join(sorted(places))))
        for (rule, severity), places in by_rule.items()
    ]
    return fired + [SEPARATOR.join((program, what, "~", reason)) for what, reason in varies.items()]


def severities(lines: Iterable[str]) -> set[tuple[str, str]]:
    """The errors and warnings of a program: each rule with its severity."""
    told = (line.split(SEPARATOR)[1:3] for line in lines)
    return {(rule, severity) for rule, severity in told if severity in ("error", "warning", OURS[1])}


def place(finding: Finding) -> str:
    """The line that a finding names, by the file's name alone."""
    if finding.where is None:
        return "no line"
    return f"{finding.where.file.rpartition('/')[2]}:{finding.where.line}"


def written(matrix: Mapping[str, Iterable[str]]) -> str:
    """The file's text."""
    return "\n".join((*head(), *(line for of_one in matrix.values() for line in of_one), *foot(matrix), ""))


def foot(matrix: Mapping[str, Iterable[str]]) -> list[str]:
    """How the file ends: each rule with the number of programs that it fires on, marked where that is one or none."""
    counts = reached(matrix)
    kinds = {name: " advisory" if rule.advisory else "" for name, rule in rules().items()}
    return [f"# {name} | {counts[name]}{'!' * (counts[name] < 2)}{kind}" for name, kind in sorted(kinds.items())]


def read() -> Matrix:
    """The file, by program; nothing where there is none, or where its statuses are those of other checks."""
    if not MATRIX.exists():
        return {}
    first, *rest = MATRIX.read_text().splitlines()
    if [first] != head():
        return {}
    found: Matrix = {}
    for line in (line for line in rest if not line.startswith("#")):
        found.setdefault(line.partition(SEPARATOR)[0], []).append(line)
    return found


def differences(old: Mapping[str, Iterable[str]], new: Mapping[str, Iterable[str]]) -> list[str]:
    """The lines that are gone, with a minus, and those that are new, with a plus."""
    compared = difflib.unified_diff(written(old).splitlines(), written(new).splitlines(), n=0, lineterm="")
    return [line for line in compared if not line.startswith(("---", "+++", "@@"))]


_SHARED = {rule.name: f"*/{rule.name}" for rule in OF_ASSERTIONS}
"""Rules of every check that has assertions: by their names, what they are counted as together."""


def rules() -> dict[str, Rule]:
    """Every rule by its id, those of all assertions once; the adapter's, too, which is no check of the registry."""
    found = {_SHARED.get(rule.name, name): rule for name, rule in every_rule().items()}
    return {**found, **{f"{adapter_check.CHECK}/{rule.name}": rule for rule in adapter_check.RULES}}


def reached(matrix: Mapping[str, Iterable[str]]) -> Counter[str]:
    """By rule: the programs that it fires on."""
    found: Counter[str] = Counter()
    for name, of_one in matrix.items():
        told = (line.split(SEPARATOR)[1:3] for line in of_one if not name.endswith(DEVICE))
        fired = {rule for rule, severity in told if severity in SEVERITIES}
        found.update({_SHARED.get(rule.rpartition("/")[2], rule) for rule in fired})
    return found
