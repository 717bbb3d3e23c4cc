"""Trainers of this suite, held against the checks by way of one zygote that has imported all of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ddpcheck.conformance.results import Result
from ddpcheck.conformance.situation_runner import Runner, Subject
from ddpcheck.conformance.suite import Suite
from ddpcheck.zygote.client import Launcher

_FILE = """\
from ddpcheck.conformance import adapter_lookup as finding
import {module} as module

def test_module(): ...

for name in {names!r}:
    def test(): ...
    finding.attach(test, getattr(module, name))
    globals()["test_" + name] = test
"""


class Conductor:
    """Has checks run of the trainers of one module, each trained once in each situation and world size."""

    def __init__(self, folder: Path, module: str, names: Sequence[str], timeout: float = 20.0) -> None:
        self._file = folder / "test_trainers.py"
        self._file.write_text(_FILE.format(module=module, names=list(names)))
        (folder / "pytest.ini").write_text("[pytest]\n")
        self._timeout = timeout
        self._runners: dict[str, Runner] = {}
        self.launcher = Launcher(
            options={"plugins": ["no:terminal", "no:cacheprovider", "no:randomly", "no:xdist"]},
            args=["-c", os.fspath(folder / "pytest.ini"), "--rootdir", os.fspath(folder)],
            workerinput={},
            cwd=os.getcwd(),
            show_output=False,
        )

    def runner(self, name: str, timeout: float | None = None) -> Runner:
        """What trains one of them."""
        if name not in self._runners:
            subject = Subject(path=str(self._file), nodeid=f"test_trainers.py::test_{name}", title=name)
            self._runners[name] = Runner(self.launcher, subject, timeout or self._timeout)
        return self._runners[name]

    def result(
        self, name: str, check: str, world_size: int = 2, losses: Sequence[str] = ("samples",), **known: Any
    ) -> Result:
        """What one check says of one of them."""
        suite = Suite([world_size], [check], losses, **known)
        return suite.result(self.runner(name), check, world_size)

    def close(self) -> None:
        self.launcher.stop()
        for runner in self._runners.values():
            runner.close()


@contextmanager
def conducting(folder: Path, module: str, names: Sequence[str], timeout: float = 20.0) -> Iterator[Conductor]:
    """A Conductor, and afterwards nothing of it."""
    conductor = Conductor(folder, module, names, timeout)
    try:
        yield conductor
    finally:
        conductor.close()
