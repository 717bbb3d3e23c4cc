"""What becomes of a test, and of the session, where the process that watches over the ranks is killed or stopped."""

from __future__ import annotations

import psutil
import pytest

from tests.inner import InnerProject, Ran, wait_until

pytestmark = pytest.mark.long

LOST = """
import os, signal, subprocess, time
import psutil, pytest, torch
import torch.distributed as dist

pytestmark = pytest.mark.ddp(timeout=2)

def leave_behind():
    # Nothing of its parents is to be seen in these, but whose child they once were.
    subprocess.Popen(["sleep", "100013"], env={}, start_new_session=True)
    subprocess.Popen(["sleep", "100014"], start_new_session=True)

def test_killed(ddp):
    if ddp.rank == 0:
        leave_behind()
        os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)

def test_stopped(ddp):
    if ddp.rank == 0:
        leave_behind()
        os.kill(os.getppid(), signal.SIGSTOP)
        time.sleep(60)

def test_goes_on(ddp):
    if ddp.rank == 0:
        os.kill(os.getppid(), signal.SIGSTOP)
        time.sleep(0.1)
        os.kill(os.getppid(), signal.SIGCONT)

def test_its_group_is_killed(ddp):
    if ddp.rank == 0:
        os.killpg(0, signal.SIGKILL)
    dist.barrier()

@pytest.mark.parametrize("turn", range(2))
def test_after(ddp, turn):
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total == 2
"""


KEEPER = (
    LOST[: LOST.index("def test_killed")]
    + """
def test_its_keeper_is_killed(ddp):
    if ddp.rank == 0:
        leave_behind()
        psutil.Process(os.getppid()).parent().kill()
    time.sleep(60)

def test_its_zygote_is_ended(ddp):
    os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(60)
"""
)


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """One session whose zygotes do not live long."""
    return _ran(InnerProject(tmp_path_factory.mktemp("lost") / "project"), LOST)


def _ran(project: InnerProject, text: str) -> Ran:
    project.write("test_it.py", text)
    ran = project.run()
    assert wait_until(lambda: project.leftover_processes() == [], 5), project.leftover_processes()
    assert wait_until(lambda: _asleep() == [], 5), _asleep()
    assert project.leftover_folders() == []
    return ran


def _asleep() -> list[psutil.Process]:
    """What the tests have left behind, under whichever parent."""
    return [p for p in psutil.process_iter(["cmdline"]) if (p.info["cmdline"] or [""])[-1] in ("100013", "100014")]


def test_a_test_whose_zygote_is_killed_fails(lost: Ran) -> None:
    """It is not run again, and is not said to have not started."""
    seen = lost["test_killed"]
    assert seen.outcome == "failed"
    assert "the process that ranks come from was killed by SIGKILL while the test ran" in seen.text
    assert seen.warnings == []


def test_a_stopped_zygote_holds_up_nobody(lost: Ran) -> None:
    """The deadline holds, and shows where the ranks are."""
    seen = lost["test_stopped"]
    assert seen.outcome == "failed"
    assert "timed out after 2 s: the process that ranks come from was stopped by SIGSTOP" in seen.text
    assert "in test_stopped" in seen.text


def test_a_zygote_that_goes_on_was_not_stopped(lost: Ran) -> None:
    """One that was only held up has seen its ranks through."""
    assert lost["test_goes_on"].outcome == "passed", lost["test_goes_on"].text


def test_a_rank_that_kills_its_group_kills_itself(lost: Ran) -> None:
    """The other ranks, and the zygote, are not in its process group."""
    seen = lost["test_its_group_is_killed"]
    assert seen.outcome == "failed"
    assert "rank 0 failed first: it was killed by SIGKILL before the test's body ended" in seen.text


def test_a_killed_keeper_is_a_lost_test_as_well(project: InnerProject) -> None:
    """The process between pytest and the zygote: its end is that of the test; SIGTERM is as bad as SIGKILL."""
    ran = _ran(project, KEEPER)
    for name, number in {"test_its_keeper_is_killed": "SIGKILL", "test_its_zygote_is_ended": "SIGTERM"}.items():
        assert ran[name].outcome == "failed"
        assert f"was killed by {number} while the test ran" in ran[name].text


@pytest.mark.parametrize("turn", range(2))
def test_the_session_goes_on(lost: Ran, turn: int) -> None:
    """The next test has a new zygote, and its ranks are forked."""
    assert lost[f"test_after[{turn}]"].outcome == "passed", lost.stdout
    assert lost[f"test_after[{turn}]"].warnings == []
