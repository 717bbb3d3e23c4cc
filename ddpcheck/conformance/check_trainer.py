"""The two ways to hold a trainer against the suite: one call, or one pytest item for each check and world size."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ddpcheck.conformance.progress_line import Progress
from ddpcheck.conformance.results import Results, item_id
from ddpcheck.conformance.situation_runner import Runner, Subject
from ddpcheck.conformance.suite import WORLD_SIZES, Suite
from ddpcheck.ranks import private_folders
from ddpcheck.ranks.session_settings import NO_TERMINAL
from ddpcheck.vocabulary.clock import clock
from ddpcheck.zygote.client import Launcher

if TYPE_CHECKING:
    from ddpcheck.conformance.job import Job

TIMEOUT = 30.0
"""Seconds that one training may take, where nothing else is said."""


class NonConformance(AssertionError):
    """A trainer does not do data-parallel training right; ``results`` has all that was found."""

    def __init__(self, results: Results) -> None:
        super().__init__(str(results))
        self.results = results


NonConformance.__module__ = "ddpcheck"  # its public home


def check_trainer(
    fit: Callable[[Job], object],
    *,
    world_sizes: Sequence[int] = WORLD_SIZES,
    checks: Collection[str] | None = None,
    losses: Collection[str] = ("samples",),
    parallelism: Collection[str] = (),
    expected_failures: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT,
    on_failure: Literal["raise", "return"] = "raise",
    progress: bool | None = None,
) -> Results:
    """Have a trainer carry out the suite's jobs in real ranks, and judge each by what one process would have done.

    ``fit`` is called with a `Job` in every rank, and trains; it has to be a
    function at the top level of a module, since ranks find it there.
    ``checks`` are the names of those to judge alone, or patterns such as
    ``gradient-oracle*``. ``losses``
    are the kinds of loss that the library promises: ``samples`` (a mean over
    samples), ``tokens`` (a mean over tokens, however many each rank has) and
    ``pairs`` (a loss over the whole global batch). ``parallelism`` are those
    by which the library can spread a model, beside plain data parallelism:
    ``fsdp2``, and in four ranks ``hsdp`` and ``ddp-tp``. ``expected_failures`` maps
    names to reasons, and is strict: one that holds, or a name that is none,
    is a failure. ``timeout`` is in seconds, for one training. ``progress``
    shows a line of what is being trained; by default on a terminal.

    Raises `NonConformance` where anything is violated or nothing was checked,
    with a table and the findings as its text, unless ``on_failure`` is
    ``return``; and a ValueError or TypeError, with a sentence, for arguments
    that cannot be.
    """
    suite = Suite(world_sizes, checks, losses, expected_failures, parallelism)
    if on_failure not in ("raise", "return"):
        raise ValueError(f"on_failure is {on_failure!r}: expected 'raise' or 'return'")
    begun = clock.now()
    with contextlib.ExitStack() as undo:
        own = private_folders.Folder()
        undo.callback(own.remove)
        folder = own.path
        subject = _subject_of(fit, Path(folder))
        launcher = Launcher(
            options={
                "plugins": [*NO_TERMINAL, "no:cacheprovider", "no:randomly", "no:xdist"],
                "confcutdir": folder,
                "tbstyle": "short",
            },
            args=["-c", os.fspath(Path(folder) / "pytest.ini"), "--rootdir", folder],
            workerinput={},
            cwd=os.getcwd(),
            show_output=False,
        )
        runner = Runner(launcher, subject, _checked_timeout(timeout))
        undo.callback(runner.close)
        undo.callback(launcher.stop)
        results = []
        with Progress(len(suite.all), progress) as shown:
            runner.on_run = shown.at
            for name, world_size in suite:
                results.append(suite.result(runner, name, world_size))
                shown.done()
    found = Results(subject.title, results, clock.now() - begun)
    if on_failure == "raise" and not found.ok:
        raise NonConformance(found)
    return found


def _checked_timeout(timeout: float) -> float:
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout < float("inf"):
        raise ValueError(f"timeout is {timeout!r}: expected seconds, more than 0")
    return float(timeout)


# --- where ranks find the adapter

_FOUND_AGAIN = '''\
from ddpcheck.conformance import adapter_lookup
from ddpcheck.probes import all_probes

# Once for all ranks that are forked from here; without a file to write to, probes do nothing.
all_probes.patch()

fit = adapter_lookup.find({module!r}, {file!r}, {name!r})


def test_trainer():
    """Stands for the trainer in the ranks."""


adapter_lookup.attach(test_trainer, fit)
'''


def _subject_of(fit: Any, folder: Path) -> Subject:
    """A file from which ranks have the adapter; raises TypeError or ValueError where they cannot."""
    _callable_with_a_job(fit)
    name = getattr(fit, "__qualname__", "")
    module = sys.modules.get(getattr(fit, "__module__", "") or "")
    title = f"{getattr(fit, '__module__', '')}.{name}"
    if not name or "<" in name or module is None or _at(module, name) is not fit:
        raise ValueError(
            f"check_trainer cannot find {fit!r} again in the ranks, which import it by its name: define it by `def` at "
            "the top level of a module. (parametrize_with_checks takes any callable.)"
        )
    file = getattr(module, "__file__", None)
    if module.__name__ == "__main__" and file is None:
        raise ValueError(
            f"check_trainer cannot find {name} in the ranks, since this session has no file: write it into a module, "
            "and import it from there."
        )
    (folder / "pytest.ini").write_text("[pytest]\n")
    path = folder / "test_adapter.py"
    main = module.__name__ == "__main__"
    path.write_text(_FOUND_AGAIN.format(module=module.__name__, file=os.path.abspath(file) if main and file else "",
                                        name=name))  # fmt: skip
    return Subject(path=str(path), nodeid="test_adapter.py::test_trainer", title=title)


def _at(module: Any, name: str) -> Any:
    found = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _callable_with_a_job(fit: Any) -> None:
    if not callable(fit) or isinstance(fit, type):
        raise TypeError(f"fit is {fit!r}: expected a function that takes a job and trains it")
    if inspect.iscoroutinefunction(fit) or inspect.isgeneratorfunction(fit) or inspect.isasyncgenfunction(fit):
        raise TypeError(f"fit is {fit!r}: calling it would run nothing; expected a plain function that trains the job")
    try:
        signature = inspect.signature(fit)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(object())
    except TypeError:
        raise TypeError(f"fit{signature} cannot be called as fit(job): let it take one argument, the job") from None


# --- for pytest


class TrainerCheck:
    """One check of one trainer at one world size; calling it in a test runs it."""

    def __init__(self, suite: Suite, name: str, world_size: int, marked: MarkedTrainer) -> None:
        self._suite, self._marked = suite, marked
        self.check, self.world_size = name, world_size

    def __repr__(self) -> str:
        return f"<{item_id(self.check, self.world_size)}>"

    def __call__(self) -> None:
        """Train what the check needs, and judge it: fails, skips (not checked) or xfails (as expected) this test."""
        __tracebackhide__ = True
        import pytest

        result = self._suite.result(self._marked.runner(), self.check, self.world_size)
        match result.status:
            case "violated":
                pytest.fail(f"{result.title}\n{result.text}", pytrace=False)
            case "expected":
                pytest.xfail(result.reason)
            case "not-checked":
                pytest.skip(f"not checked: {result.reason}")


class MarkedTrainer:
    """A trainer whose checks are the items of a test."""

    def __init__(self, fit: Callable[[Job], object], timeout: float) -> None:
        self.fit, self.timeout = fit, timeout
        self._runner: Runner | None = None
        self._home: tuple[Launcher, Subject] | None = None

    def at_home(self, launcher: Launcher, path: str, nodeid: str) -> None:
        """Told by the pytest plugin where the ranks find the test, and who starts them."""
        self._home = launcher, Subject(path=path, nodeid=nodeid, title=nodeid)

    def runner(self) -> Runner:
        """What trains it in this session."""
        if self._runner is None:
            if self._home is None:
                raise RuntimeError(
                    "a check of parametrize_with_checks was called outside of its test: let the test take `check` and "
                    "call it, or use ddpcheck.check_trainer"
                )
            self._runner = Runner(*self._home, self.timeout)
        return self._runner

    def close(self) -> None:
        """Remove what its trainings have left on disk."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None


def parametrize_with_checks(
    fit: Callable[[Job], object],
    *,
    world_sizes: Sequence[int] = WORLD_SIZES,
    checks: Collection[str] | None = None,
    losses: Collection[str] = ("samples",),
    parallelism: Collection[str] = (),
    expected_failures: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT,
) -> Callable[[Any], Any]:
    """Make a pytest item of each check and world size of a trainer.

    It decorates a test that takes ``check`` and calls it:

        @ddpcheck.parametrize_with_checks(fit)
        def test_trainer(check):
            check()

    The arguments are those of `check_trainer`; ``fit`` may be any callable. An
    item fails where its check is violated, is skipped where it was not
    checked, and xfails where ``expected_failures`` says so.
    """
    import pytest

    from ddpcheck.conformance.adapter_lookup import attach

    _callable_with_a_job(fit)
    suite = Suite(world_sizes, checks, losses, expected_failures, parallelism)
    marked = MarkedTrainer(fit, _checked_timeout(timeout))
    parameters = [pytest.param(TrainerCheck(suite, name, size, marked), id=item_id(name, size)) for name, size in suite]

    def decorate(test: Any) -> Any:
        if "check" not in inspect.signature(test).parameters:
            raise TypeError(
                f"{test.__qualname__} has to take `check`, and call it: def {test.__name__}(check): check()"
            )
        attach(test, fit)
        test._ddpcheck_trainer = marked
        return pytest.mark.parametrize("check", parameters)(test)

    return decorate
