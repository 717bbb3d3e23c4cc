"""Tables of options and marks, from the parsers themselves, in the place of comments: ``<!-- table: run -->``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from sphinx.application import Sphinx

from ddpcheck import pytest_plugin
from ddpcheck.checks.registry import checks, explanation
from ddpcheck.doctor import arguments as doctor
from ddpcheck.run import own_options

PLACE = re.compile(r"^<!-- table: ([\w -]+) -->$", re.MULTILINE)


def of_run() -> str:
    """The options of ``ddpcheck run`` that are not torchrun's, group by group."""
    parser = argparse.ArgumentParser(add_help=False)
    own_options.add(parser)
    parts = []
    for group in parser._action_groups:
        rows = [_row(parser, action) for action in group._group_actions if action.help != argparse.SUPPRESS]
        if rows:
            title = (group.title or "").removesuffix(":")
            parts.append(f"### {title[:1].upper()}{title[1:]}\n\n{_table(('option', 'meaning'), rows)}")
    return "\n\n".join(parts)


def of_doctor() -> str:
    """The options of ``ddpcheck doctor``."""
    parser = doctor._parser()
    return _table(("option", "meaning"), [_row(parser, action) for action in parser._actions if action.dest != "help"])


def _row(parser: argparse.ArgumentParser, action: argparse.Action) -> tuple[str, str]:
    names = action.option_strings or [str(action.metavar or action.dest)]
    value = f" {action.metavar}" if action.option_strings and action.metavar else ""
    help_text = parser._get_formatter()._expand_help(action) if action.help else ""
    return ", ".join(f"`{name}{value}`" for name in names), help_text


class _Plugin:
    """What the pytest plugin adds, taken down."""

    def __init__(self) -> None:
        self.options: dict[str, tuple[str, str]] = {}
        self.ini: dict[str, str] = {}
        self.marks: list[tuple[str, str]] = []
        pytest_plugin.pytest_addoption(self)  # type: ignore[arg-type]
        pytest_plugin.pytest_configure(self)  # type: ignore[arg-type]

    def getgroup(self, name: str, description: str = "") -> _Plugin:
        return self

    def addoption(self, name: str, *, metavar: str = "", help: str = "", **_: Any) -> None:
        self.options[name] = (f"`{name} {metavar}`".replace(" `", "`"), help)

    def addini(self, name: str, help: str, **_: Any) -> None:
        self.ini[name] = help

    # What the plugin asks of a session's configuration: nothing was set, and there is no terminal to report to.

    workerinput: ClassVar[dict[str, Any]] = {}

    def addinivalue_line(self, name: str, line: str) -> None:
        mark, _, meaning = line.partition("): ")
        self.marks.append((f"`{mark})`", meaning))

    def getoption(self, name: str, *_: Any) -> None:
        return None

    def getini(self, name: str) -> None:
        return None


def of_marks() -> str:
    """The marks, with their keywords and defaults."""
    return _table(("mark", "meaning"), _Plugin().marks)


def of_pytest() -> str:
    """The plugin's options, each with its twin of the ini file."""
    plugin = _Plugin()
    rows = []
    for name, (shown, help_text) in plugin.options.items():
        twin = name.removeprefix("--").replace("-", "_")
        rows.append((shown, f"`{twin}`" if twin in plugin.ini else "", help_text))
    return _table(("option", "ini file", "meaning"), rows)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)


def of_blind_spots() -> str:
    """What each check does not see, from its explanation, with the checks' names as links to their pages."""
    texts = (
        f"### [{check}](checks/{check}.md)\n\n{explanation(check).partition('## What it does not see')[2].strip()}"
        for check in checks()
    )
    return "\n\n".join(texts)


TABLES: dict[str, Callable[[], str]] = {
    "run": of_run,
    "doctor": of_doctor,
    "pytest": of_pytest,
    "marks": of_marks,
    "blind spots": of_blind_spots,
}


def _filled(app: Sphinx, name: str, source: list[str]) -> None:
    source[0] = PLACE.sub(lambda place: TABLES[place[1]](), source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("source-read", _filled)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
