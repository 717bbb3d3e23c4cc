"""What else there is in a session: what hooks have started, deadlines, plain tests, ids, and pytest.exit."""

from __future__ import annotations

import pytest

from tests.inner import InnerProject, Ran, wait_until

pytestmark = pytest.mark.long

SERVED = """
import psutil, pytest, subprocess

@pytest.mark.ddp
@pytest.mark.parametrize("turn", [1, 2])
def test_served(ddp, request, turn):
    assert psutil.Process(request.config.server.pid).status() != psutil.STATUS_ZOMBIE
    subprocess.Popen(["sleep", "1005"])
"""

SERVER = """
import subprocess

def pytest_configure(config):
    if hasattr(config, "workerinput"):
        config.server = subprocess.Popen(["sleep", "1004"])
"""

TIMEOUTS = """
import pytest

@pytest.mark.ddp(timeout=13)
def test_mark(ddp): assert ddp._plan.timeout == 13

@pytest.mark.ddp
def test_other(ddp): print("timeout", ddp._plan.timeout)
"""

ANOTHER_ID = """
import os, pytest

@pytest.mark.ddp
@pytest.mark.parametrize("x", [1], ids=[f"p{os.getpid()}"])
def test_id(ddp, x): pass
"""

PLAIN_BETWEEN = """
import os, pytest

events = []

@pytest.fixture(scope="module")
def thing():
    events.append("up")
    yield
    with open(os.path.join(os.environ["TMPDIR"], "down"), "a") as file:
        file.write("down once")

def test_plain_{0}(thing): assert events == ["up"]

@pytest.mark.ddp
def test_ranks_{0}(ddp): assert events == []

def test_plain_again_{0}(thing): assert events == ["up"]

@pytest.mark.ddp
def test_ranks_at_the_end_{0}(ddp): pass
"""

EXIT = """
import pytest

@pytest.mark.ddp
def test_leaving(ddp):
    if ddp.rank == 1:
        pytest.exit("enough of this", returncode=0)

def test_after(): pass
"""


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> tuple[InnerProject, Ran]:
    """One session of modules that have nothing to do with each other."""
    project = InnerProject(tmp_path_factory.mktemp("several") / "project")
    project.write("conftest.py", SERVER)
    project.write("pytest.ini", "[pytest]\nddp_timeout = 11\n")
    project.write("test_served.py", SERVED)
    project.write("test_timeouts.py", TIMEOUTS)
    project.write("test_id.py", ANOTHER_ID)
    for name in "ab":
        project.write(f"test_{name}.py", PLAIN_BETWEEN.format(name))
    return project, project.run()


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """One session that has a deadline for all tests, and is left early."""
    project = InnerProject(tmp_path_factory.mktemp("left") / "project")
    project.write("pytest.ini", "[pytest]\nddp_timeout = 11\n")
    project.write("test_timeouts.py", TIMEOUTS)
    project.write("test_z_exit.py", EXIT)
    return project.run("--ddp-timeout", "12")


def test_what_a_conftest_started_for_the_session_lives_as_long(several: tuple[InnerProject, Ran]) -> None:
    """A server that hooks start beside the ranks is no leftover of the first test; it ends with the session."""
    project, ran = several
    served = [ran[f"test_served[{turn}]"] for turn in (1, 2)]
    assert [seen.outcome for seen in served] == ["passed", "passed"], ran.stdout
    assert all("sleep 1005" in " ".join(seen.warnings) for seen in served)
    assert not any("sleep 1004" in " ".join(seen.warnings) for seen in ran.tests.values())
    assert wait_until(lambda: project.leftover_processes() == [], 5), project.leftover_processes()


def test_pytest_exit_ends_the_session(left: Ran) -> None:
    """pytest.exit in a rank ends the session, with its reason and the code that it was given."""
    assert left.code == 0
    assert "rank 1 called pytest.exit: enough of this" in left.stdout
    assert "test_mark" in left.tests
    assert "test_after" not in left.tests


def test_timeouts_of_mark_option_and_ini(several: tuple[InnerProject, Ran], left: Ran) -> None:
    """The mark's timeout outranks the option, the option the ini file."""
    _, by_ini = several
    assert by_ini["test_mark"].outcome == "passed"
    assert "timeout 11.0" in by_ini["test_other"].output
    assert left["test_mark"].outcome == "passed"
    assert "timeout 12.0" in left["test_other"].output


def test_ids_that_change(several: tuple[InnerProject, Ran]) -> None:
    """A test whose id is another each time is told what to fix."""
    _, ran = several
    (seen,) = [seen for name, seen in ran.tests.items() if name.startswith("test_id")]
    assert seen.outcome == "error"
    assert "Its id must be the same every time" in seen.text


def test_teardown_of_other_tests_fixtures(several: tuple[InnerProject, Ran]) -> None:
    """Module fixtures of plain tests are torn down in time, with ddp tests before, between and after them."""
    project, ran = several
    names = [f"test_{kind}_{name}" for kind in ("plain", "ranks", "plain_again", "ranks_at_the_end") for name in "ab"]
    assert {name: ran[name].outcome for name in names} == dict.fromkeys(names, "passed"), ran.stdout
    assert (project.temp / "down").read_text() == "down once" * 2
