"""The pytest plugin: marks, options and fixture, and the way of a marked test into its ranks and back.

Importing this costs a session nothing that it does not use: the runtime is
imported with the first ``ddp`` test, and torch never, in this process.
"""

from __future__ import annotations

import contextlib
import inspect
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from ddpcheck.marks import ddp_mark
from ddpcheck.marks.gpu_mark import gpu_mark_of, has_ranks
from ddpcheck.report.pytest_session import SessionReport

if TYPE_CHECKING:
    from ddpcheck.plugin.ddp_item_run import Session
    from ddpcheck.ranks.current_rank import CurrentRank

T = TypeVar("T")

WORLD_SIZE = "_ddp_world_size"
_AWAITING = ("asyncio", "anyio", "trio")
"""Plugins that run async tests."""
_HELP = {
    "ddp_timeout": "seconds that the ranks of a ddp test have, where its mark names none (default: 60)",
    "ddp_require_gpus": "fail, instead of skipping, what needs more GPUs than there are, if there are fewer than N",
    "ddp_simulate_gpus": "run what needs GPUs on N simulated devices, with gloo in the place of NCCL: a rehearsal",
    "ddp_report": "write what happened in the ranks, and which invariants were checked, to this JSON file",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ddpcheck", "distributed tests (ddpcheck)")
    group.addoption("--ddp-timeout", type=float, default=None, metavar="SECONDS", help=_HELP["ddp_timeout"])
    group.addoption("--ddp-require-gpus", type=int, default=None, metavar="N", help=_HELP["ddp_require_gpus"])
    group.addoption("--ddp-simulate-gpus", type=int, default=None, metavar="N", help=_HELP["ddp_simulate_gpus"])
    group.addoption("--ddp-report", default=None, metavar="FILE.json", help=_HELP["ddp_report"])
    for name, text in _HELP.items():
        parser.addini(name, text, default=None)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "ddp(world_size=2, backend='gloo', device='cpu', timeout=60.0): run the test in that many rank processes, "
        "with a process group; a list of world sizes makes an item for each; with @given, all ranks run each example, "
        "and the timeout is each example's",
    )
    config.addinivalue_line(
        "markers",
        "gpu(count=None, real=''): needs CUDA devices, so many of them, or one for each rank; `pytest -m gpu` runs "
        "these alone; real='why' keeps it off simulated ones",
    )
    for name, kind in (("ddp_timeout", float), ("ddp_require_gpus", int), ("ddp_simulate_gpus", int)):
        value = setting(config, name, kind)
        if value is not None and not 0 < value < float("inf"):
            raise pytest.UsageError(f"--{name.replace('_', '-')} {value:g}: expected a number above 0")
    if setting(config, "ddp_simulate_gpus", int) and setting(config, "ddp_require_gpus", int):
        raise pytest.UsageError("--ddp-require-gpus with --ddp-simulate-gpus: simulated devices are no GPUs")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(SessionReport(config), "ddpcheck-report")


def pytest_unconfigure(config: pytest.Config) -> None:
    session = config.stash.get(_SESSION, None)
    if session is not None:
        session.stop()


_SESSION: pytest.StashKey[Session] = pytest.StashKey()


def _session(config: pytest.Config) -> Session:
    """The distributed side of this pytest session, made when the first test needs it."""
    if _SESSION not in config.stash:
        from ddpcheck.plugin.ddp_item_run import Session

        config.stash[_SESSION] = Session(
            config,
            setting(config, "ddp_timeout", float),
            setting(config, "ddp_require_gpus", int),
            setting(config, "ddp_simulate_gpus", int),
        )
    return config.stash[_SESSION]


def _in_host(config: pytest.Config) -> bool:
    """Whether this session collects for ranks, and is not the user's."""
    return config.pluginmanager.hasplugin("ddpcheck-host")


# --- collecting


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> None:
    """Start the zygote as soon as a file with ddp tests is seen: it imports torch while pytest collects.

    Which of the files it is to collect is known later: pytest looks at all files of a folder.
    """
    config = parent.config
    if _in_host(config) or config.option.collectonly:
        return
    with contextlib.suppress(OSError):  # pytest's own import of the file says why
        if b"mark.ddp" in module_path.read_bytes():
            _session(config).start()


def read_mark(node: pytest.Item) -> ddp_mark.Mark | None:
    """The valid mark of a test, or None; raises BadMark."""
    found = [(mark.args, dict(mark.kwargs)) for mark in node.iter_markers("ddp")]
    return ddp_mark.read(found) if found else None


def _refuse_coroutines(config: pytest.Config, function: Any) -> None:
    """Raise BadMark for a test that nothing in the ranks would wait for."""
    awaited = inspect.iscoroutinefunction(function) and any(map(config.pluginmanager.hasplugin, _AWAITING))
    if not awaited and (inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)):
        raise ddp_mark.BadMark(
            "@pytest.mark.ddp cannot run an async test without a plugin that does, such as pytest-asyncio: install "
            "one, or make it a plain function, and call asyncio.run in it."
        )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    try:
        mark = read_mark(metafunc.definition)
        if mark is not None:
            _refuse_coroutines(metafunc.config, metafunc.function)
    except ddp_mark.BadMark as error:
        pytest.fail(f"{metafunc.definition.nodeid}: {error}", pytrace=False)
    if mark is not None and mark.listed:
        metafunc.fixturenames.append(WORLD_SIZE)
        ids = [f"{n}rank" if n == 1 else f"{n}ranks" for n in mark.world_sizes]
        metafunc.parametrize(WORLD_SIZE, mark.world_sizes, ids=ids, indirect=True)


def _check_items_mark(item: pytest.Item) -> ddp_mark.Mark | None:
    """The valid mark of an item; raises BadMark also where it names a list by which the item was not multiplied."""
    mark = read_mark(item)
    if mark is None or not mark.listed or _params(item).get(WORLD_SIZE) in mark.world_sizes:
        return mark
    if isinstance(getattr(item, "cls", None), type) and issubclass(item.cls, unittest.TestCase):  # type: ignore[attr-defined]
        raise ddp_mark.BadMark(
            "@pytest.mark.ddp(world_size=[…]) cannot multiply a method of unittest.TestCase: name one world "
            "size, or write a plain class."
        )
    raise ddp_mark.BadMark(
        "@pytest.mark.ddp(world_size=[…]) cannot multiply a test that has been collected already: name one world size "
        "where a hook adds the mark, or put the mark on the test, its class or its module."
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if _in_host(config):
        return
    for item in items:
        try:  # tests of unittest's classes pass by pytest_generate_tests
            mark = _check_items_mark(item)
            if item.get_closest_marker("gpu") is not None:
                gpu_mark_of(item)
        except ddp_mark.BadMark as error:
            raise pytest.UsageError(f"{item.nodeid}: {error}") from None
        if mark is not None and mark.device == "cuda" and item.get_closest_marker("gpu") is None:
            item.add_marker("gpu")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Have the files whose ddp tests will run collected for the ranks, too."""
    config = session.config
    if _in_host(config) or config.option.collectonly:
        return
    for item in session.items:
        try:  # once more: a conftest file's hook may have added a mark after ours had looked
            _check_items_mark(item)
        except ddp_mark.BadMark as error:
            raise pytest.UsageError(f"{item.nodeid}: {error}") from None
    paths = dict.fromkeys(item.path for item in session.items if has_ranks(item))
    for path in paths:
        _session(config).prepare(path)
    if paths:
        config.pluginmanager.register(RunsInRanks())  # without a name, by which it could be left out
    for item in session.items:
        trainer = getattr(getattr(item, "obj", None), "_ddpcheck_trainer", None)
        if trainer is not None:
            session_of_ranks = _session(config)
            trainer.at_home(session_of_ranks.launcher, str(item.path), item.nodeid)
            session_of_ranks.on_stop.append(trainer.close)
            session_of_ranks.prepare(item.path)
    try:
        alone = [mark for item in session.items if not has_ranks(item) and (mark := gpu_mark_of(item)) is not None]
    except ddp_mark.BadMark:  # it has been told, and the session ends
        return
    if alone:
        from ddpcheck.gpus.tests_without_ranks import GpusOfThisProcess

        wanted = {mark.number or 1 for mark in alone}
        config.pluginmanager.register(GpusOfThisProcess(_session(config), wanted), "ddpcheck-gpus")


def _params(item: pytest.Item) -> dict[str, Any]:
    callspec = getattr(item, "callspec", None)
    return dict(callspec.params) if callspec is not None else {}


# --- running


class RunsInRanks:
    """The plugin that has ranks run the items with a mark, whatever other plugins have their own way of running items.

    It is registered once the items are known: of plugins that all want to be first, the last to come is.
    """

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        mark = read_mark(item)
        if mark is None:
            return None
        world_size = _params(item).get(WORLD_SIZE, mark.world_sizes[0])
        _session(item.config).run_item(item, nextitem, _within_timeout(item, mark), world_size)
        return True


_TIMEOUT: pytest.StashKey[float] = pytest.StashKey()
"""What pytest-timeout gives an item."""


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    """Have ranks keep to the deadline that pytest-timeout names, in the place of its own timers.

    These end the test's process, which is no rank's, or the session's.
    """
    if not _in_host(item.config):
        if not has_ranks(item):
            return None
        item.stash[_TIMEOUT] = settings.timeout
    return True


def _within_timeout(item: pytest.Item, mark: ddp_mark.Mark) -> ddp_mark.Mark:
    """The mark with pytest-timeout's seconds, where they are fewer; a mark's own outrank those for all tests."""
    seconds = item.stash.get(_TIMEOUT, None)
    if seconds is None or (mark.timeout is not None and item.get_closest_marker("timeout") is None):
        return mark
    own = _session(item.config).timeout if mark.timeout is None else mark.timeout
    return mark._replace(timeout=min(own, seconds))


def setting(config: pytest.Config, name: str, kind: Callable[[str], T]) -> T | None:
    """The option of this name, or else the value in the ini file, or else None."""
    value = config.getoption(name)
    if value is not None:
        return value  # type: ignore[no-any-return]
    text = config.getini(name)
    if not text:
        return None
    try:
        return kind(str(text))
    except ValueError:
        raise pytest.UsageError(f"{name} = {text} in the ini file: expected a number") from None


@pytest.fixture
def ddp(request: pytest.FixtureRequest) -> CurrentRank:
    """The rank that runs this test: rank, world_size, device, backend, tmp_path and wrap()."""
    from ddpcheck.ranks.current_rank import OutsideRank, current

    try:
        return current("the fixture `ddp`")
    except OutsideRank as error:
        pytest.fail(f"{request.node.nodeid}: {error}", pytrace=False)


@pytest.fixture(name=WORLD_SIZE)
def _world_size(request: pytest.FixtureRequest) -> Any:
    return request.param
