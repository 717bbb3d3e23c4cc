"""A pytest plugin: tells what the session of the self-tests is at, line by line, while it is at it."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

VARIABLE = "DDPCHECK_RELAY"
"""In the environment: the descriptor to write to."""


def pytest_configure(config: pytest.Config) -> None:
    fd = os.environ.get(VARIABLE)
    if fd is not None and not hasattr(config, "workerinput"):  # the process that ranks come from has it, too
        config.pluginmanager.register(Relay(int(fd)), "ddpcheck-relay")


class Relay:
    def __init__(self, fd: int) -> None:
        self.fd = fd

    def tell(self, **said: Any) -> None:
        os.write(self.fd, (json.dumps(said) + "\n").encode())

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.tell(event="collected")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.tell(event="started", test=nodeid.rpartition("::")[2])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        skipped = report.longrepr[2] if isinstance(report.longrepr, tuple) else None
        self.tell(
            event="phase",
            test=report.nodeid.rpartition("::")[2],
            phase=report.when,
            outcome=report.outcome,
            text=(skipped or report.longreprtext) if report.outcome != "passed" else "",
            printed="\n".join(content for _, content in report.sections) if report.failed else "",
            seconds=report.duration,
        )

    def pytest_warning_recorded(self, warning_message: Any) -> None:
        self.tell(event="warning", text=str(warning_message.message))
