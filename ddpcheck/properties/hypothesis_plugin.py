"""hypothesis' own pytest plugin, around a test whose fixtures are set up elsewhere.

It prepares a session's seeds and reports, refuses fixtures that are not reset
between examples, and gives parameters their own place in the database. It sees
the test through a stand-in: it would set up fixtures in this process to look at
them, and would refuse `ddp` as it refuses every fixture of a function's scope.

PYTEST_DONT_REWRITE (its own assertions are for its authors)
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pluggy
import pytest
from _pytest import hookspec

OURS = ("ddp", "_ddp_world_size")


class StandIn:
    """The test as hypothesis' plugin sees it; what the plugin leaves on it stays here."""

    def __init__(self, item: pytest.Function) -> None:
        self._item = item
        info = item._request._fixturemanager.getfixtureinfo(node=item, func=item.function, cls=None)
        definitions = {name: found for name, found in info.name2fixturedefs.items() if name not in OURS}
        # Only to look at: nothing is set up.
        self._request = SimpleNamespace(
            _fixturemanager=SimpleNamespace(getfixtureinfo=lambda **_: SimpleNamespace(name2fixturedefs=definitions)),
            _get_active_fixturedef=lambda name: definitions[name][-1],
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._item, name)

    def get_closest_marker(self, name: str) -> Any:
        """World sizes are parameters as well: each has failing examples of its own."""
        if name == "parametrize" and getattr(self._item, "callspec", None) is not None:
            return pytest.mark.parametrize.mark
        return self._item.get_closest_marker(name)


class AsHypothesis:
    """Calls the hooks of hypothesis' plugin, where the session has it."""

    def __init__(self, item: pytest.Function) -> None:
        self.item = StandIn(item)
        self.manager = pluggy.PluginManager("pytest")
        self.manager.add_hookspecs(hookspec)
        plugin = item.config.pluginmanager.get_plugin("hypothesispytest")
        if plugin is not None:
            self.manager.register(plugin)

    def call(self, run: Callable[[], None]) -> None:
        """Run a property as the call of a test."""

        class Body:
            @pytest.hookimpl
            def pytest_runtest_call(self) -> None:
                run()

        self._with(Body(), "pytest_runtest_call", item=self.item)

    def report(self, report: pytest.TestReport) -> pytest.TestReport:
        """A report with what hypothesis has to say."""

        class Made:
            @pytest.hookimpl
            def pytest_runtest_makereport(self) -> pytest.TestReport:
                return report

        made: pytest.TestReport = self._with(Made(), "pytest_runtest_makereport", item=self.item, call=None)
        return made

    def _with(self, plugin: object, hook: str, **arguments: Any) -> Any:
        self.manager.register(plugin)
        try:
            return getattr(self.manager.hook, hook)(**arguments)
        finally:
            self.manager.unregister(plugin)
