"""What the tests wait with: a slow process is waited for, one that hangs is given up."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

from tests.progress import MOST, PATIENCE, SHARE, NoProgress, Progress, kill, processor_time, run, wait_for

SLEEPS = "import time; print('begun', flush=True); time.sleep(600)"
HAS_CHILDREN = f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {SLEEPS!r}]))"


class Told:
    """A process whose processor time, output and clock the test sets."""

    def __init__(self):
        self.now = self.used = 0.0
        self.printed = 0
        self.progress = Progress(lambda: self.used, now=lambda: self.now)

    def passes(self, seconds, used=0.0, printed=0, looks=60):
        for _ in range(looks):
            self.now += seconds / looks
            self.used += used / looks
            self.printed += printed / looks
            self.progress.look(self.printed)


def test_a_slow_process_is_waited_for():
    """At a tenth of a processor it may take an hour, or until the machine has time for it."""
    Told().passes(3600, used=360, looks=1000)


def test_a_process_that_prints_is_waited_for():
    Told().passes(3600, printed=100, looks=1000)


@pytest.mark.parametrize("used", [0.0, SHARE / 4])
def test_a_process_that_hangs_is_given_up(used):
    """Also where it looks at something now and then, as a command that waits for its ranks."""
    told = Told()
    told.passes(60, used=20)
    with pytest.raises(NoProgress, match="has printed nothing"):
        told.passes(3 * PATIENCE, used=used * 3 * PATIENCE)
    assert told.now < 60 + 1.5 * PATIENCE


def test_a_process_that_never_ends_is_given_up():
    with pytest.raises(NoProgress, match="processor time, and has not ended"):
        Told().passes(4 * MOST, used=2 * MOST, looks=1000)


def test_the_time_of_processes_that_have_ended_is_kept():
    """What is used by all that live may fall: that is no progress, and none is lost."""
    told = Told()
    told.passes(10, used=10)
    told.used = 0.0
    told.passes(10, used=10)
    with pytest.raises(NoProgress, match="has used 6"):
        told.passes(4 * MOST, used=2 * MOST, looks=1000)


def test_a_process_that_ends_is_no_matter_of_patience():
    ran = run([sys.executable, "-c", "import sys; print(input()); sys.exit(3)"], input="line\n", text=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (3, "line\n", "")


def test_a_failure_can_be_raised():
    with pytest.raises(subprocess.CalledProcessError):
        run([sys.executable, "-c", "raise SystemExit(1)"], check=True)


def test_the_children_of_what_hangs_are_killed():
    before = psutil.Process().children(recursive=True)
    with pytest.raises(NoProgress, match="begun"):
        run([sys.executable, "-c", HAS_CHILDREN], patience=3.0, text=True)
    _, alive = psutil.wait_procs([one for one in psutil.Process().children(recursive=True) if one not in before], 10)
    assert [one for one in alive if one.status() != psutil.STATUS_ZOMBIE] == []


def test_a_child_that_computes_is_progress():
    """The process itself does nothing but wait for it."""
    code = "import subprocess, sys; subprocess.call([sys.executable, '-c', 'while True: pass'])"
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        wait_for(lambda: processor_time(process.pid) > 2, process)
        assert sum(psutil.Process(process.pid).cpu_times()[:2]) < 1
    finally:
        kill(process.pid)
        process.wait()


def test_a_wait_ends_with_progress():
    """What never comes to hold is waited for as long as the process makes progress."""
    process = subprocess.Popen([sys.executable, "-c", SLEEPS], stdout=subprocess.DEVNULL)
    try:
        with pytest.raises(NoProgress):
            wait_for(lambda: False, process, patience=2.0)
    finally:
        kill(process.pid)
        process.wait()


def test_nothing_is_used_by_a_process_that_is_gone():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    kill(process.pid)
    assert processor_time(process.pid) == 0.0
