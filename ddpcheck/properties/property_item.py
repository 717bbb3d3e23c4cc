"""One property, from its pytest item to the reports of its run.

PYTEST_DONT_REWRITE (its own assertions are for its authors)
"""

from __future__ import annotations

import contextlib
import unittest
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from ddpcheck.examples.failure_origins import RankFailure
from ddpcheck.outcomes.test_outcome import Outcome, decide, group_of
from ddpcheck.properties.engine import Engine, RunOver, Skipped
from ddpcheck.properties.example_verdict import DISAGREE
from ddpcheck.properties.hypothesis_plugin import AsHypothesis
from ddpcheck.properties.living_ranks import LivingRanks
from ddpcheck.properties.property_failures import distinct, with_example, words_of
from ddpcheck.report.pytest_reports import plain_report, reports_of
from ddpcheck.vocabulary.model import Plan, RunRecord, never_started
from ddpcheck.zygote.client import InternalError, Launcher


class PropertyRun:
    """A property that has been run: what happened in its ranks, and how that is told."""

    def __init__(self, item: pytest.Function, plan: Plan, launcher: Launcher) -> None:
        self.item, self.plan = item, plan
        self._hypothesis = AsHypothesis(item)
        self._ranks = LivingRanks(launcher, plan)
        self._error: BaseException | None = None
        try:
            with _captured(item):
                self._hypothesis.call(self._run)
        except InternalError:
            raise
        except (KeyboardInterrupt, pytest.exit.Exception):
            self._ranks.abort()
            raise
        except (pytest.skip.Exception, unittest.SkipTest) as skipped:  # by a strategy, or for want of a phase to run
            self._error = Skipped(str(skipped), None)
        except BaseException as error:
            self._error = error
        ended = self._ranks.finish()
        self.record, self.outcome = self._judged(ended)

    def _run(self) -> None:
        # Before the engine begins: what is wrong with the fixtures is no matter of an example.
        record = self._ranks.begin()
        if record is not None:
            raise RunOver(record)
        Engine(self.item, self._ranks).run(_arguments(self.item, self.plan), _explains(self.item.config))

    def _judged(self, ended: RunRecord | None) -> tuple[RunRecord, Outcome]:
        """What happened, and how it is told, given how the ranks that were still there have ended."""
        error, around = self._error, ended or self._ranks.last or never_started(self.plan, "")
        match error:
            case None | RunOver():
                record = error.record if isinstance(error, RunOver) else around
                return self._ranks.whole(record), decide(record)
            case Skipped(text=text):
                return self._ranks.whole(around), Outcome(result="skipped", root=0, headline=text)
            case RankFailure(record=RunRecord() as record):
                outcome = decide(record)
                if type(error).__name__ == DISAGREE:  # which is more than that some were still running
                    outcome = replace(outcome, headline=f"{error.text} ({group_of(self.plan)})")
                return self._ranks.whole(record), outcome
        headline, details = words_of(error)
        told = Outcome(result="failed", headline=f"{headline} ({group_of(self.plan)})", details=details)
        return self._ranks.whole(around), told

    def reports(self) -> Iterator[pytest.TestReport]:
        """The reports of the item, phase by phase."""
        for report in self._plain_reports():
            if report.when == "call":
                report.duration = self.record.seconds
                for when, name, content in self.item._report_sections:
                    report.sections.append((f"Captured {name} {when} (where examples are drawn)", content))
            yield self._hypothesis.report(report)

    def _plain_reports(self) -> Iterator[pytest.TestReport]:
        error = self._error
        if isinstance(error, Skipped):
            path, line, _ = self.item.location
            at = (error.where.file, error.where.line) if error.where is not None else (path, (line or 0) + 1)
            yield plain_report(self.item, "setup")
            yield plain_report(self.item, "call", "skipped", (*at, f"Skipped: {error.text}"), self.record.seconds)
            yield plain_report(self.item, "teardown")
            return
        for report in reports_of(self.item, self.record, self.outcome):
            if report.when == "call" and isinstance(error, RankFailure) and error.record is not None:
                with_example(report, error)
            elif report.when == "call" and hasattr(error, "exceptions") and report.failed:
                distinct(self.item, report, self.outcome, error)
            yield report


@contextlib.contextmanager
def _captured(item: pytest.Item) -> Iterator[None]:
    """Keep what is printed here (by strategies, and by the engine) off the terminal, and off the next test's report."""
    manager: Any = item.config.pluginmanager.getplugin("capturemanager")
    capture = getattr(manager, "item_capture", None)
    if capture is None:
        yield
        return
    with capture("call", item):
        yield


def _explains(config: pytest.Config) -> bool:
    return bool(config.getoption("--hypothesis-explain", default=False))


class _Elsewhere:
    """What stands in the text of an example for a value that the ranks alone have."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _arguments(item: pytest.Function, plan: Plan) -> dict[str, Any]:
    """What stands for the test's fixtures here; parameters are themselves."""
    callspec = getattr(item, "callspec", None)
    params = dict(callspec.params) if callspec is not None else {}
    found: dict[str, Any] = {}
    for name in item._fixtureinfo.argnames:
        definitions = item._fixtureinfo.name2fixturedefs.get(name, ())
        direct = not definitions or getattr(definitions[-1].func, "__name__", "") == "get_direct_param_fixture_func"
        if name in params and direct:
            found[name] = params[name]
        elif name == "ddp":
            found[name] = _Elsewhere(f"<{group_of(plan).removeprefix('of ')}>")
        else:
            found[name] = _Elsewhere(f"<fixture {name}, one in each rank>")
    return found
