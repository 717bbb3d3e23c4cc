"""``--until SECONDS``: no test begins after that; the session says at its end in which files tests were left out."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest

KEY = "late_tests"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--until", type=float, metavar="SECONDS", help="begin no test after so many seconds")


def pytest_configure(config: pytest.Config) -> None:
    seconds = config.getoption("--until")
    if seconds is not None:
        config.pluginmanager.register(LateTests(config, seconds), "late-tests")


class LateTests:
    """Leaves out what there is no time for; a worker of pytest-xdist tells the main process."""

    def __init__(self, config: pytest.Config, seconds: float) -> None:
        self._config = config
        self._end = time.monotonic() + seconds
        self.left_out: Counter[str] = Counter()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        if time.monotonic() < self._end:
            return None
        self.left_out[item.nodeid.partition("::")[0]] += 1
        return True

    def pytest_sessionfinish(self) -> None:
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput[KEY] = dict(self.left_out)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.left_out.update(getattr(node, "workeroutput", {}).get(KEY, {}))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.left_out:
            terminalreporter.section("no time was left for")
            for path, number in sorted(self.left_out.items()):
                terminalreporter.line(f"{path}: {number} tests")
