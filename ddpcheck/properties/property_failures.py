"""What a property adds to the report of a failure: the smallest example, and each of several failures."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import Any

import pytest
from _pytest._code import code  # pytest has no public way to build a representation

from ddpcheck.examples.failure_origins import is_engine, is_ours
from ddpcheck.outcomes.test_outcome import Outcome, decide
from ddpcheck.report.pytest_reports import reports_of, words
from ddpcheck.vocabulary.model import RunRecord

_EXPLAINED = ("Violation",)
"""Classes of ours whose text does not begin with what they are."""


def notes_of(error: BaseException) -> str:
    """What hypothesis has added to a failure: the example, what the body has noted, how to run it again."""
    return "\n".join(str(note) for note in getattr(error, "__notes__", ()))


def with_example(report: pytest.TestReport, error: BaseException) -> None:
    """Put the example where pytest shows the notes of an exception: below the error."""
    notes = notes_of(error)
    if not notes:
        return
    longrepr: Any = report.longrepr
    if isinstance(longrepr, code.ExceptionRepr):
        _append(_last_traceback(longrepr), notes)
    elif isinstance(longrepr, str):
        report.longrepr = f"{longrepr}\n{notes}"


def _last_traceback(longrepr: Any) -> code.ReprTraceback:
    if isinstance(longrepr, code.ExceptionChainRepr):
        return longrepr.chain[-1][0]
    return longrepr.reprtraceback  # type: ignore[no-any-return]


def _append(shown: code.ReprTraceback, text: str) -> None:
    *others, last = shown.reprentries
    if isinstance(last, code.ReprEntry):
        lines = [*last.lines, *(f"E   {line}".rstrip() for line in text.splitlines())]
        last = code.ReprEntry(lines, last.reprfuncargs, last.reprlocals, last.reprfileloc, last.style)
        shown.reprentries = [*others, last]
    else:
        shown.reprentries = [*others, last, code.ReprEntryNative([text + "\n"])]


def distinct(item: pytest.Item, report: pytest.TestReport, outcome: Outcome, group: Any) -> None:
    """Show each of several failures with all that is known of it, one after the other."""
    longrepr = report.longrepr
    if not isinstance(longrepr, code.ReprExceptionInfo):
        return
    failures = list(_flat(group))
    if not any(isinstance(getattr(failure, "record", None), RunRecord) for failure in failures):
        return
    chain: list[Any] = [(words(outcome.headline), None, None)]
    for number, failure in enumerate(failures, 1):
        chain.append((words(f"--- failure {number} of {len(failures)} ---"), None, None))
        chain += _shown(item, failure)
    chain[-1] = (chain[-1][0], longrepr.reprcrash, chain[-1][2])
    report.longrepr = code.ExceptionChainRepr(chain)


def _shown(item: pytest.Item, failure: BaseException) -> Iterator[Any]:
    record = getattr(failure, "record", None)
    if not isinstance(record, RunRecord):
        yield (words("\n".join(text for text in words_of(failure) if text)), None, None)
        return
    for report in reports_of(item, record, decide(record)):
        if report.when == "call" and isinstance(report.longrepr, code.ExceptionRepr):
            with_example(report, failure)
            shown: Any = report.longrepr
            if isinstance(shown, code.ExceptionChainRepr):
                yield from ((part, None, None) for part, _, _ in shown.chain)
            else:
                yield (shown.reprtraceback, None, None)
            for title, content, _ in shown.sections:
                yield (words(f"{title}:\n{content}"), None, None)


def _flat(group: Any) -> Iterator[BaseException]:
    for error in group.exceptions:
        if hasattr(error, "exceptions") and not getattr(error, "__notes__", ()):
            yield from _flat(error)
        else:
            yield error


def words_of(error: BaseException) -> tuple[str, str]:
    """A failure that no rank's report is about, as a headline and what stands below it."""
    parts = [notes_of(error)]
    if hasattr(error, "exceptions"):
        parts += ["\n".join(part for part in words_of(inner) if part) for inner in error.exceptions]
    elif hasattr(error, "record"):
        parts.append(getattr(error, "traceback", ""))
    elif not type(error).__module__.startswith("hypothesis"):  # what a strategy has raised, where the engine is
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if not is_ours(frame.filename) and not is_engine(frame.filename)]
        parts.append("".join(["Traceback (most recent call last):\n", *traceback.format_list(own or frames)]).strip())
    return _headline(error), "\n\n".join(part for part in parts if part)


def _headline(error: BaseException) -> str:
    if hasattr(error, "exceptions"):  # less the count of them: they follow
        return str(getattr(error, "message", error))
    name = type(error).__name__
    if type(error).__module__ == "ddpcheck" and name not in _EXPLAINED:
        return str(error)  # our own words, which say it all
    return f"{name}: {error}".removesuffix(": ")
