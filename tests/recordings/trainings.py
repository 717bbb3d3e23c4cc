"""Trainings of the conformance suite, kept: what was trained once is judged again and again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec

from ddpcheck.conformance.rank_instructions import RESULT
from ddpcheck.conformance.situation_runner import Runner, Subject, trained
from ddpcheck.evidence.oracle_comparison import Comparison
from ddpcheck.trainings.situations import Situation
from ddpcheck.trainings.trained_situation import Trained
from ddpcheck.vocabulary.model import RunRecord
from ddpcheck.zygote.client import Launcher
from tests.recordings import store

RECORD = "record.msgpack"


class NotRecorded(Exception):
    """A training that was not recorded is asked for; the text says which."""


class Kept(Runner):
    """Trains one trainer where nobody has yet; without a launcher it trains nothing."""

    def __init__(self, launcher: Launcher | None, subject: Subject, timeout: float) -> None:
        super().__init__(launcher, subject, timeout)  # type: ignore[arg-type]
        self._base = store.folder(f"trainers/{subject.title}")
        now = store.key_of_trainings()
        if launcher is None:
            return
        with store.alone(f"trainers/{subject.title}"):
            if store.trouble(f"trainers/{subject.title}", now):
                shutil.rmtree(self._base, ignore_errors=True)
                self._base.mkdir(parents=True)
                (self._base / store.KEY).write_text(json.dumps(now))

    def close(self) -> None:
        """Keep everything."""

    def _train(self, situation: Situation, world_size: int) -> Trained:
        folder = self._folder(situation, world_size)
        with store.alone(str(folder)):
            if (folder / RECORD).exists():
                record = msgspec.msgpack.decode((folder / RECORD).read_bytes(), type=RunRecord)
                return trained(situation, world_size, folder, record)
            self._must_train(situation, world_size)
            shutil.rmtree(folder, ignore_errors=True)
            result = super()._train(situation, world_size)
            whole = folder / f"{RECORD}.fresh"
            whole.write_bytes(msgspec.msgpack.encode(result.record))
            whole.rename(folder / RECORD)
            return result

    def _replayed(self, situation: Situation, world_size: int) -> Comparison:
        result = self._folder(situation, world_size) / RESULT
        if not result.exists():
            self._must_train(situation, world_size)
            return super()._replayed(situation, world_size)
        return msgspec.msgpack.decode(result.read_bytes(), type=Comparison)

    def _folder(self, situation: Situation, world_size: int) -> Path:
        assert self._base is not None
        return self._base / f"{situation.name}-{world_size}"

    def _must_train(self, situation: Situation, world_size: int) -> None:
        if self._launcher is None:
            name = f"{self._subject.title} in {situation.name}, {world_size} ranks"
            raise NotRecorded(f"{name} was not recorded")
