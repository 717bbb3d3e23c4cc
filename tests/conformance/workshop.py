"""Every trainer of a file in ranks of one zygote: what each check says of it."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ddpcheck.conformance.adapter_lookup import attach
from ddpcheck.conformance.results import Result
from ddpcheck.conformance.situation_runner import Runner, Subject
from ddpcheck.conformance.suite import WORLD_SIZES, Suite
from ddpcheck.conformance.suite_checks import BY_CHECK
from ddpcheck.judging.world import Judged
from ddpcheck.trainings.situations import LOSS_KINDS, Situation
from ddpcheck.trainings.suite_row import ANY
from ddpcheck.trainings.trained_situation import Trained
from ddpcheck.vocabulary.model import Finding
from ddpcheck.zygote.client import Launcher
from fixtures.trainers import tensor_parallel
from fixtures.trainers.faulty.registry import FAULTS
from fixtures.trainers.of_rules import OF_RULES
from fixtures.trainers.plain import Trainer
from fixtures.trainers.unusual import UNUSUAL, AutocastWithin
from tests.programs import oracle_programs
from tests.recordings.trainings import Kept

_CARRIERS = """\
from ddpcheck.probes import all_probes as watching

watching.patch()

from tests.conformance.workshop import carriers

globals().update(carriers())
"""

PATIENCE, WITH_WHAT_HANGS = 30.0, 5.0
"""Seconds for one training; and for one that hangs however long it is waited for."""

HANGING = {fault.trainer.__name__ for fault in FAULTS if fault.hangs} | {"hangs", "waits_after_an_exception"}


def trainers() -> dict[str, Callable[[Any], None]]:
    """The functions that train a job, by name: a twin that serves several rows is one."""
    found: dict[str, Callable[[Any], None]] = {}
    for fault in FAULTS:
        found[fault.trainer.__name__] = fault.fit
        found[fault.twin.__name__] = fault.fit_right
    for trainer in (*UNUSUAL, AutocastWithin):
        found[trainer.__name__] = functools.partial(_fit, trainer)
    found |= {one.fit.__name__: one.fit for one in OF_RULES}
    found |= {"tensor_parallel": tensor_parallel.fit, "dealt_to_all": tensor_parallel.fit_dealt_to_all}
    return {**found, **oracle_programs.fits()}


def _fit(trainer: type[Trainer], job: Any) -> None:
    trainer(job).run()


def carriers() -> dict[str, Callable[[], None]]:
    """Test functions that ranks find the trainers by."""
    return {f"test_{name}": _carrier(fit) for name, fit in trainers().items()}


def _carrier(fit: Callable[[Any], None]) -> Callable[[], None]:
    def test_trainer() -> None:
        """Stands for the trainer in the ranks."""

    attach(test_trainer, fit)
    return test_trainer


class Impatient(Kept):
    """For trainers that hang: where they go on after a kill, or where nothing else is trained."""

    def _train(self, situation: Situation, world_size: int) -> Trained:
        self._timeout = PATIENCE if situation.save_every and not situation.resumed_from else WITH_WHAT_HANGS
        return super()._train(situation, world_size)


class Workshop:
    """Trains faulty trainers and their twins, each training once; without a folder it judges what was trained."""

    def __init__(self, folder: Path | None) -> None:
        self._file = Path("test_trainers.py") if folder is None else folder / "test_trainers.py"
        self._launcher = self._launched(folder) if folder is not None else None
        self._runners: dict[str, Runner] = {}
        self._suite = Suite(WORLD_SIZES, losses=LOSS_KINDS)

    def _launched(self, folder: Path) -> Launcher:
        (folder / "pytest.ini").write_text("[pytest]\n")
        self._file.write_text(_CARRIERS)
        return Launcher(
            options={
                "plugins": ["no:terminal", "no:cacheprovider", "no:randomly", "no:xdist"],
                "confcutdir": folder,
                "tbstyle": "short",
            },
            args=["-c", os.fspath(folder / "pytest.ini"), "--rootdir", os.fspath(folder)],
            workerinput={},
            cwd=os.getcwd(),
            show_output=False,
        )

    def close(self) -> None:
        """End the zygote."""
        if self._launcher is not None:
            self._launcher.stop()
        for runner in self._runners.values():
            runner.close()

    def runner(self, trainer: type | str) -> Runner:
        """What trains this one."""
        name = trainer if isinstance(trainer, str) else trainer.__name__
        if name not in self._runners:
            subject = Subject(path=str(self._file), nodeid=f"test_trainers.py::test_{name}", title=name)
            kind = Impatient if name in HANGING else Kept
            self._runners[name] = kind(self._launcher, subject, PATIENCE)
        return self._runners[name]

    def result(self, trainer: type, check: str, world_size: int) -> Result:
        """What the suite says of a trainer."""
        return self._suite.result(self.runner(trainer), check, world_size)

    def judged(
        self, trainer: type | str, check: str, world_size: int, among: Sequence[str] = ()
    ) -> tuple[Finding, ...]:
        """The errors that a check finds, without trying the adapter first; of a check of all trainings, in some."""
        name = trainer if isinstance(trainer, str) else trainer.__name__
        judged = self.judgement(name, check, world_size, among)
        assert judged.checked, f"{check} had nothing to judge: {judged.skipped_because}"
        return tuple(finding for finding in judged.findings if finding.severity == "error")

    def judgement(self, trainer: str, check: str, world_size: int, among: Sequence[str] = ()) -> Judged:
        """All that it says."""
        row, runner = BY_CHECK[check], self.runner(trainer)
        names = row.situations if row.situations != (ANY,) else among
        assert names, f"{check} looks at all trainings: say among which it is to look"
        sizes = row.trained_in(world_size) if row.situations != (ANY,) else [world_size] * len(names)
        trained = [
            runner.training(name, size, row.oracle and not place)
            for place, (name, size) in enumerate(zip(names, sizes, strict=True))
        ]
        if trained[0].failed and not row.also_failed:
            return Judged(check=row.id, checked=1, findings=(trained[0].failure(),)).named(row.id)
        return row.judge(trained).named(row.id)
