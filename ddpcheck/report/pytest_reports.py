"""From the outcome of a test to the reports that pytest shows: one for each phase, whatever the ranks did."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from _pytest._code import code  # pytest has no public way to build a representation
from _pytest.skipping import evaluate_xfail_marks

from ddpcheck.outcomes.subtest_outcome import Subtest, subtests_of
from ddpcheck.outcomes.test_outcome import Outcome, crash_message
from ddpcheck.report import finding_module
from ddpcheck.vocabulary.model import CheckRun, PhaseReport, RankEnding, RunRecord

PHASES = ("setup", "call", "teardown")


def reports_of(item: pytest.Item, record: RunRecord, outcome: Outcome) -> Iterator[pytest.TestReport]:
    """Yield the reports of an item, phase by phase."""
    for phase in PHASES:
        if outcome.phase == phase and outcome.result != "passed":
            report = _decisive(item, record, outcome)
            _attach(report, record)
            yield report
            if phase == "setup":
                yield _plain(item, record, "teardown")
                return
        elif phase == "call" and outcome.result == "skipped":
            continue
        else:
            report = _passed(item, record, phase)
            if phase == "call":
                _attach(report, record)
            yield report


def subtest_reports(item: pytest.Item, record: RunRecord) -> list[pytest.TestReport]:
    """The reports of an item's subtests, one for each, whichever ranks came to it."""
    return [_subtest(item, one) for one in subtests_of(record)]


def _subtest(item: pytest.Item, subtest: Subtest) -> pytest.TestReport:
    record, outcome = subtest.record, subtest.outcome
    if outcome.result == "failed" and outcome.report is not None:
        report = _decisive(item, record, outcome)
    else:
        first = record.endings[0].reports[0]
        report = _merged(_revive(item, first), record, first.phase)
        if outcome.result == "failed":  # some ranks have skipped it
            told = _told(item, record, outcome)
            report.outcome, report.longrepr = told.outcome, told.longrepr
    said = subtest.parameters
    if said:  # pytest makes a representation of every value that it reads, and these are representations
        report.context.kwargs.update(said)
    return report


def fail_for_subtests(report: pytest.TestReport, failed: int) -> None:
    """Let a test that passed fail, since so many of its subtests have failed."""
    report.outcome = "failed"
    report.longrepr = f"contains {failed} failed subtest{'s' if failed > 1 else ''}"
    vars(report).pop("wasxfail", None)


def _passed(item: pytest.Item, record: RunRecord, phase: str) -> pytest.TestReport:
    for ending in record.endings:
        for report in ending.reports:
            if report.phase == phase and report.outcome == "passed":
                return _merged(_revive(item, report), record, phase)
    return _plain(item, record, phase)


def plain_report(
    item: pytest.Item, phase: Any, outcome: Any = "passed", longrepr: Any = None, seconds: float = 0.0
) -> pytest.TestReport:
    """A report that no rank has made."""
    return pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords=dict.fromkeys(item.keywords, 1),
        outcome=outcome,
        longrepr=longrepr,
        when=phase,
        duration=seconds,
    )


def _plain(
    item: pytest.Item, record: RunRecord, phase: str, outcome: Any = "passed", longrepr: Any = None
) -> pytest.TestReport:
    seconds = record.seconds if phase == "call" else 0.0
    return _merged(plain_report(item, phase, outcome, longrepr, seconds), record, phase)


def _revive(item: pytest.Item, report: PhaseReport) -> pytest.TestReport:
    revived = item.config.hook.pytest_report_from_serializable(config=item.config, data=dict(report.data))
    assert isinstance(revived, pytest.TestReport)
    if isinstance(revived.longrepr, list):  # of a skip; pytest insists on a tuple
        revived.longrepr = tuple(revived.longrepr)
    revived.user_properties = [(str(k), v) for k, v in revived.user_properties]
    return revived


def _merged(report: pytest.TestReport, record: RunRecord, phase: str) -> pytest.TestReport:
    """Give the report the captured output of every rank, each under its number."""
    report.sections = [
        (f"{name} (rank {ending.rank})", content)
        for ending in record.endings
        for name, content in _sections(ending, phase)
    ]
    return report


def _sections(ending: RankEnding, phase: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for report in ending.reports:
        found = [(str(name), str(content)) for name, content in report.data.get("sections", ())]
        if report.phase == phase:
            break
    else:
        # The rank never came to the end of this phase: what it had printed was saved from outside.
        found += [(f"Captured {name}", text) for name, text in ending.output]
    return found


def _decisive(item: pytest.Item, record: RunRecord, outcome: Outcome) -> pytest.TestReport:
    if outcome.report is None:
        return _told(item, record, outcome)
    report = _merged(_revive(item, outcome.report), record, outcome.phase)
    if outcome.result == "failed":
        report.longrepr = _with_ranks(report.longrepr, outcome, crash_message(outcome.report))
    return report


def _told(item: pytest.Item, record: RunRecord, outcome: Outcome) -> pytest.TestReport:
    """The report of an ending that no rank could report: told in words, and judged by the item's xfail mark."""
    mark = evaluate_xfail_marks(item)
    if mark is not None and mark.raises is None and not item.config.option.runxfail:
        report: pytest.TestReport = _plain(item, record, outcome.phase, "skipped", outcome.headline)
        report.wasxfail = mark.reason
        return report
    path, line, _ = item.location
    message = _short(outcome.headline)
    if outcome.details and outcome.phase == "setup":
        message += ": " + outcome.details.strip().splitlines()[-1]
    text = "\n".join(part for part in (outcome.headline, outcome.details) if part)
    longrepr = code.ReprExceptionInfo(
        reprtraceback=words(text), reprcrash=code.ReprFileLocation(path, (line or 0) + 1, message)
    )
    _add_notes(longrepr, outcome)
    told: pytest.TestReport = _plain(item, record, outcome.phase, "failed", longrepr)
    return told


def words(text: str) -> code.ReprTraceback:
    """These words in the place of a traceback."""
    return code.ReprTraceback([code.ReprEntryNative([text + "\n"])], extraline=None, style="native")


def _with_ranks(longrepr: Any, outcome: Outcome, message: str) -> Any:
    """Put the headline before the root's traceback, and what became of the other ranks behind it."""
    if not isinstance(longrepr, code.ExceptionRepr):
        notes = [f"{title}\n{content}" for title, content in _note_sections(outcome)]
        return "\n".join([outcome.headline, str(longrepr), *notes])
    crash = longrepr.reprcrash
    if crash is not None:
        crash = code.ReprFileLocation(crash.path, crash.lineno, f"{_short(outcome.headline)}: {message}")
    own = longrepr.chain if isinstance(longrepr, code.ExceptionChainRepr) else [(longrepr.reprtraceback, crash, None)]
    *inner, (traceback, _, description) = own
    chained = code.ExceptionChainRepr([(words(outcome.headline), None, None), *inner, (traceback, crash, description)])
    _add_notes(chained, outcome)
    return chained


def _short(headline: str) -> str:
    return headline.split(" (of ")[0].split(", with ")[0]


def _add_notes(longrepr: code.ExceptionRepr, outcome: Outcome) -> None:
    for title, content in _note_sections(outcome):
        longrepr.addsection(title, content)


def _note_sections(outcome: Outcome) -> Iterator[tuple[str, str]]:
    if outcome.notes:
        lines = []
        for note in outcome.notes:
            lines.append(f"rank {note.rank} {note.text}")
            lines += ["    " + line for line in note.details.splitlines()]
        yield ("the other ranks", "\n".join(lines))


def _attach(report: pytest.TestReport, record: RunRecord) -> None:
    """Add what a session's report needs, as plain data: pytest-xdist carries it to the main process."""
    report.ddp = {  # type: ignore[attr-defined]
        "world_size": record.plan.world_size,
        "backend": record.plan.backend,
        "device": record.plan.device,
        "fresh": record.plan.fresh,
        "gpus": [gpu.key for gpu in record.plan.gpus],
        "simulated": record.plan.simulated,
        "nccl_shares_gpu": record.plan.nccl_shares_gpu,
        "nccl_variables": record.plan.nccl_variables,
        "seconds": record.seconds,
        "checks": [_check_run(one) for one in record.checks],
        "ranks": [
            {"rank": e.rank, "ending": e.kind, "exit_code": e.exit_code, "signal": e.signal} for e in record.endings
        ],
    }


def _check_run(run: CheckRun) -> dict[str, Any]:
    """As plain data; the module of a finding is there where it is known."""
    fields: dict[str, Any] = msgspec.to_builtins(run)
    for finding, told in zip(run.findings, fields["findings"], strict=True):
        del told["module"]
        if finding.module is not None:
            told["module"] = finding_module.data(finding.module, {})
    return fields
