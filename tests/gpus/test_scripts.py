"""Programs of the tests on GPUs: their limits, and that nothing of them is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from tests.gpu import scripts
from tests.inner import wait_until

CHILD = (
    "import os, subprocess, sys, time; "
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True); "
    "print(child.pid, flush=True); "
)


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def python(code: str, tmp_path, **how) -> scripts.Ended:
    return scripts.run([sys.executable, "-c", code], tmp_path, **{"limit": 60.0, **how})


def test_what_it_prints_is_told_line_by_line(tmp_path):
    """Both streams, in their order, and the exit code."""
    told = []
    code = "import sys; print('out', flush=True); print('err', file=sys.stderr); sys.exit(3)"
    ended = python(code, tmp_path, tell=told.append)
    assert (ended.code, ended.output, ended.timed_out, ended.left) == (3, "out\nerr\n", False, ())
    assert told == ["out\n", "err\n"]


@pytest.mark.parametrize("how", [{"limit": 1.0}, {"limit": 60.0, "silence": 1.0}])
def test_at_its_limit_it_is_ended_whole(tmp_path, how):
    """Also what it has started in a session of its own, as torchrun starts ranks."""
    began = time.monotonic()
    ended = python(CHILD + "time.sleep(600)", tmp_path, **how)
    assert ended.timed_out
    assert ended.code == -signal.SIGTERM
    assert wait_until(lambda: is_gone(int(ended.output)), 10)
    assert time.monotonic() - began < 30


def test_what_is_deaf_to_being_asked_is_killed(tmp_path, monkeypatch):
    """A program that is stuck in a driver hears nothing."""
    monkeypatch.setattr(scripts, "GRACE", 0.5)
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); time.sleep(600)"
    )
    ended = python(deaf, tmp_path, limit=60.0, silence=1.0)
    assert ended.code == -signal.SIGKILL


def test_what_it_leaves_behind_is_told_and_ended(tmp_path, monkeypatch):
    """A program that has ended by itself may have left a rank on the GPU."""
    monkeypatch.setattr(scripts, "GRACE", 0.5)
    ended = python(CHILD, tmp_path)
    assert ended.code == 0
    assert len(ended.left) == 1
    assert "sleep(600)" in ended.left[0]
    assert wait_until(lambda: is_gone(int(ended.output)), 10)


def test_an_interrupted_test_leaves_nothing(tmp_path, request):
    """An error of who waits ends the program, too."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may ignore it
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))

    def tell(line):
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        python("print('on', flush=True); import time; time.sleep(600)", tmp_path, tell=tell)
    assert not [one for one in psutil.Process().children(recursive=True) if "sleep(600)" in " ".join(one.cmdline())]


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells it on Linux alone")
def test_it_ends_with_the_process_of_the_tests(tmp_path):
    """Where pytest is killed, nobody is there to end it."""
    inner = "print(os.getpid(), flush=True); time.sleep(600)"
    code = (
        "import sys; from pathlib import Path; from tests.gpu import scripts; "
        f"scripts.run([sys.executable, '-c', 'import os, time; {inner}'], Path('.'), 600, "
        "tell=lambda line: print(line, flush=True))"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        pid = int(tests.stdout.readline())
        tests.kill()
    assert wait_until(lambda: is_gone(pid), 20)


def test_a_program_within_a_program(tmp_path):
    """The outer one's end is the end of both; the inner one's is its own."""
    mark = f"import os; print(os.environ[{scripts.MARK!r}])"
    code = (
        f"import os, sys; from pathlib import Path; from tests.gpu import scripts; {mark}; "
        f"print(scripts.run([sys.executable, '-c', {mark!r}], Path('.'), 60).output)"
    )
    ended = scripts.run([sys.executable, "-c", code], scripts.Path.cwd(), 60)
    outer, inner = ended.output.split()
    assert inner.startswith(outer)
    assert inner.count("/") == 2 + outer.count("/") - 1
