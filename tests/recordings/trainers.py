"""The trainers that the conformance suite is held against, and what a check says of each."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from ddpcheck.judging.world import Judged
from fixtures.trainers.faulty.registry import FAULTS
from fixtures.trainers.of_rules import OF_RULES
from fixtures.trainers.plain import Trainer
from fixtures.trainers.unusual import UNUSUAL, AutocastWithin
from tests.conformance.workshop import Workshop
from tests.programs import oracle_programs
from tests.recordings import store


class Tried(NamedTuple):
    """One check of one trainer."""

    trainer: str
    check: str
    """A row of the suite."""
    world_size: int = 2
    among: tuple[str, ...] = ()
    """Where the row looks at all trainings: those that are trained."""

    @property
    def name(self) -> str:
        """What the matrix calls it."""
        return f"trainers/{self.trainer} {self.check} {self.world_size}"


def tried() -> list[Tried]:
    """All of them, each once, in a fixed order."""
    return list(dict.fromkeys(_tried()))


def _tried() -> Iterator[Tried]:
    for fault in FAULTS:
        for check in fault.checks:
            for trainer in (fault.trainer, fault.twin):
                yield Tried(trainer.__name__, check, fault.world_size, fault.among)
    for one in OF_RULES:
        for name in (one.fit.__name__, Trainer.__name__):
            yield Tried(name, one.row, among=one.among)
    for trainer in UNUSUAL:
        for check in ("gradient-oracle:clipping", "resume-equivalence"):
            yield Tried(trainer.__name__, check)
    yield Tried(AutocastWithin.__name__, "gradient-oracle:bfloat16")
    for name in ("dealt_to_all", "tensor_parallel"):
        yield Tried(name, "shard-partition:ddp-tp", 4)
    for name in oracle_programs.fits():
        yield Tried(name, name.rpartition("_")[0].replace("_", "-"))


def record(runs: Sequence[Tried], workers: int, anew: bool = False) -> list[str]:
    """Train what was not trained yet, or with ``anew`` all of it; what could not be, as sentences."""
    trainers = sorted({one.trainer for one in runs})
    if anew:
        for name in trainers:
            shutil.rmtree(store.folder(f"trainers/{name}"), ignore_errors=True)
    shares = [trainers[number::workers] for number in range(workers)]
    with ThreadPoolExecutor(workers) as pool:
        return [text for told in pool.map(lambda share: _trained(runs, share), shares) for text in told]


def _trained(runs: Sequence[Tried], trainers: Sequence[str]) -> list[str]:
    failures = []
    with tempfile.TemporaryDirectory(prefix="ddpcheck-workshop-") as folder:
        workshop = Workshop(Path(folder))
        try:
            for one in runs:
                if one.trainer in trainers:
                    try:
                        judgement(workshop, one)
                    except Exception as error:
                        failures.append(f"{one.name}: {type(error).__name__}: {error}")
        finally:
            workshop.close()
    return failures


def judgement(workshop: Workshop, one: Tried) -> Judged:
    """What the check says."""
    return workshop.judgement(one.trainer, one.check, one.world_size, one.among)
