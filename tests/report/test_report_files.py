"""The files that reports are written to: whole, with their permissions, and nothing beside them."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from ddpcheck.report import report_files
from ddpcheck.report.report_files import Unwritable, check_writable


def test_a_report_comes_whole(tmp_path):
    """A report takes the place of the one before in one move, with its permissions, and leaves nothing beside it."""
    path = tmp_path / "report.json"
    path.write_text("the one before")
    path.chmod(0o640)
    before = path.stat().st_ino
    report_files.write(path, "the new one")
    assert path.read_text() == "the new one"
    assert path.stat().st_ino != before
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_a_report_that_cannot_be_written_leaves_the_one_before(tmp_path, monkeypatch):
    """A disk that is full takes nothing away."""
    path = tmp_path / "report.json"
    path.write_text("the one before")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Unwritable, match=r"cannot write .*report\.json: no space left on device"):
        report_files.write(path, "the new one")
    assert path.read_text() == "the one before"
    assert list(tmp_path.iterdir()) == [path]


def test_what_an_earlier_run_has_left_is_not_taken_for_this_ones(tmp_path):
    """Where this one's cannot be written, for whatever reason, there is none; a device stays."""
    path = tmp_path / "report.json"

    def fails():
        raise KeyError("a\nfault")

    def full():
        raise Unwritable("cannot write it: no space left on device")

    for do, told in (
        (fails, "by a fault of ddpcheck; please report it: KeyError: 'a\\nfault'"),
        (full, "no space left"),
    ):
        path.write_text("of an earlier run")
        assert told in report_files.failure_in_place(path, do)
        assert not path.exists()
        assert told in report_files.failure_in_place(path, do)
    device = Path("/dev/full")
    assert "no space left" in report_files.failure_in_place(device, lambda: report_files.write(device, "text"))
    assert device.exists()
    assert report_files.failure_in_place(path, lambda: report_files.write(path, "of this one")) == ""
    assert path.read_text() == "of this one"


def test_a_link_stays_one(tmp_path):
    """A report that is asked for by way of a link goes where the link leads."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "last.json").symlink_to("runs/1.json")
    check_writable(tmp_path / "last.json")
    report_files.write(tmp_path / "last.json", "new")
    assert (tmp_path / "last.json").is_symlink()
    assert (tmp_path / "runs" / "1.json").read_text() == "new"


def test_a_link_of_somebody_elses_is_not_followed(tmp_path, monkeypatch):
    """In a folder that others may write to, a link may have been put where the report is to go."""
    (tmp_path / "mine").write_text("precious")
    link = tmp_path / "verdict.json"
    link.symlink_to("mine")
    if os.geteuid() == 0:
        os.lchown(link, 65534, 65534)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: link.lstat().st_uid + 1)
    check_writable(link)
    report_files.write(link, "report")
    assert (tmp_path / "mine").read_text() == "precious"
    assert not link.is_symlink()
    assert link.read_text() == "report"


def test_no_name_beside_a_report_can_be_foreseen(tmp_path, monkeypatch):
    """What stands under a draft's name, a link say, is neither followed nor replaced."""
    (tmp_path / "mine").write_text("precious")
    monkeypatch.setattr(report_files.secrets, "token_hex", lambda size: "0" * size)
    (tmp_path / ".ddpcheck-00000000").symlink_to("mine")
    with pytest.raises(Unwritable, match="file exists"):
        report_files.write(tmp_path / "verdict.json", "report")
    assert (tmp_path / "mine").read_text() == "precious"
    monkeypatch.undo()
    drafts = set()
    rename = os.replace
    monkeypatch.setattr(os, "replace", lambda draft, target: (drafts.add(draft), rename(draft, target)))
    for _ in range(3):
        report_files.write(tmp_path / "verdict.json", "report")
    assert len(drafts) == 3


def test_permissions_are_those_of_a_new_file(tmp_path):
    """By the umask, as for any file that a program makes."""
    before = os.umask(0o027)
    try:
        report_files.write(tmp_path / "verdict.json", "report")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "verdict.json").stat().st_mode) == 0o640


def test_a_pipe_takes_a_report(tmp_path):
    """It is written to, and not replaced."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    report_files.write(pipe, "report")
    assert os.read(reading, 100) == b"report"
    os.close(reading)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_device_takes_a_report():
    """A device is written to, and not replaced."""
    check_writable(Path("/dev/null"))
    report_files.write(Path("/dev/null"), "text")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_looking_leaves_nothing(tmp_path):
    """The look before the run makes no file, neither new nor changed."""
    (tmp_path / "old.json").write_text("old")
    check_writable(tmp_path / "new.json")
    check_writable(tmp_path / "old.json")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("old.json", "old")]


def test_what_cannot_be_written_is_one_sentence(tmp_path):
    """A folder, a missing one, a file in the way: each is told by its name and its reason."""
    (tmp_path / "file").write_text("")
    for path, reason in [
        (tmp_path, "it is a folder"),
        (tmp_path / "missing" / "r.json", f"there is no folder {tmp_path / 'missing'}"),
        (tmp_path / "file" / "r.json", "not a directory"),
        (tmp_path / ("n" * 300), "file name too long"),
    ]:
        with pytest.raises(Unwritable) as caught:
            check_writable(path)
        assert str(caught.value) == f"cannot write {path}: {reason}"
    with pytest.raises(Unwritable, match=r"cannot write /proc/r\.json: "):  # where root's permissions say otherwise
        check_writable(Path("/proc/r.json"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_permissions_are_looked_at(tmp_path):
    """A file or a folder without permission is refused."""
    (tmp_path / "r.json").write_text("")
    (tmp_path / "r.json").chmod(0o400)
    with pytest.raises(Unwritable, match="there is no permission to"):
        check_writable(tmp_path / "r.json")
    tmp_path.chmod(0o500)
    with pytest.raises(Unwritable, match="permission denied"):
        check_writable(tmp_path / "new.json")


def test_a_pipe_without_a_reader_is_waited_for_by_nobody(tmp_path):
    """And one that has a reader takes all of it."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(Unwritable, match=r"cannot write .*pipe: no such device or address"):
        report_files.write(pipe, "text")
    found = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_text()))
    reader.start()
    text = "text" * 100_000
    while True:  # until it has opened it
        try:
            report_files.write(pipe, text)
            break
        except Unwritable:
            assert reader.is_alive()
    reader.join()
    assert found == [text]
