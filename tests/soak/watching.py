"""The conftest of the soak run's project: it tells, as lines of JSON, what the session does while it does it.

``{"report": id, "outcome": …}``      a phase that decides the outcome of a test has ended
``{"ended": id, "seconds": …, "left": […]}``  a test has ended, and which processes it left below pytest
``{"warning": text, "of": id}``       pytest was told a warning
``{"files": …, "zygote": {…}}``       open files of pytest's process, and what the zygote holds, now and then
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

EVENTS = "SOAK_EVENTS"
PATIENCE = 0.2
"""Seconds in which a process that was killed may still be on its way out."""
EVERY = 20
"""Tests between two looks at what pytest and the zygote hold."""

pytest.register_assert_rewrite("bodies_common", "bodies_passing", "bodies_failing")


def pytest_configure(config: pytest.Config) -> None:
    if not config.pluginmanager.hasplugin("ddpcheck-host"):
        config.pluginmanager.register(Watch(in_charge=not hasattr(config, "workerinput")))


class Watch:
    """Writes the lines; in the main process what all of it knows, in every process what it ran itself."""

    def __init__(self, in_charge: bool) -> None:
        self.in_charge = in_charge
        self.run = 0

    def say(self, **event: Any) -> None:
        line = json.dumps(event) + "\n"
        handle = os.open(os.environ[EVENTS], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(handle, line.encode())
        os.close(handle)

    @pytest.hookimpl(tryfirst=True, hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        begun = time.monotonic()
        yield
        seconds = time.monotonic() - begun
        self.say(ended=item.nodeid, seconds=seconds, left=left_below())
        self.run += 1
        if self.run % EVERY == 1:
            self.say(**holdings())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self.in_charge and (report.when == "call" or report.outcome != "passed"):
            self.say(report=report.nodeid, outcome=report.outcome)

    def pytest_warning_recorded(self, warning_message: Any, nodeid: str) -> None:
        if self.in_charge:
            self.say(warning=str(warning_message.message), of=nodeid)


def _zygotes(of: psutil.Process, below: int = 1) -> list[psutil.Process]:
    """The zygotes of a process, each of which has a keeper in between."""
    found = [child for child in of.children() if any("ddpcheck.zygote.keeper" in word for word in child.cmdline())]
    return [zygote for keeper in found for zygote in _zygotes(keeper, 0)] if below else found


def left_below() -> list[str]:
    """The processes below this one that belong to no test and are not the zygote itself."""
    me = psutil.Process()
    end = time.monotonic() + PATIENCE
    while True:
        zygotes = {pid for zygote in _zygotes(me) for pid in (zygote.pid, zygote.ppid())}
        left = [p for p in me.children(recursive=True) if p.pid not in zygotes]
        if not left or time.monotonic() > end:
            return [_described(p) for p in left]
        time.sleep(0.01)


def _described(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {process.status()} {' '.join(process.cmdline())[:200]}"
    except psutil.Error:
        return f"{process.pid}"


def holdings() -> dict[str, Any]:
    """What could grow with the number of tests, in this process and in its zygote."""
    me = psutil.Process()
    found: dict[str, Any] = {"files": me.num_fds(), "rss": me.memory_info().rss}
    for zygote in _zygotes(me):
        found["zygote"] = {
            "files": zygote.num_fds(),
            "threads": zygote.num_threads(),
            "rss": zygote.memory_info().rss,
        }
    return found
