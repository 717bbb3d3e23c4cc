"""Modules that ranks cannot be forked from, whatever their import does; the others' tests go on."""

from __future__ import annotations

import re

import pytest

from tests.inner import InnerProject, Ran

pytestmark = pytest.mark.long

STEP = """
import pytest

@pytest.mark.ddp(world_size={0})
def test_step_{1}(ddp):
    import torch
    model = ddp.wrap(torch.nn.Linear(2, 2))
    model(torch.ones(1, 2)).sum().backward()
"""

THREADS = """
import threading, time
threading.Thread(target=time.sleep, args=(600,), daemon=True, name="pump").start()
"""

OPENMP = """
import torch
torch.set_num_threads(4)
torch.ones(999, 999).sum()
"""

CRASHING = """
import os, pytest
if "DDPCHECK_RUN" in os.environ:
    os.kill(os.getpid(), 11)

@pytest.mark.ddp
def test_crash(ddp): pass
"""

GROUP = """
import pytest, torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

@pytest.mark.ddp(world_size=1)
def test_group(ddp): pass
"""


@pytest.fixture(scope="module")
def afresh(tmp_path_factory: pytest.TempPathFactory) -> tuple[InnerProject, Ran]:
    """One session of modules that cannot be forked from, each for another reason, and one that can."""
    project = InnerProject(tmp_path_factory.mktemp("afresh") / "project")
    project.write("test_0_before.py", STEP.format(1, "before"))
    project.write("test_a_threads.py", THREADS + STEP.format(2, "threads"))
    project.write("test_b_crashing.py", CRASHING)
    project.write("test_c_group.py", GROUP)
    project.write("test_d_openmp.py", OPENMP + STEP.format(1, "openmp"))
    project.write("test_e_clean.py", STEP.format(2, "clean"))
    return project, project.run()


@pytest.mark.parametrize(
    ("file", "name", "word"),
    [("test_a_threads.py", "test_step_threads", "pump"), ("test_d_openmp.py", "test_step_openmp", "threads (native)")],
    ids=["threads", "openmp"],
)
def test_modules_that_cannot_be_forked_from(afresh: tuple[InnerProject, Ran], file: str, name: str, word: str) -> None:
    """A module that starts threads, Python's or native ones, gets ranks of their own, and the session says so once."""
    project, ran = afresh
    for step in (name, "test_step_clean"):
        assert ran[step].outcome == "passed", ran.stdout
    assert (ran[name].ddp["fresh"], ran["test_step_clean"].ddp["fresh"]) == (True, False)
    said = [w for seen in ran.tests.values() for w in seen.warnings if file in w]
    assert len(said) == 1
    assert f"{file} start as interpreters of their own" in said[0]
    assert word in said[0]
    assert project.leftover_processes() == []


def test_warnings_of_modules_that_cannot_be_forked_from(afresh: tuple[InnerProject, Ran]) -> None:
    """There is one for each of them, and no other."""
    _, ran = afresh
    said = [w for seen in ran.tests.values() for w in seen.warnings]
    files = [re.findall(r"test_\w+\.py", w.partition(" start as ")[0]) for w in said]
    assert sorted(files) == [["test_a_threads.py"], ["test_b_crashing.py"], ["test_c_group.py"], ["test_d_openmp.py"]]


def test_a_module_that_crashes_when_it_is_imported_in_ranks(afresh: tuple[InnerProject, Ran]) -> None:
    """The test is an error that names rank and signal; other modules' tests go on."""
    _, ran = afresh
    assert ran["test_crash"].outcome == "error"
    # The other rank crashes too, or was ended before it could.
    assert re.search(r"rank [01] failed first: it could not start .*\nSIGSEGV", ran["test_crash"].text)
    assert ran["test_step_clean"].outcome == "passed"


def test_what_comes_before_a_module_that_crashes(afresh: tuple[InnerProject, Ran]) -> None:
    """All are imported in advance, and a crash is put down to the module that crashes, not to the first one."""
    _, ran = afresh
    assert ran["test_step_before"].outcome == "passed"
    assert ran["test_step_before"].ddp["fresh"] is False


def test_a_module_that_makes_a_group_when_it_is_imported(afresh: tuple[InnerProject, Ran]) -> None:
    """It is told that the group of a test is not its to make."""
    _, ran = afresh
    assert ran["test_group"].outcome == "error"
    assert "made a default process group; ddpcheck makes the group of every test" in ran["test_group"].text
