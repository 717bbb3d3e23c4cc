"""Folders of sessions: those that nobody holds any more are removed, and no others."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile

import pytest

from ddpcheck.ranks import private_folders


@pytest.fixture(autouse=True)
def temp(tmp_path, monkeypatch):
    """A place for temporary files of its own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def abandoned():
    """A folder whose session was killed."""
    code = "import os; from ddpcheck.ranks.private_folders import Folder; print(Folder().path, flush=True); os.abort()"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"TMPDIR": tempfile.gettempdir()},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return run.stdout.strip()


def test_what_a_killed_session_left_is_removed(temp):
    """The next session finds its folder without a holder."""
    left = abandoned()
    assert os.path.isdir(left)
    assert private_folders.remove_abandoned() == [left]
    assert list(temp.iterdir()) == []


def test_a_folder_in_use_is_kept(temp):
    """Also by the session that made it."""
    folder = private_folders.Folder()
    assert os.stat(folder.path).st_mode & 0o777 == 0o700
    assert private_folders.remove_abandoned() == []
    folder.remove()
    assert list(temp.iterdir()) == []


@pytest.mark.parametrize("what", ["no owner", "file", "link", "linked owner", "another machine", "another prefix"])
def test_what_is_not_a_sessions_folder_is_kept(temp, what):
    """However it is named, and whatever lies in it."""
    path = temp / ("other-x" if what == "another prefix" else "ddpcheck-x")
    left = abandoned() if "link" in what or what == "another prefix" else ""
    if what == "file":
        path.touch()
    elif what == "link":
        elsewhere = temp / "elsewhere"
        os.rename(left, elsewhere)
        path.symlink_to(elsewhere)
    elif what == "another prefix":
        os.rename(left, path)
    else:
        path.mkdir()
        if what == "linked owner":
            os.rename(left, temp / "elsewhere")
            (path / "owner").symlink_to(temp / "elsewhere" / "owner")
        elif what == "another machine":
            (path / "owner").write_text(f"ddpcheck on not-{socket.gethostname()}\n")
    before = sorted(temp.rglob("*"))
    assert private_folders.remove_abandoned() == []
    assert sorted(temp.rglob("*")) == before


def test_of_another_user(temp, monkeypatch):
    """What belongs to somebody else is not touched, nor made use of."""
    left = abandoned()
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert private_folders.remove_abandoned() == []
    with pytest.raises(PermissionError):
        private_folders.within(left)


def test_a_folder_is_made_again(temp):
    """A run finds a place also where somebody has removed the session's folder."""
    inner = private_folders.within(str(temp / "gone"))
    assert os.path.dirname(inner) == str(temp / "gone")
    assert os.stat(temp / "gone").st_mode & 0o777 == 0o700


def test_no_folder_is_left_where_it_could_not_be_made(temp, monkeypatch):
    """A disk that is full for the lock is told, with nothing left."""

    def refuse(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", refuse)
    with pytest.raises(OSError, match="No space left"):
        private_folders.Folder()
    assert list(temp.iterdir()) == []
