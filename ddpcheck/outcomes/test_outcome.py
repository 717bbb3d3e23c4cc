"""From the endings of all ranks to the one outcome of a test. Plain functions over plain data."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntEnum
from typing import Literal, NamedTuple

from msgspec.structs import replace

from ddpcheck.vocabulary.model import Phase, PhaseReport, Plan, Raised, RankEnding, RunRecord, Struct
from ddpcheck.vocabulary.wording import ranks_text, signal_name


class Note(Struct, frozen=True, kw_only=True):
    """What happened in a rank that is not the first to fail."""

    rank: int
    text: str
    details: str = ""


class Outcome(Struct, frozen=True, kw_only=True):
    """What the one report of a test says."""

    result: Literal["passed", "failed", "skipped", "exit"]
    phase: Phase = "call"
    """The phase that failed or was skipped."""
    root: int | None = None
    """The rank whose report is shown: the first to fail."""
    report: PhaseReport | None = None
    """The root's own report; None where it could not report."""
    headline: str = ""
    details: str = ""
    """What stands below the headline where there is no report: a stack, or why a rank did not start."""
    notes: tuple[Note, ...] = ()
    exit_code: int | None = None
    """The session's exit code, where a rank has called ``pytest.exit`` with one."""


class _Weight(IntEnum):
    """What counts as a first failure before what else, whatever the clock says."""

    OWN = 0
    """A failure of the rank's own."""
    REACTION = 1
    """The loss of a peer: felt, and perhaps told, before the peer's end is seen."""
    UNEXPECTED_PASS = 2
    """A strict xfail that passed here; it only counts where no rank failed."""


class _Failure(NamedTuple):
    weight: _Weight
    at: float
    rank: int
    report: PhaseReport | None


def decide(record: RunRecord) -> Outcome:
    """Say how the test ended, given how each of its ranks did, or those that came to the part of it that this is."""
    endings = record.endings
    if record.lost:
        return _lost(record)
    leaving = [e for e in endings if e.kind == "exit"]
    if leaving:
        first = min(leaving, key=lambda e: e.at)
        headline = f"rank {first.rank} called pytest.exit: {first.text}"
        return Outcome(result="exit", root=first.rank, headline=headline, exit_code=first.exit_code)
    failures = sorted(f for e in endings if (f := _failure(e)))
    skipped = {e.rank: r for e in endings if (r := _skip(e))}
    if len(skipped) == len(endings):
        if not failures and all(e.kind == "finished" for e in endings):
            return _all_skipped(skipped)
    elif skipped:
        own_failure = bool(failures) and failures[0].weight is _Weight.OWN
        if not own_failure and not any(e.kind == "hung" for e in endings):
            return _some_skipped(record, skipped)
    if failures and failures[0].report is not None and xfailed(failures[0].report):
        # So is what other ranks did thereafter; what a rank did in its teardown after an expected failure is not.
        unexpected = sorted(f for e in endings if (f := _failure(e, after_expected=True)))
        torn = [e for e in endings if e.kind == "hung" and any(map(xfailed, e.reports))]
        if torn and not unexpected:
            return _timed_out(record, torn)
        failures = unexpected or failures
    if failures:
        return _failed(record, failures[0])
    hung = [e for e in endings if e.kind == "hung"]
    if hung:
        return _timed_out(record, hung)
    assert all(e.kind == "finished" for e in endings), endings
    return Outcome(result="passed", root=0)


def _lost(record: RunRecord) -> Outcome:
    """Nobody can say how the ranks ended: they were ended with the process that watched over them."""
    how, _, words = record.lost.partition("\n")
    hung = any(e.kind == "hung" for e in record.endings)
    stacks = [f"rank {e.rank}, most recent call first:\n{e.stack}" for e in record.endings if "File" in e.stack]
    explained = (
        "The ranks were ended with it, and what they had done by then is not known. A test reaches that process as "
        "its ranks' parent (os.getppid()), which is not the test's to signal."
    )
    headline = f"timed out after {record.plan.timeout:g} s: {how}" if hung else f"{how} while the test ran"
    return Outcome(
        result="failed",
        headline=f"{headline} ({group_of(record.plan)})",
        details="\n\n".join(part for part in (explained, words, *stacks) if part),
    )


def _failure(ending: RankEnding, after_expected: bool = False) -> _Failure | None:
    """The first failure of this rank, if it had one; or that of its own after an expected one, as of a fixture."""
    if after_expected:
        if not any(map(xfailed, ending.reports)):
            return None
        found = _first(ending, [r for r in ending.reports if not xfailed(r)])
        return found if found is not None and found.weight is _Weight.OWN else None
    return _first(ending, ending.reports)


def _first(ending: RankEnding, reports: Sequence[PhaseReport]) -> _Failure | None:
    """The first failure among these reports of a rank, or else in how it ended."""
    for report in reports:
        if report.outcome == "failed" or xfailed(report):
            weight = _Weight.REACTION if report.reaction else _Weight.OWN
            if report.unexpected_pass:
                weight = _Weight.UNEXPECTED_PASS
            return _Failure(weight, report.at, ending.rank, report)
    raised = _unreported(ending)
    if raised is not None:
        weight = _Weight.REACTION if raised.reaction else _Weight.OWN
        return _Failure(weight, raised.at, ending.rank, None)
    if ending.kind in ("died", "never-started") or _ran_nothing(ending):
        weight = _Weight.REACTION if ending.reaction else _Weight.OWN
        return _Failure(weight, ending.at, ending.rank, None)
    return None


def _unreported(ending: RankEnding) -> Raised | None:
    """What the rank's test has raised, where the rank has made no report of that phase."""
    raised = ending.raised
    return raised if raised is not None and all(r.phase != raised.phase for r in ending.reports) else None


def _ran_nothing(ending: RankEnding) -> bool:
    """Whether the rank came to its end without the test: nothing of it was seen to pass."""
    return ending.kind == "finished" and not ending.reports


def xfailed(report: PhaseReport) -> bool:
    """Whether the report is of a failure that its mark expected."""
    return report.outcome == "skipped" and "wasxfail" in report.data


def _skip(ending: RankEnding) -> PhaseReport | None:
    for report in ending.reports:
        if report.outcome == "skipped" and not xfailed(report):
            return report
    return None


def skip_reason(report: PhaseReport) -> str:
    longrepr = report.data.get("longrepr")
    reason = longrepr[2] if isinstance(longrepr, (list, tuple)) and len(longrepr) == 3 else str(longrepr)
    return str(reason).removeprefix("Skipped: ")


def _all_skipped(skipped: dict[int, PhaseReport]) -> Outcome:
    report = skipped[0]
    reasons = {skip_reason(r) for r in skipped.values()}
    notes: tuple[Note, ...] = ()
    if len(reasons) > 1:
        notes = tuple(Note(rank=k, text=f"skipped: {skip_reason(r)}") for k, r in skipped.items())
    return Outcome(result="skipped", phase=report.phase, root=0, report=report, notes=notes)


def _some_skipped(record: RunRecord, skipped: dict[int, PhaseReport]) -> Outcome:
    others = [e.rank for e in record.endings if e.rank not in skipped]
    first = min(skipped)
    reasons = "; ".join(f"rank {k}: {skip_reason(r)}" for k, r in skipped.items())
    return Outcome(
        result="failed",
        root=first,
        headline=f"{ranks_text(skipped)} skipped and {ranks_text(others)} did not ({reasons})",
        details=(
            "A test is skipped by all of its ranks or by none: those that go on wait for those that do not. "
            "Let the reason to skip depend on nothing that differs between ranks."
        ),
        notes=_notes(record, None),
    )


def _failed(record: RunRecord, failure: _Failure) -> Outcome:
    ending = next(e for e in record.endings if e.rank == failure.rank)
    report = failure.report
    who = f"rank {failure.rank} failed first"
    phase: Phase = "call"
    details = ""
    if report is not None:
        phase = report.phase
        alike = [e.rank for e in record.endings if _same_verdict(e, report)]
        if len(alike) > 1:
            sharing = "all ranks" if len(alike) == record.plan.world_size else ranks_text(alike)
            who += f", with a verdict that {sharing} share"
        elif crash_message(report).startswith("SystemExit"):
            who += ": it left the test by SystemExit"
    elif (raised := _unreported(ending)) is not None:
        phase = raised.phase
        who += f", and was ended before it had reported: {raised.text}"
        details = ending.stack
    elif _ran_nothing(ending):
        phase = "setup"
        who += ": it did not run the test"
        details = "A pytest_runtest_protocol hook of a conftest file or plugin has taken the test from ddpcheck."
    elif ending.kind == "never-started":
        phase = "setup"
        who = "its ranks could not start" if _none_was_started(record) else f"{who}: it could not start"
        details = ending.text
    else:
        who += f": it {_how_it_died(ending)}"
        at_that_moment = (
            f"The Python stack of rank {ending.rank} at that moment:\n{ending.stack}" if ending.stack else ""
        )
        details = ending.text or at_that_moment
        if ending.reports and any(r.phase == "call" for r in ending.reports):
            phase = "teardown"
        elif not ending.reports:
            phase = "setup"
    return Outcome(
        result="failed",
        phase=phase,
        root=failure.rank,
        report=report,
        headline=f"{who} ({group_of(record.plan)})",
        details=details,
        notes=() if _none_was_started(record) else _notes(record, failure.rank, report),
    )


def _none_was_started(record: RunRecord) -> bool:
    """Whether several ranks were not started for one reason, which is no rank's own."""
    first, *others = record.endings
    return first.kind == "never-started" and bool(others) and all(e == replace(first, rank=e.rank) for e in others)


def _timed_out(record: RunRecord, hung: Sequence[RankEnding]) -> Outcome:
    stacks = []
    for ending in hung:
        waiting = f", waiting in {ending.waiting_in} for the other ranks" if ending.waiting_in else ""
        stack = ending.stack or "(it gave no stack: it was stopped, or blocks all signals)"
        stacks.append(f"rank {ending.rank}{waiting}, most recent call first:\n{stack}")
    started = any(r.phase == "setup" for e in hung for r in e.reports)
    ended = any(_body_ended(e) for e in hung)
    return Outcome(
        result="failed",
        phase="teardown" if ended else "call" if started else "setup",
        root=hung[0].rank,
        headline=(
            f"timed out after {record.plan.timeout:g} s with {ranks_text(e.rank for e in hung)} still running "
            f"({group_of(record.plan)})"
        ),
        details="\n\n".join(stacks),
        notes=tuple(n for n in _notes(record, None) if n.rank not in {e.rank for e in hung}),
    )


def group_of(plan: Plan) -> str:
    """How many ranks, and what they run on: the end of a headline."""
    ranks = "1 rank" if plan.world_size == 1 else f"{plan.world_size} ranks"
    return f"of {ranks}, {plan.backend} on {plan.device}"


def _how_it_died(ending: RankEnding) -> str:
    if ending.text:
        return "could not go on"
    if ending.signal is not None:
        how = f"was killed by {signal_name(ending.signal)}"
    else:
        how = f"left with exit code {ending.exit_code}"
    return f"{how} {'after' if _body_ended(ending) else 'before'} the test's body ended"


def _body_ended(ending: RankEnding) -> bool:
    return ending.body_ended or any(map(xfailed, ending.reports))


def _same_verdict(ending: RankEnding, report: PhaseReport) -> bool:
    """Whether this rank was given the verdict that the report is about, and did not go on from there."""
    if report.verdict is None:
        return False
    if any(r.verdict == report.verdict for r in ending.reports):
        return True
    went_on = any(r.phase == report.phase and r.outcome == "passed" for r in ending.reports)
    return ending.verdict == report.verdict and not went_on


def crash_message(report: PhaseReport) -> str:
    """The last line of a failure, as pytest's summary has it."""
    longrepr = report.data.get("longrepr")
    if isinstance(longrepr, dict):
        crash = longrepr.get("reprcrash") or {}
        return str(crash.get("message", ""))
    if isinstance(longrepr, str):
        return longrepr
    return ""


def _notes(record: RunRecord, root: int | None, shown: PhaseReport | None = None) -> tuple[Note, ...]:
    notes = []
    for ending in record.endings:
        if ending.rank == root:
            continue
        if shown is not None and _same_verdict(ending, shown):
            continue
        notes.append(_note(ending))
    return tuple(notes)


_ENDS_OF_EXAMPLES = {
    "invalid": "rejected the example",
    "skipped": "skipped",
    "stopped": "was waiting in a draw for the other ranks, and was stopped",
}
"""What a rank of a property did that has not failed, where it did not come to the end of the body."""


def _note(ending: RankEnding) -> Note:
    failure = _failure(ending)
    skip = _skip(ending)
    told = failure.report if failure is not None and failure.report is not None else ending.raised
    if told is not None:
        message = re.sub(r"\s+", " ", crash_message(told) if isinstance(told, PhaseReport) else told.text).strip()
        how = "lost its peer" if told.reaction else f"failed in {told.phase}"
        return Note(rank=ending.rank, text=f"{how}: {message}")
    if skip is not None:
        return Note(rank=ending.rank, text=f"skipped: {skip_reason(skip)}")
    if _ran_nothing(ending):
        return Note(rank=ending.rank, text="did not run the test")
    if ending.example is not None and ending.example.status in _ENDS_OF_EXAMPLES:
        return Note(rank=ending.rank, text=_ENDS_OF_EXAMPLES[ending.example.status])
    match ending.kind:
        case "died":
            return Note(rank=ending.rank, text=_how_it_died(ending), details=ending.stack)
        case "never-started":
            lines = ending.text.strip().splitlines() or [""]
            return Note(rank=ending.rank, text=f"could not start: {lines[-1]}")
        case "hung" | "stopped":
            if ending.body_ended:
                return Note(rank=ending.rank, text="its body had ended")
            if ending.waiting_in:
                return Note(rank=ending.rank, text=f"was waiting in {ending.waiting_in}, and was stopped")
            return Note(rank=ending.rank, text="was still running, and was stopped", details=ending.stack)
    return Note(rank=ending.rank, text="passed")
