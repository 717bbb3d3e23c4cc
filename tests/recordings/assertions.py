"""Assertions in ddp tests: what their ranks told, kept while the tests run, and judged again.

Where no judge was asked, because the ranks' calls differ or evidence is missing, the calls are kept and brought
together again. The tests of FILES are the programs. ``nox -s record`` runs them once, with FOLDER in their environment.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ddpcheck.checks.check import OF_ASSERTIONS
from ddpcheck.ranks.assertion_exchange import Exchange
from ddpcheck.ranks.messages import Evidence
from ddpcheck.vocabulary.model import Finding, Question
from tests import progress
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
    "tests/plugin/test_rules_of_assertions.py",
)
NAME = "assertions"
MADE_OF = (
    "ddpcheck/assertions",
    "ddpcheck/checkpoint_trials",
    "ddpcheck/ranks",
    "tests/recordings/assertions.py",
    *FILES,
)


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
    calls: list[Evidence | None] = []
    """By rank, where no judge was asked about the assertion: the call, and None where there was none."""

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

        def write(**told: Any) -> None:
            numbers[plan.nodeid] += 1
            one = Told(nodeid=plan.nodeid, number=numbers[plan.nodeid], **told)
            name = hashlib.sha256(one.name.encode()).hexdigest()[:24]
            (folder / name).write_bytes(msgspec.msgpack.encode(one))

        def judging(check: str, facts: Any, rounds: Any) -> Any:
            said = judge(check, facts, rounds)
            if not isinstance(said, Question) and plan.task is None:
                write(check=check, facts=list(facts), rounds=list(rounds))
            return said

        def closing(findings: tuple[Finding, ...]) -> Any:
            calls = [exchange.waiting.get(rank) for rank in range(exchange.world_size)]
            if plan.task is None and any(_is_shared(finding) for finding in findings):
                write(check=findings[0].check, facts=[], rounds=[], calls=calls)
            return close(findings)

        began(self, plan, started, control, run_dir, judging, family)
        exchange = self.exchange
        close, exchange._close = exchange._close, closing

    supervisor.Supervision.__init__ = begin  # type: ignore[method-assign]


def _is_shared(finding: Finding) -> bool:
    """Whether the exchange itself has found it, without a judge."""
    return finding.rule.rpartition("/")[2] in {rule.name for rule in OF_ASSERTIONS[:2]}


def key() -> dict[str, str]:
    """What a recording of all assertions is made of now."""
    return {**store.surroundings(), "tests": store.fingerprint(*MADE_OF)}


def record() -> list[str]:
    """Run the tests, and keep what their ranks tell; what failed, as sentences."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-m", "ddp", "--long", "-p", "no:randomly", *FILES]
    try:
        with store.alone(NAME), store.writing(NAME, key()) as fresh:
            environment = {**os.environ, FOLDER: str(fresh)}
            ran = progress.run(command, cwd=ROOT, env=environment, text=True)
            if ran.returncode:
                raise RuntimeError(ran.stdout[-3000:])
    except RuntimeError as error:
        return [f"the tests of assertions failed: {error}"]
    return []


def kept() -> list[Told]:
    """Every assertion that was kept, by name."""
    files = [path for path in store.folder(NAME).iterdir() if path.name != store.KEY]
    told = [msgspec.msgpack.decode(path.read_bytes(), type=Told) for path in files]
    return sorted(told, key=lambda one: (one.nodeid, one.number))


def judged(told: Told) -> tuple[Finding, ...]:
    """What its judge says of it."""
    from ddpcheck.checks.registry import judge_of

    if told.calls:
        return _exchanged(told.calls)
    said = judge_of(told.check, "assertion")(told.facts, told.rounds)
    assert not isinstance(said, Question), f"{told.name} was judged with fewer answers"
    return tuple(said)


def _exchanged(calls: Sequence[Evidence | None]) -> tuple[Finding, ...]:
    """What the exchange says of these calls."""

    def unasked(check: str, facts: Any, rounds: Any) -> Any:
        raise AssertionError(f"a judge of {check} is asked about calls that it was not asked about before")

    exchange = Exchange(len(calls), unasked)
    for rank, call in enumerate(calls):
        if call is not None:
            exchange.arrive(rank, call)
    exchange.step({rank for rank, call in enumerate(calls) if call is None})
    return exchange.done[-1].findings


def trouble() -> str:
    """Why they cannot be judged, as a clause; empty where they can."""
    return store.trouble(NAME, key())
