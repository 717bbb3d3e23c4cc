"""The conftest of an inner session: it writes when each test began, was reported and ended, as lines of JSON."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest


def pytest_configure(config: pytest.Config) -> None:
    if not config.pluginmanager.hasplugin("ddpcheck-host"):
        config.pluginmanager.register(Clock())


class Clock:
    """All times are of the machine's monotonic clock."""

    def __init__(self) -> None:
        self.test: dict[str, Any] = {}

    @pytest.hookimpl(tryfirst=True, hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.test = {"test": item.name, "begun": time.monotonic()}
        yield
        self.test["ended"] = time.monotonic()
        with open(os.environ["BENCH_TIMES"], "a") as file:
            file.write(json.dumps(self.test) + "\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.test |= {"reported": time.monotonic(), "outcome": report.outcome, "text": report.longreprtext}
