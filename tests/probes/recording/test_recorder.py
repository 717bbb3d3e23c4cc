"""The recorder: what it writes, where, and that nothing which fails in it reaches the program that is watched."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import subprocess
import sys

import pytest

from ddpcheck import evidence as ev
from ddpcheck.evidence import framing
from ddpcheck.judging.evidence_folder import Folder
from ddpcheck.probes import all_probes
from ddpcheck.probes.recording import recorder, user_lines


@pytest.fixture
def writer(tmp_path):
    """A recorder that is let go of at the end."""
    made = recorder.Recorder(tmp_path, 1 << 20)
    yield made
    made.let_go()


def say(writer, doing):
    writer.write(ev.Pulse(**writer.next(), site=0, doing=doing, pending=None))


def read(folder):
    """What each process has said, and why it stopped."""
    found = Folder(folder)
    found.read()
    return [([p.doing for p in process.of(ev.Pulse)], process.gap) for process in found.processes.values()]


def low():
    """The descriptors that a program comes by."""
    return {int(name) for name in os.listdir("/proc/self/fd") if int(name) < 1000}


def test_its_descriptor_is_none_that_a_program_comes_by(tmp_path, writer):
    """It takes none of the first numbers, and no program that is started inherits it."""
    assert writer._fd >= 1000 or writer._fd >= resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert not os.get_inheritable(writer._fd)
    before = low()
    other = recorder.Recorder(tmp_path, 1 << 20)
    assert low() == before
    other.let_go()


def test_where_few_descriptors_are_allowed_all_are_the_programs(tmp_path):
    """The limit is as it was, and so many descriptors as without a recorder can be opened."""
    code = """
import os, resource, sys
from pathlib import Path
from ddpcheck.probes.recording import recorder

hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
def count():
    made = []
    try:
        while True:
            made.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    for one in made:
        os.close(one)
    return len(made)
before = count()
writer = recorder.Recorder(Path(sys.argv[1]), 1 << 20)
assert writer._fd >= 64, writer._fd
assert (count(), resource.getrlimit(resource.RLIMIT_NOFILE)) == (before, (64, hard))
taken = [os.open("/dev/null", os.O_RDONLY) for _ in range(before)]
os.closerange(3, 64)
os.close(writer._fd)
taken = [os.open("/dev/null", os.O_RDONLY) for _ in range(before)]
writer.write(recorder.Defect(**writer.next(), text="still there"))
assert writer.open
"""
    run = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_a_closed_descriptor_is_opened_again(tmp_path, writer):
    """Programs close what they have inherited: the file is known by its name."""
    say(writer, "one")
    os.close(writer._fd)
    say(writer, "two")
    assert read(tmp_path) == [(["one", "two"], "")]


@pytest.mark.parametrize("marked", [True, False])
def test_nothing_is_written_to_a_file_of_somebody_elses(tmp_path, writer, marked):
    """A program may have closed the descriptor, and have its own file under the number."""
    writer._marked &= marked
    other = tmp_path / "metrics.db"
    with other.open("ab") as file:
        os.dup2(file.fileno(), writer._fd)
    number = writer._fd
    say(writer, "one")
    writer.close()
    assert other.read_bytes() == b""
    assert os.fstat(number).st_ino == other.stat().st_ino, "it is left open: it is not ours"
    os.close(number)
    assert read(tmp_path) == [(["one"], "")]


def test_where_the_file_is_gone_recording_stops(tmp_path, writer):
    """It is neither made again nor written where another one stands under its name."""
    writer.path.unlink()
    writer.path.write_bytes(b"mine")
    os.close(writer._fd)
    say(writer, "one")
    say(writer, "two")
    assert not writer.open
    assert writer.path.read_bytes() == b"mine"


def test_a_value_that_cannot_be_written_is_a_defect_of_ours(tmp_path, writer):
    """The record is lost, the file says so, and nothing raises."""
    writer.write(ev.Pulse(**writer.next(), site=1 << 70, doing="", pending=None))
    say(writer, "two")
    found = Folder(tmp_path)
    found.read()
    (process,) = found.processes.values()
    assert [type(record) for record in process.records] == [ev.Defect, ev.Pulse]


def test_a_process_that_is_forked_leaves_its_parents_file_alone(tmp_path, monkeypatch):
    """It has a file of its own, or none; and no descriptor of its parent's."""
    monkeypatch.setattr(recorder, "_recorder", None)
    writer = watching_begins(tmp_path)
    pid = os.fork()
    if not pid:
        all_probes._forked()
        ours = recorder.always()
        say(ours, "child")
        os._exit(int(os.path.exists(f"/proc/self/fd/{writer._fd}") and ours._fd != writer._fd))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    say(writer, "parent")
    assert sorted(read(tmp_path)) == [(["child"], ""), (["parent"], "")]
    recorder.stop()


def watching_begins(folder):
    all_probes.open_file(folder, 1 << 20)
    return recorder.always()


@pytest.mark.parametrize("name", ["GROUP_RANK", "RANK", "LOCAL_RANK"])
@pytest.mark.parametrize("value", ["abc", "", "-1", "²", "9" * 30])
def test_any_environment_is_taken(tmp_path, monkeypatch, name, value):
    """A variable that is no number is none."""
    monkeypatch.setattr(recorder, "_recorder", None)
    monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["caf\udce9", b"bytes"])
    watching_begins(tmp_path)
    recorder.stop()
    found = Folder(tmp_path)
    found.read()
    (process,) = found.processes.values()
    assert process.began.argv == ["caf\\udce9", "b'bytes'"]
    assert (process.began.node, process.began.rank) in ((0, None), (0, all_probes.whole("RANK")))


def test_a_removed_working_folder_is_no_hindrance(tmp_path, monkeypatch):
    """Lines are told by the names that their files were given."""
    monkeypatch.setattr(recorder, "_recorder", None)
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    watching_begins(tmp_path)
    assert user_lines.number("train.py", 3, "main") == 1
    recorder.stop()
    monkeypatch.undo()


# --- one failure at a time

ALL = ["one", "two", "three", "four"]
programs_close = os.close


def training(folder):
    """What a program does, from the recorder's point of view: it begins, writes, forks, and ends."""
    with contextlib.suppress(OSError):  # who begins to watch goes on without a recorder
        recorder.begin(folder, 1 << 20)
    for number, doing in enumerate(ALL):
        writer = recorder.current()
        if writer is not None:
            say(writer, doing)
            if number == 1:
                programs_close(writer._fd)
    writer = recorder.leave()  # as a forked process does
    if writer is not None:
        with contextlib.suppress(OSError):
            recorder.begin(folder, 1 << 20)
    recorder.stop()


class Failing:
    """A function whose n-th call fails."""

    def __init__(self, original, n, error):
        self.original, self.left, self.error = original, n, error

    def __call__(self, *args, **kwargs):
        self.left -= 1
        if self.left == 0:
            raise self.error
        return self.original(*args, **kwargs)


CALLS = [
    (os, "open", OSError(errno.EMFILE, "no descriptors")),
    (os, "open", OSError(errno.ENOSPC, "no inode")),
    (os, "write", OSError(errno.ENOSPC, "full")),
    (os, "write", OSError(errno.EIO, "broken")),
    (os, "pwrite", OSError(errno.EIO, "broken")),
    (os, "fstat", OSError(errno.EBADF, "closed")),
    (os, "close", OSError(errno.EBADF, "closed")),
    (fcntl, "fcntl", OSError(errno.EMFILE, "no descriptors")),
    (resource, "getrlimit", OSError(errno.EPERM, "not allowed")),
    (resource, "setrlimit", OSError(errno.EPERM, "not allowed")),
    (framing, "_encoder", MemoryError()),
    (framing, "_encoder", OverflowError()),
]


@pytest.mark.parametrize(("owner", "name", "error"), CALLS, ids=[f"{n}-{e!r}" for _, n, e in CALLS])
def test_whatever_fails_the_program_goes_on_and_the_evidence_is_true(tmp_path, monkeypatch, owner, name, error):
    """The n-th call fails, for every n: nothing raises, no earlier record is lost, and one that is missing shows."""
    monkeypatch.setattr(recorder, "_recorder", None)
    n = 0
    while True:
        n += 1
        folder = tmp_path / str(n)
        folder.mkdir()
        if name == "_encoder":
            failing = Failing(framing._encoder.encode, n, error)
            double = type("Encoder", (), {"encode": staticmethod(failing)})
        else:
            double = failing = Failing(getattr(owner, name), n, error)
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, double)
            training(folder)
        found = Folder(folder)
        found.read()
        told = [process for process in found.processes.values() if process.records]
        for process in told:
            said = [pulse.doing for pulse in process.of(ev.Pulse)]
            assert said == [one for one in ALL if one in said], n
            assert process.gap or process.of(ev.Defect) or said == ALL, n
        assert told or n <= 2 or failing.left > 0, "only what fails at the very beginning leaves nothing"
        if failing.left > 0:
            assert [[p.doing for p in process.of(ev.Pulse)] for process in told] == [ALL]
            return


# --- in memory


@pytest.fixture
def kept():
    """A recorder that keeps its records, in the place of this process's own."""
    made = recorder.InMemory(most=3)
    recorder.use(made)
    yield made
    recorder.use(None)


def test_records_are_kept_as_long_as_there_is_room(kept):
    """All of every kind, in their order, and no more than so many."""
    assert recorder.current() is kept
    for doing in "abcde":
        say(kept, doing)
    assert [one.doing for one in kept.kept] == ["a", "b", "c"]
    assert [one.n for one in kept.kept] == [1, 2, 3]
    assert kept.stride(ev.Step) == 1


@pytest.mark.parametrize("end", [recorder.stop, recorder.leave])
def test_what_is_kept_needs_no_end(kept, end):
    """It has no file: to stop, to be left in a fork and to sign are nothing to it."""
    say(kept, "a")
    kept.sign()
    end()
    assert recorder.always() is None
    assert [one.doing for one in kept.kept] == ["a"]
