"""Assertions in ddp tests: what their ranks told, kept while the tests run, and judged again.

The tests of FILES are the programs. ``nox -s record`` runs them once, with FOLDER in their environment.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from ddpcheck.vocabulary.model import Finding, Question
from tests.recordings import store
from tests.recordings.catalogue import ROOT

FOLDER = "TESTS_ASSERTIONS"
"""Set in the environment of a session whose assertions are to be kept: the folder for them."""

FILES = (
    "tests/claims",
    "tests/checkpoints",
    "tests/devices",
    "tests/plugin/test_models_on_meshes.py",
    "tests/plugin/test_placement_assertion.py",
)
NAME = "assertions"
MADE_OF = ("ddpcheck/assertions", "ddpcheck/checkpoint_trials", "ddpcheck/ranks", *FILES)


class Told(msgspec.Struct, kw_only=True):
    """One assertion of one test: all that its judge is given."""

    nodeid: str
    number: int
    """Which of the test's assertions it is."""
    check: str
    facts: list[Any]
    """By rank."""
    rounds: list[list[Any]]
    """What ranks answered, round by round."""

    @property
    def name(self) -> str:
        """What the matrix calls it."""
        return f"{NAME}/{self.nodeid.removeprefix('tests/')} {self.number}"


def keep(folder: Path) -> None:
    """From now on keep what the assertions of this process's runs are judged by."""
    from ddpcheck.ranks import supervisor

    began = supervisor.Supervision.__init__

    @functools.wraps(began)
    def begin(self: Any, plan: Any, started: Any, control: Any, run_dir: str, judge: Any, family: Any) -> None:
        numbers: Counter[str] = Counter()

        def judging(check: str, facts: Any, rounds: Any) -> Any:
            said = judge(check, facts, rounds)
            if not isinstance(said, Question) and plan.task is None:
                numbers[plan.nodeid] += 1
                told = Told(
                    nodeid=plan.nodeid, number=numbers[plan.nodeid], check=check, facts=list(facts), rounds=list(rounds)
                )
                name = hashlib.sha256(told.name.encode()).hexdigest()[:24]
                (folder / name).write_bytes(msgspec.msgpack.encode(told))
            return said

        began(self, plan, started, control, run_dir, judging, family)

    supervisor.Supervision.__init__ = begin  # type: ignore[method-assign]


def key() -> dict[str, str]:
    """What a recording of all assertions is made of now."""
    return {**store.surroundings(), "tests": store.fingerprint(*MADE_OF)}


def record() -> list[str]:
    """Run the tests, and keep what their ranks tell; what failed, as sentences."""
    with store.writing(NAME, key()) as fresh:
        command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-m", "ddp", "--long", "-p", "no:randomly"]
        environment = {**os.environ, FOLDER: str(fresh)}
        ran = subprocess.run([*command, *FILES], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if ran.returncode:
            shutil.rmtree(fresh)
            return [f"the tests of assertions failed: {ran.stdout[-3000:]}"]
    return []


def kept() -> list[Told]:
    """Every assertion that was kept, by name."""
    files = [path for path in store.folder(NAME).iterdir() if path.name != store.KEY]
    told = [msgspec.msgpack.decode(path.read_bytes(), type=Told) for path in files]
    return sorted(told, key=lambda one: (one.nodeid, one.number))


def judged(told: Told) -> tuple[Finding, ...]:
    """What its judge says of it."""
    from ddpcheck.checks.registry import judge_of

    said = judge_of(told.check, "assertion")(told.facts, told.rounds)
    assert not isinstance(said, Question), f"{told.name} was judged with fewer answers"
    return tuple(said)


def trouble() -> str:
    """Why they cannot be judged, as a clause; empty where they can."""
    return store.trouble(NAME, key())
