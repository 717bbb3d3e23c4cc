"""``ddpcheck doctor`` as a user calls it: on this machine as it is, and with faults planted into its self-test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from textwrap import dedent

import psutil
import pytest

from ddpcheck.doctor import arguments, command, machine, self_test, torch_build
from ddpcheck.doctor.facts import Examination, SelfTest, Stack, Unknown
from tests import progress
from tests.inner import interruptible

DOCTOR = [sys.executable, "-m", "ddpcheck.cli", "doctor"]


def environment(folder: Path) -> dict[str, str]:
    """One in which temporary folders, and whatever is left in them, are this test's own."""
    return {**os.environ, "TMPDIR": str(folder), "COLUMNS": "80"}


def left_over(folder: Path) -> list[str]:
    """Processes that were started with this folder for their temporary files, and folders that they left in it."""
    found = [path.name for path in folder.glob("ddpcheck-*")]
    for process in psutil.process_iter():
        try:
            if process.environ().get("TMPDIR") == str(folder):
                found.append(" ".join(process.cmdline())[:100])
        except (psutil.Error, OSError):
            continue
    return found


def test_this_machine(tmp_path):
    """The stack works here: a PASS for gloo, no failure for want of a GPU, the same as JSON, and nothing left."""
    file = tmp_path / "doctor.json"
    run = progress.run(
        [*DOCTOR, "--json", file],
        env=environment(tmp_path) | {"PYTEST_ADDOPTS": "--no-such-option", "PYTEST_PLUGINS": "nonsense"},
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "PASS  gloo on the CPU" in run.stdout
    assert "HEALTHY  gloo on the CPU" in run.stdout
    assert "FAIL" not in run.stdout
    assert max(map(len, run.stdout.splitlines())) <= 80
    assert run.stderr == ""
    assert "\x1b" not in run.stdout
    document = json.loads(file.read_text())
    assert document["healthy"] is True
    assert {seam["there"] for seam in document["torch"]["seams"]} == {True}
    seams = len(document["torch"]["seams"])
    assert f"{seams} of {seams} places that probes rest on" in run.stdout
    assert "gloo" in document["torch"]["backends"]
    assert document["stack"]["ranks_start"].startswith(("forked", "as interpreters"))
    if document["torch"]["gpus"] == []:
        assert run.stdout.count("not testable here: no GPU") == 2
    assert left_over(tmp_path) == []


# --- faults


def session_of(tmp_path, body, seconds=120.0, told=None):
    """The self-tests of another file."""
    bodies = tmp_path / "planted.py"
    bodies.write_text(dedent(body))
    steps = told if told is not None else []
    return self_test.Session(bodies, time.monotonic() + seconds, lambda at, ended: steps.append((at, ended)))


@pytest.mark.long
def test_planted_faults(tmp_path):
    """A wrong gradient, a killed rank and a backend that cannot start: each fails, with its reason and its fix."""
    told: list[tuple[str, int]] = []
    stack = session_of(
        tmp_path,
        """
        import os, signal
        import pytest
        from ddpcheck.doctor import self_test_bodies as bodies

        @pytest.mark.ddp(world_size=2)
        def test_gloo_on_cpu(ddp):
            from torch.optim import SGD
            original = SGD.step
            def scaled(self, *args, **kwargs):
                for parameter in self.param_groups[0]["params"]:
                    parameter.grad *= 1 + ddp.rank / 1000
                return original(self, *args, **kwargs)
            SGD.step = scaled
            bodies.step_equals_oracle(ddp)

        @pytest.mark.ddp(world_size=2)
        def test_nccl_on_cuda(ddp):
            if ddp.rank == 1:
                os.write(2, b"its last words\\n")
                os.kill(os.getpid(), signal.SIGKILL)
            bodies.step_equals_oracle(ddp)

        @pytest.mark.ddp(world_size=2, timeout=61)
        def test_gloo_on_cuda(ddp):
            bodies.step_equals_oracle(ddp)

        if "torch" in __import__("sys").modules:  # where ranks come from: joining fails for that last test alone
            import torch.distributed as dist
            original = dist.init_process_group
            def refusing(*args, timeout, **kwargs):
                if timeout.total_seconds() == 61 + 120:
                    raise RuntimeError("no device of this backend was found")
                return original(*args, timeout=timeout, **kwargs)
            dist.init_process_group = refusing
        """,
        told=told,
    ).run()
    wrong, killed, refused = stack.tests
    assert {test.outcome for test in stack.tests} == {"failed"}
    assert not stack.healthy
    assert "rank 1" in wrong.text
    assert "differs from that of one process on the whole batch by up to" in wrong.text
    assert "torch" in wrong.advice
    assert "SIGKILL" in killed.text
    assert "its last words" in killed.text
    assert "memory" in killed.advice
    assert "no device of this backend was found" in refused.text
    assert isinstance(stack.ranks_start, Unknown)
    assert told[-1][1] == 3
    assert [ended for _, ended in told] == sorted(ended for _, ended in told)


def test_the_command_tells_of_a_failure(monkeypatch, capsys):
    """What the self-tests found is shown with what to do, and the command ends with 1."""
    failed = SelfTest(backend="gloo", device="cpu", outcome="failed", text="rank 1 failed first", advice="Fix it.")
    other = SelfTest(backend="nccl", device="cuda", outcome="untestable", text="it was not reached")
    stack = Stack(tests=(failed, other), ranks_start="forked", seconds=2.0)
    nothing = torch_build.unknown("not asked")
    monkeypatch.setattr(
        command, "examine", lambda timeout: Examination(machine=machine.examine(), torch=nothing, stack=stack)
    )
    assert command.doctor(arguments.read([])) == 1
    said = capsys.readouterr().out
    assert "FAIL  gloo on the CPU  rank 1 failed first" in said
    assert "fix   Fix it." in said
    assert "not testable here: it was not reached" in said
    assert "UNHEALTHY  1 self-test of 2 failed" in said


@pytest.mark.long
def test_what_hangs_is_ended_and_located(tmp_path):
    """A process that imports for ever is ended at the deadline, with the line where it stood; nothing of it is left."""
    reached = tmp_path / "reached"
    session = session_of(
        tmp_path,
        f"""
        import pathlib, sys, threading
        import pytest

        def wait_for_ever():
            pathlib.Path({str(reached)!r}).touch()
            threading.Event().wait()

        if "ddpcheck.zygote.zygote" in sys.modules:
            wait_for_ever()

        @pytest.mark.ddp(world_size=2)
        def test_gloo_on_cpu(ddp): ...
        """,
    )

    def deadline_when_it_hangs() -> None:
        while not reached.exists():
            time.sleep(0.01)
        session._deadline = time.monotonic()

    thread = threading.Thread(target=deadline_when_it_hangs)
    thread.start()
    stack = session.run()
    thread.join()
    first, *others = stack.tests
    assert first.outcome == "failed"
    assert "did not end within" in first.text
    assert f"{tmp_path}/planted.py:7 in wait_for_ever" in first.text
    assert {test.outcome for test in others} == {"untestable"}
    assert [p for p in psutil.Process().children(recursive=True) if str(tmp_path) in " ".join(p.cmdline())] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.long)])
def test_what_interrupts_it_ends_all(tmp_path, number):
    """Interrupted at whatever moment, it says so in one line, ends as a shell expects, and leaves nothing."""
    process = subprocess.Popen(
        DOCTOR,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=interruptible,
    )
    while not list(tmp_path.glob("ddpcheck-doctor-*/pytest.log")):
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(number)
    out, err = progress.communicate(process)
    assert (process.returncode, out, err) == (128 + number, "", "ddpcheck doctor: interrupted\n")
    assert left_over(tmp_path) == []


# --- usage


@pytest.mark.parametrize(("given", "words"), [
    (["--timeout", "soon"], "soon is no number of seconds above 0"),
    (["--timeout", "-1"], "-1 is no number of seconds above 0"),
    (["--json", "/no/such/folder/file"], "name a file in a folder that there is"),
    (["--jso", "x"], "there is no option --jso"),
    (["all"], "it takes options alone, and not all"),
])  # fmt: skip
def test_wrong_usage(capsys, given, words):
    """One sentence, exit code 2, and no self-test."""
    with pytest.raises(SystemExit) as left:
        arguments.read(given)
    assert left.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


def test_a_defect_of_its_own(capsys, monkeypatch):
    """It is reported as such, and ends with 4."""
    from ddpcheck import cli

    monkeypatch.setattr(command, "examine", lambda timeout: 1 / 0)
    assert cli.main(["doctor"]) == 4
    assert "ddpcheck itself failed" in capsys.readouterr().err
