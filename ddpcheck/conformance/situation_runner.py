"""Has a situation carried out in ranks, replayed by the oracle and judged as a script's run; each once."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from ddpcheck.conformance.rank_instructions import RESULT, Order, Request
from ddpcheck.conformance.results import item_id
from ddpcheck.evidence.oracle_comparison import Comparison
from ddpcheck.judging.evidence_folder import Folder
from ddpcheck.judging.membership import worlds
from ddpcheck.judging.world import Judged
from ddpcheck.outcomes.test_outcome import Outcome, decide
from ddpcheck.ranks.private_folders import Folder as PrivateFolder
from ddpcheck.trainings.situations import BY_NAME, Situation
from ddpcheck.trainings.steps_with_micro_batches import traces_of
from ddpcheck.trainings.trained_situation import Trained
from ddpcheck.verdict.judges import judge_world
from ddpcheck.vocabulary.model import Gpu, Plan, RunRecord, Task
from ddpcheck.vocabulary.own_code import PACKAGE
from ddpcheck.zygote.client import InternalError, Launcher

FIRST_SALT, LATER_SALT = 1, 2
"""Unseeded random streams begin alike in trainings that are compared, and otherwise in one that goes on."""

REPLAY_PATIENCE = 120.0

LONGEST = 40
"""Lines of a traceback that are shown as they are."""

FAILURE_PATIENCE = 10.0
"""Seconds for a training in which a rank fails: it is over within one, or else somebody waits for that rank."""

MOST_HANGS = 3
"""Trainings that may hang until no further one is tried: each of them takes all the time that it may."""

_OWN = f'File "{PACKAGE}'


class TooManyHangs(Exception):
    """No further training is tried; the text says why, as a clause."""


class Subject(msgspec.Struct, frozen=True):
    """Where ranks find the adapter: a test whose function carries it."""

    path: str
    nodeid: str
    title: str
    """What it is called in messages."""


class Runner:
    """Trains one adapter in the suite's situations, and keeps what came of it."""

    def __init__(self, launcher: Launcher, subject: Subject, timeout: float) -> None:
        self._launcher, self._subject, self._timeout = launcher, subject, timeout
        self._done: dict[tuple[str, int], Trained] = {}
        self._hung: list[str] = []
        self._own: PrivateFolder | None = None
        self._base: Path | None = None
        self.on_run: Callable[[str], None] = lambda text: None
        """Called with what is run next, in words."""

    def close(self) -> None:
        """Remove what the trainings have left on disk."""
        if self._own is not None:
            self._own.remove()
            self._own = self._base = None

    def training(self, name: str, world_size: int, oracle: bool = False) -> Trained:
        """What came of a situation in so many ranks; it is trained the first time that it is asked for.

        With ``oracle`` it is held against one process, too, where it came to its end.
        """
        if (name, world_size) not in self._done:
            if len(self._hung) >= MOST_HANGS:
                raise TooManyHangs(f"{', '.join(self._hung)} hung: fix these first, no further training was tried")
            self._done[name, world_size] = self._train(BY_NAME[name].in_ranks(world_size), world_size)
            if self._done[name, world_size].hung:
                self._hung.append(f"the training {item_id(name, world_size)}")
        trained = self._done[name, world_size]
        if oracle and trained.comparison is None and not trained.failed and all(t.returned for t in trained.traces):
            trained.comparison = self._replayed(trained.situation, world_size)
        return trained

    # --- one training

    def _train(self, situation: Situation, world_size: int) -> Trained:
        if self._base is None:
            self._own = PrivateFolder()
            self._base = Path(self._own.path)
        folder = self._base / f"{situation.name}-{world_size}"
        checkpoints = folder / "checkpoints"
        if situation.resumed_from:
            saved_in = situation.saved_in(world_size)
            self.training(situation.resumed_from, saved_in)
            left = self._base / f"{situation.resumed_from}-{saved_in}" / "checkpoints"
            shutil.copytree(left, checkpoints, symlinks=True)
        else:
            checkpoints.mkdir(parents=True)
        self.on_run(f"{situation.about}, {world_size} rank{'s' if world_size > 1 else ''}")
        order = Order(
            situation=situation,
            folder=str(folder),
            checkpoints=str(checkpoints),
            salt=LATER_SALT if situation.resumed_from else FIRST_SALT,
        )
        name = f"fit[{situation.name}-{world_size}ranks]"
        task = Task(name=name, function="ddpcheck.conformance.rank_training:train", given=msgspec.to_builtins(order))
        patience = min(self._timeout, FAILURE_PATIENCE) if situation.at == "raise" else self._timeout
        return trained(situation, world_size, folder, self._run(task, world_size, folder, patience, situation.devices))

    def _run(self, task: Task, world_size: int, folder: Path, timeout: float, devices: bool = False) -> RunRecord:
        scratch = folder / task.name.partition("[")[0]
        shared = scratch / "shared"
        shared.mkdir(parents=True)
        plan = Plan(
            nodeid=self._subject.nodeid,
            path=self._subject.path,
            world_size=world_size,
            backend="gloo",
            device="cuda" if devices else "cpu",
            gpus=tuple(Gpu(token=str(n), key=f"simulated {n}") for n in range(world_size)) if devices else (),
            simulated=devices,
            timeout=timeout,
            shared_dir=str(shared),
            own_dirs=str(scratch),
            capture="fd",
            task=task,
        )
        return self._launcher.run(plan)

    def _replayed(self, situation: Situation, world_size: int) -> Comparison:
        assert self._base is not None
        folder = self._base / f"{situation.name}-{world_size}"
        request = Request(situation=situation, world_size=world_size, folder=str(folder))
        name = f"oracle[{situation.name}-{world_size}ranks]"
        task = Task(name=name, function="ddpcheck.conformance.oracle:replay", given=msgspec.to_builtins(request))
        outcome = decide(self._run(task, 1, folder, REPLAY_PATIENCE))
        if outcome.result != "passed":
            raise InternalError(f"the oracle of {situation.name} failed: {outcome.headline}\n{_text(outcome)}")
        return msgspec.msgpack.decode((folder / RESULT).read_bytes(), type=Comparison)


def trained(situation: Situation, world_size: int, folder: Path, record: RunRecord) -> Trained:
    """What came of a situation, from what its ranks have left in a folder."""
    outcome, traces = decide(record), traces_of(folder, world_size)
    watched = _watched(folder / "evidence")
    return Trained(situation, world_size, record, outcome, _text(outcome), traces, watched=watched)


def _text(outcome: Outcome) -> str:
    """The failure text of the rank that failed first, or the stacks; without the lines that are ours."""
    if outcome.report is None:
        return "\n".join(line for line in outcome.details.splitlines() if _OWN not in line)
    try:
        text = pytest.TestReport._from_json(dict(outcome.report.data)).longreprtext
    except Exception:  # a report of another pytest's making
        text = str(outcome.report.data.get("longrepr"))
    return essence(text)


_TOLD = re.compile(r"[>E] |\S+:\d+: ")
"""The lines of a traceback that say what was called, where, and what came of it."""


def essence(text: str) -> str:
    """A traceback; a long one without the source that it goes through, which may be hundreds of lines of a library."""
    lines = text.splitlines()
    told = [line for line in lines if _TOLD.match(line)]
    return "\n".join(told) if len(lines) > LONGEST and told else text


def _watched(folder: Path) -> dict[str, Judged]:
    """What the judges of a script's run say of what was observed in a folder."""
    if not folder.exists():
        return {}
    evidence = Folder(folder)
    evidence.read()
    found = worlds(evidence.processes.values())
    return judge_world(found[0]) if found else {}
