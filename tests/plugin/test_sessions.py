"""What surrounds the tests: interruptions, distribution, options, and what a session costs that needs none of it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest

from tests.inner import InnerProject

BLOCKED = """
import os, subprocess, time
import pytest, torch.distributed as dist

@pytest.mark.ddp(world_size=3)
def test_blocked(ddp):
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


def wait_until(condition: Callable[[], bool], patience: float = 60.0) -> bool:
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_the_session(project: InnerProject, number: signal.Signals) -> None:
    """However pytest ends, its ranks, their children and the zygote end with it, and the private folders are gone."""
    project.write("test_it.py", BLOCKED)
    process = project.start()
    assert wait_until(lambda: len(list(project.temp.glob("ready*"))) == 3), process.communicate()
    process.send_signal(number)
    process.communicate(timeout=30)
    if number == signal.SIGINT:
        assert process.returncode == pytest.ExitCode.INTERRUPTED
    assert wait_until(lambda: project.leftover_processes() == [], 5), project.leftover_processes()
    assert wait_until(lambda: project.leftover_folders() == [], 5), project.leftover_folders()


@pytest.mark.parametrize("times", [1, 2])
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
    process.communicate(timeout=30)
    assert wait_until(lambda: project.leftover_processes() == [], 5), project.leftover_processes()
    assert project.leftover_folders() == []


def test_nothing_outlives_a_killed_zygote(project: InnerProject) -> None:
    """A zygote that is killed takes its ranks along; the test is an error, and the session goes on."""
    import psutil

    project.write("test_it.py", BLOCKED)
    process = project.start()
    assert wait_until(lambda: len(list(project.temp.glob("ready*"))) == 3), process.communicate()
    (zygote,) = [p for p in psutil.Process(process.pid).children() if "ddpcheck.ranks.zygote" in " ".join(p.cmdline())]
    for file in project.temp.glob("ready*"):
        file.unlink()
    zygote.kill()
    # Its ranks are started once more, as interpreters of their own: kill that attempt's root as well.
    assert wait_until(lambda: len(list(project.temp.glob("ready*"))) == 3), process.communicate()
    (zygote,) = [p for p in psutil.Process(process.pid).children() if "ddpcheck.ranks.zygote" in " ".join(p.cmdline())]
    zygote.kill()
    process.communicate(timeout=30)
    seen = project.seen()
    assert seen["test_blocked"].outcome == "error"
    assert "the process that ranks come from was killed by SIGKILL" in seen["test_blocked"].text
    assert seen["test_after"].outcome == "passed"
    assert wait_until(lambda: project.leftover_processes() == [], 5), project.leftover_processes()


def test_what_a_conftest_started_for_the_session_lives_as_long(project: InnerProject) -> None:
    """A server that hooks start beside the ranks is no leftover of the first test; it ends with the session."""
    project.write(
        "conftest.py",
        """
        import subprocess
        def pytest_configure(config):
            if hasattr(config, "workerinput"):
                config.server = subprocess.Popen(["sleep", "1004"])
        """,
    )
    project.write(
        "test_it.py",
        """
        import psutil, pytest, subprocess
        @pytest.mark.ddp
        @pytest.mark.parametrize("turn", [1, 2])
        def test_it(ddp, request, turn):
            assert psutil.Process(request.config.server.pid).status() != psutil.STATUS_ZOMBIE
            subprocess.Popen(["sleep", "1005"])
        """,
    )
    ran = project.run()
    assert {seen.outcome for seen in ran.tests.values()} == {"passed"}, ran.stdout
    assert all("sleep 1005" in " ".join(seen.warnings) for seen in ran.tests.values())
    assert not any("sleep 1004" in " ".join(seen.warnings) for seen in ran.tests.values())
    assert wait_until(lambda: project.leftover_processes() == [], 5), project.leftover_processes()


PASSING_AND_FAILING = """
import pytest, torch, torch.distributed as dist
import ddpcheck

@pytest.mark.ddp
@pytest.mark.parametrize("n", range(4))
def test_passes(ddp, n):
    ddpcheck.assert_replicas_identical(ddp.wrap(torch.nn.Linear(2, 2)))

@pytest.mark.ddp
def test_fails(ddp):
    if ddp.rank == 1:
        assert ddp.rank == 9
    dist.barrier()

@pytest.mark.ddp
def test_skips(ddp):
    pytest.skip("no")
"""


def test_xdist(project: InnerProject) -> None:
    """Under pytest-xdist every worker has its own zygote, and reports arrive whole."""
    project.write("test_it.py", PASSING_AND_FAILING)
    ran = project.run("-n", "2", "--ddp-report", "report.json")
    assert {name: seen.outcome for name, seen in ran.tests.items()} == {
        **{f"test_passes[{n}]": "passed" for n in range(4)},
        "test_fails": "failed",
        "test_skips": "skipped",
    }
    assert "rank 1 failed first" in ran["test_fails"].text
    assert "assert 1 == 9" in ran["test_fails"].text
    document = json.loads((project.folder / "report.json").read_text())
    assert document["checks"]["initial-broadcast"] == {
        "status": "held",
        "exercised": 4,
        "violated": 0,
        "skipped_because": None,
    }
    assert project.leftover_processes() == []


def test_reports_in_files(project: InnerProject) -> None:
    """The JSON names every test, its ranks and checks; the JUnit XML has the failure's text."""
    project.write("test_it.py", PASSING_AND_FAILING)
    ran = project.run("--ddp-report", "deep/report.json", "--junitxml", "junit.xml")
    document = json.loads((project.folder / "deep" / "report.json").read_text())
    assert document["schema"] == 1
    assert set(document["versions"]) == {"ddpcheck", "torch", "python"}
    assert document["checks"]["gradient-sync"]["status"] == "not-exercised"
    by_id = {test["nodeid"]: test for test in document["tests"]}
    failed = by_id["test_it.py::test_fails"]
    assert (failed["outcome"], failed["world_size"], failed["backend"]) == ("failed", 2, "gloo")
    assert [rank["rank"] for rank in failed["ranks"]] == [0, 1]
    root = ET.parse(project.folder / "junit.xml").getroot()
    failures = {case.get("name"): case.find("failure") for case in root.iter("testcase")}
    assert "rank 1 failed first" in (failures["test_fails"].text or "")  # type: ignore[union-attr]
    assert failures["test_passes[0]"] is None
    assert "invariants, as 6 ddp tests exercised them in 12 ranks" in ran.stdout
    assert ["initial-broadcast", "4", "0"] in [line.split() for line in ran.stdout.splitlines()]


def test_selection_and_stopping(project: InnerProject) -> None:
    """-k, -x and --lf choose and stop as ever."""
    project.write("test_it.py", PASSING_AND_FAILING + "\n@pytest.mark.ddp\ndef test_late(ddp): pass\n")
    chosen = project.run("-k", "fails or late", "-x")
    assert {name: seen.outcome for name, seen in chosen.tests.items()} == {"test_fails": "failed"}
    again = project.run("--lf")
    assert set(again.tests) == {"test_fails"}


def test_pytest_exit_ends_the_session(project: InnerProject) -> None:
    """pytest.exit in a rank ends the session, with its reason."""
    project.write(
        "test_it.py",
        """
        import pytest
        @pytest.mark.ddp
        def test_it(ddp):
            if ddp.rank == 1:
                pytest.exit("enough of this")
        def test_after(): pass
        """,
    )
    ran = project.run()
    assert "rank 1 called pytest.exit: enough of this" in ran.stdout
    assert "test_after" not in ran.tests


def test_timeouts_of_mark_option_and_ini(project: InnerProject) -> None:
    """The mark's timeout outranks the option, the option the ini file."""
    project.write("pytest.ini", "[pytest]\nddp_timeout = 11\n")
    project.write(
        "test_it.py",
        """
        import pytest
        @pytest.mark.ddp(timeout=13)
        def test_mark(ddp): assert ddp._plan.timeout == 13
        @pytest.mark.ddp
        def test_other(ddp): print("timeout", ddp._plan.timeout)
        """,
    )
    by_ini = project.run()
    assert by_ini["test_mark"].outcome == "passed"
    assert "timeout 11.0" in by_ini["test_other"].output
    by_option = project.run("--ddp-timeout", "12")
    assert by_option["test_mark"].outcome == "passed"
    assert "timeout 12.0" in by_option["test_other"].output


def test_teardown_of_other_tests_fixtures(project: InnerProject) -> None:
    """Module fixtures of plain tests are torn down in time, with ddp tests before, between and after them."""
    for name in "ab":
        project.write(
            f"test_{name}.py",
            """
            import pytest
            events = []
            @pytest.fixture(scope="module")
            def thing():
                events.append("up")
                yield
                print("down once")
            def test_plain(thing): assert events == ["up"]
            @pytest.mark.ddp
            def test_ranks(ddp): assert events == []
            def test_plain_again(thing): assert events == ["up"]
            @pytest.mark.ddp
            def test_ranks_at_the_end(ddp): pass
            """,
        )
    ran = project.run("-s")
    assert ran.code == 0, ran.stdout
    assert ran.stdout.count("down once") == 2


FALLBACKS = {
    "threads": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True, name='pump').start()",
        "pump",
    ),
    "openmp": ("import torch\ntorch.set_num_threads(4)\ntorch.ones(999, 999).sum()", "threads (native)"),
}


@pytest.mark.parametrize("kind", FALLBACKS)
def test_modules_that_cannot_be_forked_from(project: InnerProject, kind: str) -> None:
    """A module that starts threads, Python's or native ones, gets ranks of their own, and the session says so once."""
    code, word = FALLBACKS[kind]
    body = """
    import pytest, torch
    @pytest.mark.ddp
    def test_step(ddp):
        model = ddp.wrap(torch.nn.Linear(2, 2))
        model(torch.ones(1, 2)).sum().backward()
    """
    project.write("test_a_spoiling.py", code + "\n" + "\n".join(line[4:] for line in body.splitlines()))
    project.write("test_b_clean.py", body)
    ran = project.run()
    assert ran.code == 0, ran.stdout
    (fresh, clean) = (json.loads(line) for line in _ddp_lines(project))
    assert (fresh["fresh"], clean["fresh"]) == (True, False)
    said = [w for seen in ran.tests.values() for w in seen.warnings]
    assert len(said) == 1
    assert "test_a_spoiling.py start as interpreters of their own" in said[0]
    assert word in said[0]
    assert project.leftover_processes() == []


def _ddp_lines(project: InnerProject) -> list[str]:
    entries = [json.loads(line) for line in (project.folder / "record.jsonl").read_text().splitlines()]
    return [json.dumps(entry["ddp"]) for entry in entries if entry.get("ddp")]


def test_a_module_that_crashes_when_it_is_imported_in_ranks(project: InnerProject) -> None:
    """The test is an error that names rank and signal; other modules' tests go on."""
    project.write(
        "test_a.py",
        """
        import os, pytest
        if "DDPCHECK_RUN" in os.environ:
            os.kill(os.getpid(), 11)
        @pytest.mark.ddp
        def test_it(ddp): pass
        """,
    )
    project.write("test_b.py", "import pytest\n@pytest.mark.ddp\ndef test_it2(ddp): pass\n")
    ran = project.run()
    assert ran["test_it"].outcome == "error"
    # The other rank crashes too, or was ended before it could.
    assert re.search(r"rank [01] failed first: it could not start .*\nSIGSEGV", ran["test_it"].text)
    assert ran["test_it2"].outcome == "passed"


def test_a_module_that_makes_a_group_when_it_is_imported(project: InnerProject) -> None:
    """It is told that the group of a test is not its to make."""
    project.write(
        "test_it.py",
        """
        import pytest, torch.distributed as dist
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        @pytest.mark.ddp
        def test_it(ddp): pass
        """,
    )
    ran = project.run()
    assert ran["test_it"].outcome == "error"
    assert "made a default process group; ddpcheck makes the group of every test" in ran["test_it"].text


def test_ids_that_change(project: InnerProject) -> None:
    """A test whose id is another each time is told what to mend."""
    project.write(
        "test_it.py",
        """
        import os, pytest
        @pytest.mark.ddp
        @pytest.mark.parametrize("x", [1], ids=[f"p{os.getpid()}"])
        def test_it(ddp, x): pass
        """,
    )
    ran = project.run()
    (seen,) = ran.tests.values()
    assert seen.outcome == "error"
    assert "Its id must be the same every time" in seen.text


def test_side_by_side(project: InnerProject, tmp_path: os.PathLike[str]) -> None:
    """Sessions run side by side: there is no fixed port and no shared name."""
    others = [InnerProject(project.folder.parent / f"other{n}") for n in range(2)]
    for one in others:
        one.write("test_it.py", PASSING_AND_FAILING)
    running = [one.start() for one in others]
    for process in running:
        process.communicate(timeout=200)
    for one in others:
        assert {name for name, seen in one.seen().items() if seen.outcome == "passed"} == {
            f"test_passes[{n}]" for n in range(4)
        }


NO_TORCH = """
import sys
import pytest
code = pytest.main(["-q", "-p", "no:randomly", "-p", "no:cov", "test_plain.py"])
loaded = [m for m in ("torch", "msgspec", "psutil", "ddpcheck.session", "ddpcheck.ranks") if m in sys.modules]
print("loaded:", loaded, "plugin:", "ddpcheck.pytest_plugin" in sys.modules)
sys.exit(code)
"""


def test_a_session_without_ddp_tests_imports_no_torch(project: InnerProject) -> None:
    """Neither importing ddpcheck nor a session without ddp tests imports torch, or the runtime."""
    project.write("test_plain.py", "import ddpcheck\ndef test_it(): assert ddpcheck.__all__\n")
    done = subprocess.run(
        [sys.executable, "-c", NO_TORCH],
        cwd=project.folder,
        env=project.environment(),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
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
@pytest.mark.parametrize("fresh", [False, pytest.param(True, marks=pytest.mark.long)])
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
        subprocess.run(command, cwd=project.folder, env=environment, check=True, capture_output=True, timeout=200)
        subprocess.run(
            [sys.executable, "-m", "coverage", "combine", "-q"], cwd=project.folder, env=environment, check=True
        )
    else:
        command = project.command("-q", "--cov", "covered", "--cov-report", "")
        subprocess.run(command, cwd=project.folder, env=environment, check=True, capture_output=True, timeout=200)
    subprocess.run(
        [sys.executable, "-m", "coverage", "json", "-q", "-o", "cov.json"],
        cwd=project.folder,
        env=environment,
        check=True,
    )
    lines = json.loads((project.folder / "cov.json").read_text())["files"]["covered.py"]
    assert lines["missing_lines"] == [8]
    assert {3, 4, 5} <= set(lines["executed_lines"])
