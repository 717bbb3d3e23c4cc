"""Small files that a program has written are looked at: never one that it still has open, and not for ever."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys

import pytest

from ddpcheck.probes.files import file_records, small_files

LOCKS_TOO = """
import fcntl, sys
try:
    fcntl.lockf(open(sys.argv[1], "a"), fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    sys.exit(3)
"""


@pytest.fixture
def seen(monkeypatch):
    """The files whose content was written down; nothing waits before and after."""
    records = []
    monkeypatch.setattr(file_records, "writer", object)
    monkeypatch.setattr(file_records, "record", lambda to, op, how, path, *more, **fields: records.append(path))
    small_files.forget()
    yield records
    small_files.forget()


def test_a_lock_is_kept(tmp_path, seen):
    """What the program holds open is not touched; it is looked at once it is closed."""
    path = str(tmp_path / "gpu0.lock")
    with open(path, "w") as file:
        file.write("123")
        file.flush()
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        small_files.opened(path)
        small_files.look()
        assert subprocess.run([sys.executable, "-S", "-c", LOCKS_TOO, path], check=False).returncode == 3
        assert seen == []
    small_files.look()
    assert seen == [path]


def test_a_fifo_gets_no_reader(tmp_path, seen, monkeypatch):
    """A program that opens one to write waits for its own reader."""
    path = str(tmp_path / "fifo")
    os.mkfifo(path)
    monkeypatch.setattr(os, "open", lambda *given: pytest.fail(f"it was opened: {given}"))
    small_files.opened(path)
    small_files.look()
    assert (seen, small_files._opened) == ([], {})


def test_nobody_looks_for_ever(tmp_path, seen):
    """An empty file may yet be written, for a while; one that was removed will not be."""
    empty, removed = tmp_path / "empty", tmp_path / "removed"
    empty.touch()
    small_files.opened(str(empty))
    small_files.opened(str(removed))
    small_files.look()
    assert list(small_files._opened) == [str(empty)]
    for _ in range(20):
        small_files.look()
    assert small_files._opened == {}
    empty.write_text("late")
    small_files.look()
    assert seen == []
