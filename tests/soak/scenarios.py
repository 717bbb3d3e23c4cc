"""What the soak run expects: every kind of test, how often it comes, and what pytest must report for it.

A pattern is searched in the report of the test. In it ``<rank>`` stands for the
rank that causes the trouble, ``<other>`` for the other one, and ``<number>``
for the number of the test.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Outcome = Literal["passed", "failed", "error", "skipped", "xfailed"]

TIMEOUT = 2
"""Seconds that a test which is meant to hang is given."""


@dataclass(frozen=True)
class Scenario:
    """One kind of test."""

    kind: str
    """Also the name of the function in bodies.py."""
    weight: float
    """How often it comes, in thousandths."""
    outcome: Outcome
    text: tuple[str, ...] = ()
    """Patterns that the report must contain."""
    warning: str = ""
    """A pattern that one warning of the test must contain."""
    marks: tuple[str, ...] = ()
    """Marks of the test, as source text."""


@dataclass(frozen=True)
class Case:
    """One test of the generated project."""

    number: int
    scenario: Scenario

    @property
    def rank(self) -> int:
        return self.number % 2

    @property
    def id(self) -> str:
        return f"{self.scenario.kind}-{self.number}"

    def filled(self, pattern: str) -> str:
        """The pattern with this test's own numbers."""
        values = {"<rank>": self.rank, "<other>": 1 - self.rank, "<number>": self.number}
        return re.sub("<(rank|other|number)>", lambda match: str(values[match[0]]), pattern)


FIRST = "rank <rank> failed first"
HANGS = (f"pytest.mark.ddp(timeout={TIMEOUT})",)
ALIKE = "a verdict that all ranks share"
LATE = f"timed out after {TIMEOUT} s"


def _stacks(function: str, other: str = "") -> str:
    """Both ranks' stacks show where they are."""
    return rf"(?s)rank 0\b[^\n]*most recent call first.*in {function}\b.*rank 1\b[^\n]*first.*in {other or function}\b"


def _died(how: str) -> str:
    return f"{FIRST}: it {how} before the test's body ended"


SCENARIOS: tuple[Scenario, ...] = (
    # --- what passes
    Scenario("steps", 330, "passed"),
    Scenario("steps_asserted", 150, "passed"),
    Scenario("collectives", 60, "passed"),
    Scenario("nothing", 30, "passed"),
    Scenario("one_rank_late", 15, "passed"),
    Scenario("destroys_the_group", 15, "passed"),
    Scenario("meddles_with_state", 60, "passed"),
    Scenario("uses_fixtures", 20, "passed"),
    Scenario("prints_a_lot", 10, "passed"),
    Scenario("closes_standard_streams", 10, "passed"),
    Scenario("loads_with_workers", 10, "passed"),
    Scenario("forks_and_child_returns", 5, "passed"),
    # --- what passes and leaves something behind
    Scenario("leaves_a_child", 10, "passed", warning=r"left a process running.*: pid \d+ \(sleep 300"),
    Scenario("leaves_a_daemon", 10, "passed", warning=r"left a process running.*: pid \d+ \(sleep 300"),
    Scenario("leaves_a_forked_daemon", 10, "passed", warning=r"left a process running"),
    Scenario("leaves_a_thread", 10, "passed", warning=r"rank <rank> left a thread running.*: Thread-"),
    Scenario("leaves_shared_memory", 5, "passed"),
    Scenario("abandons_workers", 5, "passed"),
    # --- what one rank raises
    Scenario("fails_on_one_rank", 40, "failed", (FIRST, r"assert <number> == \(?<number> \+ 1", "rank <other> ")),
    Scenario("raises_on_both", 15, "failed", ("rank [01] failed first", "ValueError: both <number>")),
    Scenario("raises_in_backward", 10, "failed", (FIRST, "ValueError: in backward <number>")),
    Scenario("raises_keyboard_interrupt", 5, "failed", (FIRST, "KeyboardInterrupt")),
    Scenario("recurses_for_ever", 5, "failed", (FIRST, "RecursionError")),
    Scenario("raises_the_unprintable", 5, "failed", (FIRST, "Unprintable")),
    Scenario("raises_at_length", 5, "failed", (FIRST, "ValueError: x{1000}")),
    Scenario("fails_with_a_daemon", 10, "failed", (FIRST, "ValueError: with a daemon <number>")),
    Scenario("fails_in_setup", 8, "error", ("rank <rank> ", "ValueError: in setup <number>")),
    Scenario("fails_in_teardown", 8, "error", ("rank <rank> ", "ValueError: in teardown <number>")),
    # --- what ends a rank
    Scenario("dies_of_segv", 10, "failed", (_died("was killed by SIGSEGV"), "in dies_of_segv")),
    Scenario("dies_of_kill", 10, "failed", (_died("was killed by SIGKILL"),)),
    Scenario("dies_of_abort", 10, "failed", (_died("was killed by SIGABRT"), "in dies_of_abort")),
    Scenario("dies_of_term", 5, "failed", (_died("was killed by SIGTERM"),)),
    Scenario("kills_its_peer", 5, "failed", ("rank <other> failed first: it was killed by SIGKILL",)),
    Scenario("both_die", 5, "failed", ("rank [01] failed first: it was killed by SIGKILL",)),
    Scenario("leaves_with_0", 10, "failed", (_died("left with exit code 0"),)),
    Scenario("leaves_with_3", 10, "failed", (_died("left with exit code 3"),)),
    Scenario("leaves_by_system_exit", 8, "failed", (FIRST, "SystemExit")),
    # --- what never ends
    Scenario("hangs_asleep", 8, "failed", (LATE, _stacks("hangs_asleep")), marks=HANGS),
    Scenario("hangs_in_native_code", 6, "failed", (LATE, _stacks("hangs_in_native_code")), marks=HANGS),
    Scenario("hangs_on_another_collective", 4, "failed", (LATE, _stacks("hangs_on_another_collective")), marks=HANGS),
    Scenario("hangs_stopped", 2, "failed", (LATE, "rank <rank>, most recent", "gave no stack"), marks=HANGS),
    Scenario("hangs_in_teardown", 2, "error", (LATE, "in tear_down"), marks=HANGS),
    Scenario("waits_in_an_assertion", 3, "failed", (LATE, "waiting in assert_replicas_identical"), marks=HANGS),
    # --- what skips, or is expected to fail
    Scenario("skips", 15, "skipped", ("on all ranks",)),
    Scenario("skipped_by_mark", 5, "skipped", ("by a mark",), marks=("pytest.mark.skip(reason='by a mark')",)),
    Scenario("skips_on_one_rank", 10, "failed", ("rank <rank> skipped and rank <other> did not", "on one rank")),
    Scenario("expected_to_raise", 10, "xfailed", marks=("pytest.mark.xfail(raises=ValueError)",)),
    Scenario("expected_otherwise", 5, "failed", (FIRST, "TypeError"), marks=("pytest.mark.xfail(raises=ValueError)",)),
    Scenario("expected_to_die", 5, "xfailed", marks=("pytest.mark.xfail(reason='it dies')",)),
    Scenario("passes_unexpectedly", 3, "failed", (r"XPASS\(strict\)",), marks=("pytest.mark.xfail(strict=True)",)),
    # --- what ddpcheck's assertions find
    Scenario("violates_replicas", 15, "failed", (ALIKE, r"0\.weight", "differ from rank 0's on rank 1")),
    Scenario(
        "violates_gradients",
        10,
        "failed",
        (ALIKE, r"0\.weight", "gradients to differ from rank 0's on rank 1"),
    ),
    Scenario("asserts_on_one_rank", 10, "failed", ("every rank to call the same assertion", "rank <rank> called")),
)


def draw(tests: int, seed: int) -> list[Case]:
    """The tests of a run: every kind once where there is room, then kinds by weight, in random order."""
    chance = random.Random(seed)
    drawn: list[Scenario] = list(SCENARIOS[:tests])
    drawn += chance.choices(SCENARIOS, [s.weight for s in SCENARIOS], k=tests - len(drawn))
    chance.shuffle(drawn)
    return [Case(number, scenario) for number, scenario in enumerate(drawn)]


def missing(case: Case, text: str, warnings: Sequence[str]) -> str:
    """What the report and the warnings of a test lack, of what they must say; empty if nothing."""
    for pattern in case.scenario.text:
        if not re.search(case.filled(pattern), text):
            return f"the report lacks {case.filled(pattern)!r}"
    wanted = case.scenario.warning
    if wanted and not any(re.search(case.filled(wanted), warning) for warning in warnings):
        return f"no warning says {case.filled(wanted)!r}"
    return ""
