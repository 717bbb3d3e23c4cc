"""Properties in sessions as a whole: the database, workers, interrupts, and ranks that cannot be forked."""

from __future__ import annotations

import signal
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.inner import InnerProject, Ran, wait_until
from tests.progress import communicate

REPLAYED = """
import os
import pytest
from hypothesis import given, settings, strategies as st

def log(n):
    with open(os.path.join(os.environ["TMPDIR"], os.environ["LOG"]), "a") as file:
        file.write(f"{n} ")

@pytest.mark.ddp(world_size=2)
@settings(max_examples=20, report_multiple_bugs=False)
@given(n=st.integers(1, 5000))
def test_replayed(ddp, n):
    if not ddp.rank:
        log(n)
    assert n < 300

@pytest.mark.ddp(world_size=2)
@settings(max_examples=20)
@given(n=st.integers(1, 5000))
def test_passing(ddp, n):
    if not ddp.rank:
        log(-n)
"""


def logged(project: InnerProject, name: str) -> tuple[list[int], list[int]]:
    """The examples of the failing test, and of the passing one."""
    found = [int(n) for n in Path(project.temp / name).read_text().split()]
    return [n for n in found if n > 0], [-n for n in found if n < 0]


@pytest.mark.long
def test_the_database(project: InnerProject) -> None:
    """The smallest failure of the last session is the first example of the next; workers and reports know the test."""
    project.write("test_it.py", REPLAYED)
    failed = project.run("-n", "1", "--junitxml=report.xml", LOG="found")
    assert failed["test_passing"].outcome == "passed"
    assert "n=300,\n" in failed["test_replayed"].text
    (case,) = [c for c in ET.parse(project.folder / "report.xml").iter("testcase") if c.find("failure") is not None]
    assert case.get("name") == "test_replayed"
    assert float(case.get("time", "0")) > 0
    replayed = project.run("--lf", "-x", LOG="replayed")
    assert list(replayed.tests) == ["test_replayed"]
    assert "n=300,\n" in replayed["test_replayed"].text
    assert logged(project, "replayed")[0][0] == 300
    assert len(logged(project, "replayed")[0]) < len(logged(project, "found")[0])
    assert project.leftover_processes() == []


FRESH = """
import os, threading, time
import pytest
from hypothesis import given, settings, strategies as st
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()

@pytest.mark.ddp(world_size=2)
@settings(max_examples=20, database=None)
@given(n=st.integers(1, 60), data=st.data())
def test_interpreters(ddp, n, data):
    import torch, torch.distributed as dist
    drawn = torch.tensor([n, data.draw(st.integers(0, 9))])
    total = drawn.clone()
    dist.all_reduce(total)
    assert torch.equal(total, 2 * drawn)
"""


@pytest.mark.long
def test_ranks_that_cannot_be_forked(project: InnerProject) -> None:
    """Ranks that are interpreters of their own run examples as well, and say why they take seconds to start."""
    project.write("test_it.py", FRESH)
    seen = project.run()["test_interpreters"]
    assert seen.outcome == "passed", seen.text
    assert any("start as interpreters of their own" in text for text in seen.warnings)
    assert seen.ddp["fresh"]


BLOCKED = """
import os, time
import pytest
from hypothesis import given, strategies as st

@pytest.mark.ddp(world_size=2)
@given(n=st.integers(1, 60))
def test_blocked(ddp, n):
    open(os.path.join(os.environ["TMPDIR"], f"ready{ddp.rank}"), "w").close()
    time.sleep(1000)

def drawn(n):
    if os.path.exists(os.path.join(os.environ["TMPDIR"], "between")) and "DDPCHECK_RUN" not in os.environ:
        open(os.path.join(os.environ["TMPDIR"], "ready0"), "w").close()
        open(os.path.join(os.environ["TMPDIR"], "ready1"), "w").close()
        time.sleep(1000)
    return n

@pytest.mark.ddp(world_size=2)
@given(n=st.integers(1, 60).map(drawn))
def test_between(ddp, n):
    open(os.path.join(os.environ["TMPDIR"], "between"), "w").close()
"""


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("test_blocked", signal.SIGINT),
        pytest.param("test_between", signal.SIGINT, marks=pytest.mark.long),
        pytest.param("test_between", signal.SIGKILL, marks=pytest.mark.long),
    ],
)
def test_nothing_outlives_the_session(project: InnerProject, name: str, number: signal.Signals) -> None:
    """Ranks end with a session that is interrupted or killed, in the midst of an example or between two."""
    project.write("test_it.py", BLOCKED)
    process = project.start("-k", name)
    try:
        assert wait_until(lambda: len(list(project.temp.glob("ready*"))) == 2), process.communicate()
        process.send_signal(number)
        communicate(process)
    finally:
        process.kill()
    if number == signal.SIGINT:
        assert process.returncode == pytest.ExitCode.INTERRUPTED
    assert wait_until(lambda: project.leftover_processes() == [], 5), project.leftover_processes()
    assert wait_until(lambda: project.leftover_folders() == [], 5), project.leftover_folders()


LEAVING = """
import pytest
from hypothesis import given, strategies as st

@pytest.mark.ddp(world_size=2)
@given(n=st.integers(1, 60))
def test_leaves(ddp, n):
    if ddp.rank and n > 10:
        pytest.exit("that is enough")

def test_after(): pass
"""


@pytest.mark.long
def test_pytest_exit(project: InnerProject) -> None:
    """pytest.exit in an example ends the session, as it does in a test; without hypothesis' plugin, too."""
    project.write("test_it.py", LEAVING)
    ran: Ran = project.run("-p", "no:hypothesispytest")
    assert "rank 1 called pytest.exit: that is enough" in ran.stdout + ran.stderr
    assert ran.code == 2
    assert "test_after" not in ran.tests
    assert project.leftover_processes() == []
