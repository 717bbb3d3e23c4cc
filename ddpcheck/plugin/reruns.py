"""Running a failed test again, as pytest-rerunfailures does: by its own protocol, with the ranks' run for pytest's.

So its options, its marks, its delays and its counting hold for tests in ranks too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import pluggy
import pytest
from _pytest import hookspec

from ddpcheck.outcomes.test_outcome import Outcome, crash_message
from ddpcheck.vocabulary.model import RunRecord

_USED = ("pytest_runtest_protocol", "pytest_runtest_makereport", "runtestprotocol")


class Attempt(NamedTuple):
    """One run of a test in its ranks, as its reports."""

    reports: Iterable[pytest.TestReport]
    """One for each phase."""
    subtests: Sequence[pytest.TestReport] = ()
    phase: str = ""
    """The phase that failed in the ranks, if one did."""
    errors: tuple[str, ...] = ()
    """The exception there, as ``Class: text``, after those that led to it."""
    leaving: BaseException | None = None
    """What ends the whole session, if it does."""


def errors_of(record: RunRecord, outcome: Outcome) -> tuple[str, ...]:
    """What made a test fail: the first rank's exception, after those that led to it, or else how the rank ended."""
    if outcome.report is None:
        raised = next((e.raised for e in record.endings if e.rank == outcome.root), None)
        return (raised.text if raised is not None else outcome.headline,)
    longrepr = outcome.report.data.get("longrepr")
    chain = longrepr.get("chain") or () if isinstance(longrepr, dict) else ()
    led = (str(crash["message"]) for _, crash, _ in chain[:-1] if crash)
    # pytest leaves the name out where the message is the assertion itself.
    return tuple(
        f"AssertionError: {t}" if t.startswith("assert ") else t for t in (*led, crash_message(outcome.report))
    )


def run_with_reruns(
    item: pytest.Item, nextitem: pytest.Item | None, attempt: Callable[[pytest.Item | None], Attempt]
) -> bool:
    """Run an item as often as pytest-rerunfailures wants it run; false where it wants nothing of the kind."""
    plugin: Any = item.config.pluginmanager.get_plugin("rerunfailures")
    if not all(hasattr(plugin, name) for name in _USED):
        return False

    def runtestprotocol(
        item: pytest.Item, log: bool = True, nextitem: pytest.Item | None = None
    ) -> list[pytest.TestReport]:
        done = attempt(nextitem)
        return [_judged(plugin, item, report, done) for report in done.reports]

    with mock.patch.object(plugin, "runtestprotocol", runtestprotocol):
        return bool(plugin.pytest_runtest_protocol(item=item, nextitem=nextitem))


def _judged(plugin: Any, item: pytest.Item, report: pytest.TestReport, done: Attempt) -> pytest.TestReport:
    """Let the plugin see a report and its exception as they are made: by these it decides."""

    class Made:
        @pytest.hookimpl
        def pytest_runtest_makereport(self) -> pytest.TestReport:
            return report

    def phase() -> None:
        if report.failed:
            raise _exception(done.errors if report.when == done.phase else [report.longreprtext])

    call: Any = pytest.CallInfo.from_call(phase, report.when)
    alone = pluggy.PluginManager("pytest")
    alone.add_hookspecs(hookspec)
    alone.register(SimpleNamespace(pytest_runtest_makereport=plugin.pytest_runtest_makereport))
    alone.register(Made())
    seen: pytest.TestReport = alone.hook.pytest_runtest_makereport(item=item, call=call)
    return seen


def _exception(texts: Sequence[str]) -> Exception:
    """An exception of the class, and with the text, that a rank has told of; the ones before are what led to it."""
    made: Exception | None = None
    for text in texts:
        name, _, message = text.partition(": ")
        known = _class(name)
        kind: Any = type(known.__name__, (known,), {"__str__": lambda self, message=message: message})
        led, made = made, kind.__new__(kind)
        made.__context__ = led
    return made or Exception()


def _class(name: str) -> type[BaseException]:
    """The class of this name, if it can be found here; or else one that is called the same."""
    module, _, last = name.rpartition(".")
    found = getattr(sys.modules.get(module or "builtins"), last, None)
    if isinstance(found, type) and issubclass(found, Exception):
        return found
    return type(last if last.isidentifier() else "Failed", (Exception,), {})
