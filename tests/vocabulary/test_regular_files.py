"""What is no file is refused at once, and nobody waits for it."""

from __future__ import annotations

import os
import socket

import pytest

from ddpcheck.vocabulary import regular_files


@pytest.fixture
def odd(tmp_path):
    """Things that are no regular files, or lead to others."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(tmp_path / "socket"))
    return tmp_path


@pytest.mark.parametrize("name", ["pipe", "folder", "device", "link", "socket", "nothing"])
def test_what_is_no_file_is_refused(odd, name):
    """A link as well, for it may lead to anything."""
    with pytest.raises(OSError, match=r"."):
        regular_files.read(odd / name)
    assert regular_files.read(odd / "file") == b"text"


@pytest.mark.parametrize("name", ["pipe", "folder", "device", "socket"])
def test_links_that_the_user_names_may_be_followed(odd, name):
    """To files alone."""
    assert regular_files.read(odd / "link", links=True) == b"text"
    with pytest.raises(OSError, match=r"."):
        regular_files.read(odd / name, links=True)


def test_a_file_that_is_too_large_is_not_read_whole(tmp_path):
    """It may have any length, and no bytes on the disk."""
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", 1 << 40)
    with pytest.raises(OSError, match="larger than"):
        regular_files.read(tmp_path / "sparse")
