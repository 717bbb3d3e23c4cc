"""Which folder of evidence is judged where none is named, and what in a folder is read."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ddpcheck import cli
from ddpcheck import evidence as ev
from ddpcheck.run import judge_arguments, left_evidence, run_facts

BEGAN = ev.Began(n=1, at=5.0, pid=7, parent=1, host="h", node=0, argv=["a"], folder="/", wall=100.0, rank=0)


def judge(arguments: list[str]) -> int:
    return left_evidence.judge(judge_arguments.read(arguments))


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def left(folder: Path, records=(BEGAN,), name="h-7-1.evidence") -> Path:
    """A folder as a killed command leaves it."""
    folder.mkdir(exist_ok=True)
    run_facts.write(folder, run_facts.Facts(command="t.py", launched=True, host="other", pid=1, began=1.0))
    (folder / name).write_bytes(ev.HEADER + ev.GOING + b"".join(map(ev.frame, records)))
    return folder


def test_the_folder_of_another_user_is_not_the_last_of_ours(temporary, monkeypatch):
    """Nor is a link, wherever it leads."""
    own = left(temporary / "ddpcheck-own")
    assert left_evidence._last_left() == own
    (temporary / "ddpcheck-zlink").symlink_to(left(temporary / "elsewhere"))
    assert left_evidence._last_left() == own
    monkeypatch.setattr(os, "getuid", lambda: own.stat().st_uid + 1)
    with pytest.raises(left_evidence.WrongUsage, match="no run has left evidence"):
        left_evidence._last_left()


def test_a_folder_that_cannot_be_read(temporary, monkeypatch, capsys):
    """One sentence says so, and the usage was wrong."""

    def fails(folder):
        raise PermissionError(13, "Permission denied", str(folder))

    folder = left(temporary / "given")
    monkeypatch.setattr(Path, "iterdir", fails)
    assert cli.main(["judge", str(folder)]) == 2
    assert cli.main(["judge", "a" * 5000]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith(f"the folder of evidence cannot be read: [Errno 13] Permission denied: '{folder}'")
    assert second.startswith("ddpcheck judge: there is no folder aaa")


@pytest.mark.parametrize(
    ("field", "claim"),
    [
        ("pid", -1),
        ("pid", 1 << 63),
        ("began", 1e308),
        ("run", {"pid": 1, "exit_code": None, "signal": 1 << 31}),
        ("run", {"pid": 1, "exit_code": 0, "signal": None, "seconds": 1e308}),
        ("run", {"pid": 1, "exit_code": 1, "signal": None, "enough": {"at": 1e308}}),
        ("run", {"pid": 1, "exit_code": 1, "signal": None, "lost": {"signal": 1 << 31, "moment": {"at": 1}}}),
    ],
)
def test_what_no_command_can_have_written_of_a_run_is_not_read(temporary, capsys, field, claim):
    """Then it is one of which nothing is said."""
    folder = left(temporary / "given")
    known = json.loads((folder / run_facts.NAME).read_text())
    (folder / run_facts.NAME).write_text(json.dumps({**known, "host": os.uname().nodename, field: claim}))
    assert run_facts.read(folder) is None
    assert judge([str(folder), "--no-config"]) == 137
    assert "How the run ended is not on record" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("depth", [10, 10_000, 1_000_000])
def test_facts_of_any_depth_are_none(temporary, depth):
    (left(temporary / "given") / run_facts.NAME).write_text('{"odd": ' + "[" * depth)
    assert run_facts.read(temporary / "given") is None


@pytest.mark.parametrize("name", ["zz.evidence", run_facts.NAME])
def test_nobody_waits_for_a_pipe_in_a_folder(temporary, capsys, name):
    """Nor reads a device without an end; that it is not read is said."""
    folder = left(temporary / "given")
    for odd in (os.mkfifo, lambda path: path.symlink_to("/dev/zero")):
        (folder / name).unlink(missing_ok=True)
        odd(folder / name)
        assert judge([str(folder), "--no-config", "--page", str(temporary / "page.html")]) == 137
        assert "cannot be read" in " ".join(capsys.readouterr().err.split()) or name == run_facts.NAME
