"""Sessions as a whole: interrupted, killed, side by side, distributed, measured, and without any ddp test."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET

import pytest

from tests import progress
from tests.inner import InnerProject, wait_until

BLOCKED = """
import os, subprocess, time
import pytest

@pytest.mark.ddp
def test_blocked(ddp):
    import torch.distributed as dist  # here, where it costs nothing: the pytest process needs no torch
    if os.fork() == 0:  # a child that leaves the process group, and would be an orphan
        os.setsid()
        os.execvp("sleep", ["sleep", "1003"])
    (ddp.tmp_path / "ready").touch()
    open(os.path.join(os.environ["TMPDIR"], f"ready{ddp.rank}"), "w").close()
    if ddp.rank == 0:
        time.sleep(1000)
    dist.barrier()

def test_after(): pass
"""


@pytest.mark.parametrize(
    "number", [signal.SIGINT, *(pytest.param(one, marks=pytest.mark.long) for one in (signal.SIGKILL, signal.SIGTERM))]
)
def test_nothing_outlives_the_session(project: InnerProject, number: signal.Signals) -> None:
    """However pytest ends, its ranks, their children and the zygote end with it, and the private folders are gone."""
    project.write("test_it.py", BLOCKED)
    process = project.start()
    assert wait_until(lambda: len(list(project.temp.glob("ready*"))) == 2), process.communicate()
    process.send_signal(number)
    progress.communicate(process)
    if number == signal.SIGINT:
        assert process.returncode == pytest.ExitCode.INTERRUPTED
    assert wait_until(lambda: project.leftover_processes() == [], 5), project.leftover_processes()
    assert wait_until(lambda: project.leftover_folders() == [], 5), project.leftover_folders()


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.long
def test_an_interrupt_does_not_wait_for_an_import(project: InnerProject, times: int) -> None:
    """A module whose import never returns keeps the zygote from answering; Ctrl-C ends the session all the same."""
    project.write(
        "test_it.py",
        """
        import os, pytest, time
        if "DDPCHECK_RUN" in os.environ:
            open(os.path.join(os.environ["TMPDIR"], "ready"), "w").close()
            time.sleep(1000)
        @pytest.mark.ddp
        def test_it(ddp): pass
        """,
    )
    process = project.start()
    assert wait_until(lambda: (project.temp / "ready").exists()), process.communicate()
    process.send_signal(signal.SIGINT)
    for _ in range(times - 1):
        time.sleep(0.3)  # it is waiting for the zygote to answer, or for its end
        process.send_signal(signal.SIGINT)
    progress.communicate(process)
    assert wait_until(lambda: project.leftover_processes() == [], 5), project.leftover_processes()
    assert project.leftover_folders() == []


PASSING_AND_FAILING = """
import pytest
import ddpcheck

@pytest.mark.ddp
@pytest.mark.parametrize("n", range(4))
def test_passes(ddp, n):
    import torch  # here, where it costs nothing: the pytest process needs no torch
    ddpcheck.assert_replicas_identical(ddp.wrap(torch.nn.Linear(2, 2)))

@pytest.mark.ddp
def test_fails(ddp):
    if ddp.rank == 1:
        assert ddp.rank == 9
    import torch.distributed as dist
    dist.barrier()

@pytest.mark.ddp
def test_skips(ddp):
    pytest.skip("no")
"""


@pytest.fixture(scope="module")
def side_by_side(tmp_path_factory: pytest.TempPathFactory) -> dict[str, InnerProject]:
    """Two sessions at the same time, one of them distributed by pytest-xdist; both have ended."""
    options = {
        "plain": ["--ddp-report", "deep/report.json", "--junitxml", "junit.xml"],
        "xdist": ["--ddp-report", "deep/report.json", "-n", "2"],
    }
    folder = tmp_path_factory.mktemp("side_by_side")
    projects = {name: InnerProject(folder / name) for name in options}
    for project in projects.values():
        project.write("test_it.py", PASSING_AND_FAILING)
    running = {name: project.start(*options[name]) for name, project in projects.items()}
    for name, process in running.items():
        out, _ = progress.communicate(process)
        (projects[name].folder / "stdout").write_text(out)
    return projects


@pytest.mark.parametrize("name", ["plain", "xdist"])
@pytest.mark.long
def test_side_by_side(side_by_side: dict[str, InnerProject], name: str) -> None:
    """Sessions run side by side: there is no fixed port and no shared name; and no process is left of any."""
    project = side_by_side[name]
    assert {test: seen.outcome for test, seen in project.seen().items()} == {
        **{f"test_passes[{n}]": "passed" for n in range(4)},
        "test_fails": "failed",
        "test_skips": "skipped",
    }
    assert project.leftover_processes() == []


@pytest.mark.long
def test_xdist(side_by_side: dict[str, InnerProject]) -> None:
    """Under pytest-xdist every worker has its own zygote, and reports arrive whole."""
    project = side_by_side["xdist"]
    failed = project.seen()["test_fails"]
    assert "rank 1 failed first" in failed.text
    assert "assert 1 == 9" in failed.text
    document = json.loads((project.folder / "deep" / "report.json").read_text())
    assert document["checks"]["initial-broadcast"] == {
        "status": "held",
        "checked": 4,
        "at_risk": 0,
        "violated": 0,
        "skipped_because": None,
        "coverage": {"compared": 4, "of": 4, "unit": "assertions"},
    }


@pytest.mark.long
def test_reports_in_files(side_by_side: dict[str, InnerProject]) -> None:
    """The JSON names every test, its ranks and checks; the JUnit XML has the failure's text."""
    project = side_by_side["plain"]
    stdout = (project.folder / "stdout").read_text()
    document = json.loads((project.folder / "deep" / "report.json").read_text())
    assert document["schema"] == 3
    assert set(document["versions"]) == {"ddpcheck", "torch", "python"}
    assert document["checks"]["gradient-sync"]["status"] == "not-checked"
    by_id = {test["nodeid"]: test for test in document["tests"]}
    failed = by_id["test_it.py::test_fails"]
    assert (failed["outcome"], failed["world_size"], failed["backend"]) == ("failed", 2, "gloo")
    assert [rank["rank"] for rank in failed["ranks"]] == [0, 1]
    root = ET.parse(project.folder / "junit.xml").getroot()
    failures = {case.get("name"): case.find("failure") for case in root.iter("testcase")}
    assert "rank 1 failed first" in (failures["test_fails"].text or "")  # type: ignore[union-attr]
    assert failures["test_passes[0]"] is None
    assert "invariants, as 6 ddp tests checked them in 12 ranks" in stdout
    assert ["initial-broadcast", "4", "0", "0"] in [line.split() for line in stdout.splitlines()]


@pytest.mark.long
def test_selection_and_stopping(project: InnerProject) -> None:
    """-k, -x and --lf choose and stop as ever."""
    project.write("test_it.py", PASSING_AND_FAILING + "\n@pytest.mark.ddp\ndef test_late(ddp): pass\n")
    chosen = project.run("-k", "fails or late", "-x")
    assert {name: seen.outcome for name, seen in chosen.tests.items()} == {"test_fails": "failed"}
    again = project.run("--lf")
    assert set(again.tests) == {"test_fails"}


NO_TORCH = """
import sys
import pytest
code = pytest.main(["-q", "-p", "no:randomly", "-p", "no:cov", "test_plain.py"])
ours = ("ddpcheck.plugin.ddp_item_run", "ddpcheck.ranks")
loaded = [m for m in ("torch", "msgspec", "psutil", *ours) if m in sys.modules]
print("loaded:", loaded, "plugin:", "ddpcheck.pytest_plugin" in sys.modules)
sys.exit(code)
"""


def test_a_session_without_ddp_tests_imports_no_torch(project: InnerProject) -> None:
    """Neither importing ddpcheck nor a session without ddp tests imports torch, or the runtime."""
    project.write("test_plain.py", "import ddpcheck\ndef test_it(): assert ddpcheck.__all__\n")
    done = progress.run(
        [sys.executable, "-c", NO_TORCH],
        cwd=project.folder,
        env=project.environment(),
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "loaded: [] plugin: True" in done.stdout


COVERED = """
def only_in_ranks(rank):
    if rank == 1:
        return "line of rank one"
    return "line of rank zero"

def never():
    return "never"
"""


@pytest.mark.parametrize("how", ["coverage run", "pytest-cov"])
@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.long
def test_coverage_counts_lines_that_run_only_in_ranks(project: InnerProject, how: str, fresh: bool) -> None:
    """The lines of forked ranks, and of ranks that are interpreters of their own, are measured."""
    project.write("covered.py", COVERED)
    spoil = (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
        if fresh
        else ""
    )
    project.write(
        "test_it.py",
        spoil
        + "import covered, pytest\n@pytest.mark.ddp\ndef test_it(ddp):\n    assert covered.only_in_ranks(ddp.rank)\n",
    )
    project.write(
        "pyproject.toml",
        '[tool.coverage.run]\nbranch = true\nparallel = true\nsource = ["covered"]\n'
        'patch = ["subprocess", "fork", "_exit"]\n',
    )
    environment = project.environment()
    if how == "coverage run":
        command = [sys.executable, "-m", "coverage", "run", *project.command("-q")[1:]]
        progress.run(command, cwd=project.folder, env=environment, check=True)
        subprocess.run(
            [sys.executable, "-m", "coverage", "combine", "-q"], cwd=project.folder, env=environment, check=True
        )
    else:
        command = project.command("-q", "--cov", "covered", "--cov-report", "")
        progress.run(command, cwd=project.folder, env=environment, check=True)
    subprocess.run(
        [sys.executable, "-m", "coverage", "json", "-q", "-o", "cov.json"],
        cwd=project.folder,
        env=environment,
        check=True,
    )
    lines = json.loads((project.folder / "cov.json").read_text())["files"]["covered.py"]
    assert lines["missing_lines"] == [8]
    assert {3, 4, 5} <= set(lines["executed_lines"])


@pytest.mark.long
def test_a_value_that_is_a_path_moves_no_root(project: InnerProject) -> None:
    """pytest looks for its root from all paths among its arguments, of options too: ranks have the user's."""
    project.write("tests/test_it.py", "import pytest\n@pytest.mark.ddp\ndef test_it(ddp): pass\n")
    (project.folder / "pytest.ini").unlink()  # which would be the root's
    (project.folder.parent / "report.json").write_text("of the session before")
    ran = project.run("tests", "--ddp-report", "../report.json")
    assert ran["test_it"].outcome == "passed", ran.stdout
