"""Fixtures for the whole suite."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.command.forks import Forks, forking
from tests.inner import InnerProject

if TYPE_CHECKING:
    from tests.recordings.judging import Replayed

pytest_plugins = ["tests.claims.plugin", "tests.late_tests"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the tests with the mark `long`, too")
    parser.addoption("--long-alone", action="store_true", help="run what a session without --long leaves out")


def pytest_configure(config: pytest.Config) -> None:
    config.option.long |= config.option.long_alone
    config.addinivalue_line("markers", "long: a further case, in processes that each import torch; with --long alone")
    config.addinivalue_line("markers", "few(n): n of its cases run without --long, in each order other ones")
    if folder := os.environ.get("TESTS_ASSERTIONS"):
        from tests.recordings import assertions

        assertions.keep(Path(folder))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes long, unless it is asked for, or is the only thing that is."""
    alone = config.getoption("--long-alone", default=False)
    if (config.getoption("--long", default=True) and not alone) or "::" in " ".join(config.args):
        return
    seen: Counter[str] = Counter()
    short, long = [], []
    for item in items:
        few = item.get_closest_marker("few")
        is_long = item.get_closest_marker("long") is not None
        if few is not None and not is_long:
            function = item.nodeid.partition("[")[0]
            seen[function] += 1
            is_long = seen[function] > few.args[0]
        (long if is_long else short).append(item)
    if alone:
        long, short = short, long
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = short


@pytest.fixture(scope="session")
def forks(request: pytest.FixtureRequest) -> Iterator[Forks | None]:
    """For commands that need no interpreters of their own: see `Forks`; None, and so in interpreters, with --long."""
    if request.config.getoption("--long"):
        yield None
        return
    with forking() as forked:
        yield forked


@pytest.fixture
def project(tmp_path: Path) -> InnerProject:
    """A folder of tests that are run by a pytest session of their own."""
    return InnerProject(tmp_path / "project")


@pytest.fixture(scope="session")
def recorded() -> Iterator[Callable[[str], Replayed]]:
    """What the recording of a program shows, by its name; the program is run once, where nobody has recorded it yet.

    A test of a program that this torch cannot import is skipped.
    """
    from tests.recordings.catalogue import everything
    from tests.recordings.judging import Replayed
    from tests.recordings.recorder import recording
    from tests.torch_names import skip_without

    with recording() as recorder:

        def replayed(name: str) -> Replayed:
            program = everything()[name]
            skip_without(program.source)
            return Replayed(recorder.recording(program))

        yield replayed
