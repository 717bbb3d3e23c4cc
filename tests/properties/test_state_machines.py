"""State machines whose rules run in every rank, each ending in its own way, and shrunk to its fewest steps."""

from __future__ import annotations

import re

import pytest

from tests.inner import InnerProject, Ran
from tests.properties.examples_project import CONFTEST, MACHINES

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """One inner session in which every machine ends in its own way."""
    project = InnerProject(tmp_path_factory.mktemp("machines") / "project")
    project.write("conftest.py", CONFTEST)
    project.write("test_machines.py", MACHINES)
    result = project.run()
    assert project.leftover_processes() == []
    assert project.leftover_folders() == []
    return result


def steps(text: str) -> list[str]:
    """The steps of the failing example, less the invariants."""
    found = [line.removeprefix("E").strip() for line in text.splitlines() if "state." in line]
    return [line for line in found if "agrees" not in line and "teardown" not in line and "=" not in line.split("(")[0]]


def test_a_machine_that_holds(ran: Ran) -> None:
    """The same steps in both ranks: else their sums would not agree."""
    assert ran["test_machine[Counter]"].outcome == "passed"


def test_a_rule_that_fails(ran: Ran) -> None:
    """The steps are shrunk to those that are needed."""
    seen = ran["test_machine[Raise]"]
    assert seen.text.startswith("rank 1 failed first")
    assert "ValueError: too much" in seen.text
    assert [step for step in steps(seen.text) if "rank" not in step] == [
        "state.begin(n=0)",
        "state.add(n=76)",
        "state.sync()",
    ]


@pytest.mark.parametrize(
    ("machine", "headline", "rank"),
    [
        ("Crash", "rank 1 failed first: it was killed by SIGKILL", 1),
        ("Hang", "timed out after 1 s", 0),
    ],
)
def test_a_rule_that_does_not_return(ran: Ran, machine: str, headline: str, rank: int) -> None:
    """The step that crashes or hangs is told as well, and with it the smallest number of steps."""
    seen = ran[f"test_machine[{machine}]"]
    assert seen.text.startswith(headline)
    found = steps(seen.text)
    assert found[0] == "state.begin(n=1)"
    assert f"rank {rank}: state.sync()  # has not returned" in found
    assert not any("add" in step for step in found)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("test_machine_without_data", r"run_state_machine\(machine, data\) needs what st.data\(\) draws.* was given 0"),
        ("test_as_test", "run_state_machine_as_test and Machine.TestCase take steps of their own in every rank"),
        ("TestCounter::runTest", "Counter.TestCase draws other steps in every rank. Run the machine in a property"),
    ],
)
def test_other_ways_are_refused(ran: Ran, name: str, sentence: str) -> None:
    """In a sentence that says what to write instead, and that shows none of the machinery."""
    seen = ran[name]
    assert seen.outcome in ("failed", "error")
    assert re.search(sentence, seen.text), seen.text
    assert "stateful.py" not in seen.text.partition("the other ranks")[0].partition("/ddpcheck/")[2]
