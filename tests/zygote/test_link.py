"""A zygote that cannot be started, or does not answer, seen from the pytest process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time

import pytest

from ddpcheck.ranks import messages, private_folders
from ddpcheck.ranks.channel import Channel, Closed
from ddpcheck.zygote import link

HELLO = messages.Hello(options={}, args=[], sys_path=[], cwd="/", workerinput={}, runtime_dir="")


class Theirs:
    """The other ends of a zygote's connections, and a process in its place."""

    def __init__(self, monkeypatch):
        monkeypatch.setattr(link, "launch", self._launch)

    def _launch(self, module, descriptors, *args, **popen):
        self.control, self.keeper = (Channel(socket.socket(fileno=os.dup(d))) for d in descriptors[:2])
        self.process = subprocess.Popen(["sleep", "600"])
        return self.process


@pytest.fixture
def temp(tmp_path, monkeypatch):
    """A place for temporary files of its own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def theirs(temp, monkeypatch):
    """A zygote that says what a test lets it say."""
    return Theirs(monkeypatch)


@pytest.fixture
def zygote(theirs):
    """The hold on it."""
    held = link.Zygote(HELLO, show_output=False)
    yield held
    theirs.control.close()
    theirs.keeper.close()
    theirs.process.kill()
    assert held.discard() == "the process that ranks come from was killed by SIGKILL"


@pytest.mark.parametrize("what", ["mkdtemp", "open", "socketpair", "launch"])
def test_what_was_begun_is_let_go_of(temp, monkeypatch, what):
    """Wherever the start fails, the n-th time for every n, neither a descriptor nor a folder stays, and it is said."""
    owner = {"mkdtemp": tempfile, "open": os, "socketpair": socket, "launch": link}[what]
    plain = getattr(owner, what) if what != "launch" else lambda *args, **more: subprocess.Popen(["true"])
    monkeypatch.setattr(link, "launch", lambda *args, **more: subprocess.Popen(["true"]))
    before = len(os.listdir("/proc/self/fd"))
    for failing in range(1, 20):
        left = [failing]

        def refuse(*args, left=left, **more):
            left[0] -= 1
            if left[0] == 0:
                raise OSError(24, "Too many open files")
            return plain(*args, **more)

        refused, made = "", None
        with monkeypatch.context() as patched:
            patched.setattr(owner, what, refuse)
            try:
                made = link.Zygote(HELLO, show_output=False)
            except OSError as error:
                refused = str(error)
        if made is not None:
            made.discard()
        assert len(os.listdir("/proc/self/fd")) == before
        assert list(temp.iterdir()) == []
        if not refused:
            assert failing > 1
            return
        assert "Too many open files" in refused
    raise AssertionError("it did not come to an end of what may fail")


def test_a_stopped_zygote_is_given_up_at_the_deadline(theirs, zygote):
    """As soon as its time is over, and not before; what it said until then counts."""
    zygote.send(messages.Abort())
    now = time.monotonic()
    theirs.control.send(messages.Watching(until=now + 0.3, begun=True, run_dir="x", pids=(1, 2)))
    theirs.keeper.send(messages.Halted(signal=int(signal.SIGSTOP)))
    with pytest.raises(link.Unanswered, match="was stopped by SIGSTOP"):
        zygote.receive(60.0)
    assert 0.3 <= time.monotonic() - now < 10
    assert zygote.watching is not None
    assert zygote.asked


def test_a_zygote_that_goes_on_is_heard(theirs, zygote):
    """After SIGCONT its deadline is its own matter again."""
    zygote.send(messages.Abort())
    theirs.keeper.send(messages.Halted(signal=int(signal.SIGSTOP)))
    theirs.keeper.send(messages.Halted(signal=None))
    theirs.control.send(messages.Watching(until=time.monotonic() - 1, begun=True, run_dir="x", pids=()))
    theirs.control.send(messages.Broken(text="heard"))
    assert zygote.receive(0.0) == messages.Broken(text="heard")
    assert not zygote.asked


def test_one_that_is_not_stopped_and_late_is_given_up_too(theirs, zygote, monkeypatch):
    """Much later: it may be at work on tracebacks."""
    monkeypatch.setattr(link, "LATE", 0.2)
    zygote.send(messages.Abort())
    theirs.control.send(messages.Watching(until=time.monotonic(), begun=True, run_dir="x", pids=()))
    with pytest.raises(link.Unanswered, match="did not answer"):
        zygote.receive(60.0)


def test_the_end_of_the_zygote_is_heard(theirs, zygote):
    """At once, whatever its deadline."""
    theirs.control.hang_up()
    with pytest.raises(Closed):
        zygote.receive(60.0)


def test_an_import_without_end_is_given_up(theirs, zygote, monkeypatch):
    """With the file's name; as long as it goes on from file to file, it is waited for."""
    monkeypatch.setattr(link, "SILENCE", 0.3)
    begun = time.monotonic()  # what is waited for counts from the question on
    zygote.send(messages.Abort())
    private_folders.note_collecting(zygote._folder.path, "/project/test_stuck.py")
    with pytest.raises(link.Unanswered, match=r"an end of importing /project/test_stuck\.py"):
        zygote.receive(0.0)
    assert 0.6 <= time.monotonic() - begun < 10


def test_waiting_for_gpus_has_no_end(theirs, zygote, monkeypatch):
    """Somebody else holds them, for as long as they like."""
    monkeypatch.setattr(link, "SILENCE", 0.1)
    zygote.send(messages.Abort())
    theirs.control.send(messages.Waiting(text="busy"))
    assert zygote.receive(0.0) == messages.Waiting(text="busy")
    assert zygote._given_up_at(0.0) == float("inf")
