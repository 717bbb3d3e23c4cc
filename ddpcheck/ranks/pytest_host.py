"""A pytest session inside a process of ours: it collects as the user's session does, and runs one item.

The user's session and this one collect the same files; only a test's id
crosses. So ranks have assertion rewriting, fixtures and parameters for
nothing, and no function or exception has to travel.
"""

from __future__ import annotations

import importlib
import io
import os
import unittest
from collections.abc import Callable, Generator
from os import _exit, getpid  # by name, as what follows: a test may replace what it finds there
from pathlib import Path
from traceback import format_exception_only
from typing import Any

import pluggy
import pytest
from _pytest._io import TerminalWriter
from _pytest.config import Config  # fromdictargs is pytest's constructor for subprocesses; pytest-xdist's too

from ddpcheck.ranks import messages
from ddpcheck.ranks.channel import Channel
from ddpcheck.ranks.current_rank import Violation
from ddpcheck.vocabulary.clock import clock
from ddpcheck.vocabulary.lost_peers import is_reaction
from ddpcheck.vocabulary.model import PhaseReport, Plan, Raised, Task, WarningRecord


class CannotCollect(Exception):
    """The test is not there when its file is collected again."""


class Host:
    """The pytest plugin that turns a session into a source of single items."""

    def __init__(self, hello: messages.Hello, serve: Callable[[Host], None]) -> None:
        self.hello = hello
        self._serve = serve
        self._items: dict[str, pytest.Item] = {}
        self._collected: dict[str, str] = {}
        self._errors: list[str] = []
        self.session: pytest.Session | None = None

    def run(self) -> None:
        """Set the session up, serve, and tear the session down."""
        os.chdir(self.hello.cwd)
        config = Config.fromdictargs(self.hello.options, list(self.hello.args))
        # Plugins that write reports know a worker by this attribute, and leave the writing to the main process.
        config.workerinput = WorkerInput(self.hello.workerinput, config)  # type: ignore[attr-defined]
        config.pluginmanager.register(self, "ddpcheck-host")
        # Older pytest asks the terminal how to colour a comparison, and fails where there is none.
        writer = TerminalWriter(io.StringIO())
        writer.hasmarkup = False
        config.get_terminal_writer = lambda: writer  # type: ignore[method-assign]
        config.hook.pytest_cmdline_main(config=config)

    # --- hooks

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self.session = session
        session.config.args = []  # what is collected is what is asked for

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._serve(self)
        return True

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        # Kept here, since hooks that deselect see less than the whole session.
        self._items[item.nodeid] = item

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._errors.append(report.longreprtext)

    # --- items

    def has_collected(self, path: str) -> bool:
        return path in self._collected

    def collect(self, path: str) -> None:
        """Collect the tests of one file; an error is kept for those who ask for its tests."""
        assert self.session is not None
        self._errors = []
        _expect_conftests(self.session)
        try:
            self.session.perform_collect([path], genitems=True)
        except pytest.UsageError as error:
            self._errors.append(str(error))
        self._collected[path] = "\n".join(self._errors)

    def item(self, plan: Plan) -> pytest.Item:
        """The test of this plan; raises CannotCollect with a sentence that says why not."""
        item = self._items.get(plan.nodeid)
        if item is not None:
            return item if plan.task is None else _in_place_of(item, plan.task)
        error = self._collected.get(plan.path, "")
        if error:
            raise CannotCollect(f"{plan.path} could not be collected in a rank:\n{error}")
        raise CannotCollect(
            f"{plan.nodeid} is not there when {plan.path} is collected again. Its id must be the same every time: "
            "give parameters ids that depend on neither time, chance nor the order of a set."
        )


SUBJECT = "_ddpcheck_subject"
"""The attribute of a test's function that says what a task is about, and has no name to be found by elsewhere."""


def _in_place_of(item: pytest.Item, task: Task) -> pytest.Item:
    """An item that runs a task, beside this one."""
    module = item.getparent(pytest.Module)
    assert module is not None
    subject = getattr(getattr(item, "obj", None), SUBJECT, None)
    home, _, name = task.function.partition(":")

    def body() -> None:
        __tracebackhide__ = True  # what fails in a task is told from the user's first frame on
        getattr(importlib.import_module(home), name)(subject, task.given)

    made: pytest.Item = pytest.Function.from_parent(module, name=task.name, callobj=body)
    return made


def _expect_conftests(session: pytest.Session) -> None:
    """Let the folders that are collected next have the fixtures of their conftest files.

    From pytest 9.1 on, these fixtures belong to the node of the folder, are
    given to the first such node, and forgotten when a collection ends. Here
    each file is a collection of its own, with nodes of its own.
    """
    pending = getattr(session._fixturemanager, "_pending_conftests", None)
    if pending is None:
        return
    root = session.config.rootpath
    for name, plugin in session.config.pluginmanager.list_name_plugin():
        folder = Path(name).parent
        if Path(name).name == "conftest.py" and folder != root and folder.is_relative_to(root):
            pending.setdefault(folder, plugin)


class WorkerInput(dict[str, Any]):
    """What a worker is told, in pytest-xdist's form.

    A plugin that looks for a value of its own, which nobody put here because
    the session is not distributed, finds its option of the same name.
    """

    def __init__(self, values: dict[str, Any], config: Config) -> None:
        super().__init__(values)
        self._options = vars(config.option)

    def __missing__(self, key: str) -> Any:
        return self._options[key]


class RankReporter:
    """The pytest plugin that runs the phases of an item in a rank and reports each."""

    def __init__(self, plan: Plan, rank: int, channel: Channel) -> None:
        self.plan, self.rank, self.channel = plan, rank, channel
        self.pid = getpid()
        self.leaving: tuple[str, int | None] | None = None
        self._error: BaseException | None = None
        """What the report is about that was made last."""

    def register(self, config: pytest.Config) -> None:
        """Take part in the session, before all plugins that are there.

        By pluggy's own method: pytest's would look for fixtures in it, in every rank for nothing.
        """
        self._config = config
        benchmarks = getattr(config, "_benchmarksession", None)
        if benchmarks is not None:  # each rank would choose its own number of rounds, and leave the others waiting
            benchmarks.disabled = True
        pluggy.PluginManager.register(config.pluginmanager, self, "ddpcheck-rank")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool:
        try:
            wanted = not item.config.getoption("setuponly", False)
            if self._phase(item, "setup") and wanted and self._phase(item, "call"):
                self._guard()
                self.channel.send(messages.BodyEnded())
                # The group stays until every body has ended: a rank that
                # leaves early closes connections that others still use.
                released = self.channel.receive()
                assert isinstance(released, messages.Release)
            self._phase(item, "teardown", nextitem=None)
        except pytest.exit.Exception as error:
            self.leaving = str(error), error.returncode
        return True

    def _phase(self, item: pytest.Item, when: Any, **arguments: Any) -> bool:
        hook = getattr(item.ihook, f"pytest_runtest_{when}")
        call: pytest.CallInfo[None] = pytest.CallInfo.from_call(
            lambda: hook(item=item, **arguments), when=when, reraise=pytest.exit.Exception
        )
        at = clock.now()
        self._guard()
        error = _raised(item, call)
        if isinstance(error, Violation):
            at = error.at
        if error is not None and not isinstance(error, (pytest.skip.Exception, unittest.SkipTest)):
            # The traceback takes its time (torch's files are long); the news does not wait for it.
            text = "".join(format_exception_only(type(error), error)).strip()
            self.channel.send(
                messages.Failing(raised=Raised(phase=when, at=at, text=text, reaction=is_reaction(error)))
            )
        report: pytest.TestReport = item.ihook.pytest_runtest_makereport(item=item, call=call)
        self.channel.send(messages.Reported(report=_crossing(item.config, when, report, error, at)))
        return report.passed

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        self._error = _raised(item, call)
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Pass on what a plugin reports while the test runs: subtests, above all. The phases are not logged here."""
        if getpid() == self.pid:
            told = _crossing(self._config, report.when or "call", report, self._error, clock.now())
            self.channel.send(messages.Reported(report=told, part=True))

    def _guard(self) -> None:
        """End a process that the test forked and that came back out of the test: it is no rank."""
        if getpid() != self.pid:
            _exit(70)

    def pytest_warning_recorded(self, warning_message: Any, when: str) -> None:
        if when != "runtest":
            return
        category = warning_message.category
        self.channel.send(
            messages.Warned(
                warning=WarningRecord(
                    message=str(warning_message.message),
                    category=category.__qualname__,
                    module=category.__module__,
                    file=warning_message.filename,
                    line=warning_message.lineno,
                    when=when,
                )
            )
        )


def _raised(item: pytest.Item, call: pytest.CallInfo[Any]) -> BaseException | None:
    """What a phase, or a part of one, has raised; a unittest's method keeps that to itself until it is reported."""
    kept = getattr(item, "_excinfo", None)
    excinfo = kept[0] if kept else call.excinfo
    return excinfo.value if excinfo is not None else None


def _crossing(
    config: Config, when: Any, report: pytest.TestReport, error: BaseException | None, at: float
) -> PhaseReport:
    """A report in the form in which it leaves the rank."""
    violation = error if isinstance(error, Violation) else None
    return PhaseReport(
        phase=when,
        outcome=report.outcome,
        at=at if violation is None else violation.at,
        data=config.hook.pytest_report_to_serializable(config=config, report=report),
        reaction=error is not None and is_reaction(error),
        unexpected_pass=report.failed and error is None,
        verdict=None if violation is None else violation.number,
    )


def give_own_folders(config: pytest.Config, plan: Plan, rank: int) -> None:
    """Give this rank a base of its own for ``tmp_path``; ranks that make one base at once would race."""
    base = Path(plan.own_dirs) / f"rank{rank}"
    base.mkdir(parents=True, exist_ok=True, mode=0o700)
    config._tmp_path_factory._basetemp = base  # type: ignore[attr-defined]


def capture_anew(config: pytest.Config, method: str) -> None:
    """Capture into files of this process: those of a parent would mix what its children write."""
    manager: Any = config.pluginmanager.getplugin("capturemanager")
    if manager is not None:
        manager.stop_global_capturing()
        manager._method = method
        manager.start_global_capturing()
