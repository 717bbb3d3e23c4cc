"""``ddpcheck demo``: what it writes, what it refuses, and what it shows."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from ddpcheck import cli
from ddpcheck.run import demo


def test_help_and_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence, and nothing is written."""
    assert cli.main(["demo", "--help"]) == 0
    assert "usage: ddpcheck demo [FOLDER]" in capsys.readouterr().out
    for arguments in (["a", "b"], ["--json"]):
        assert cli.main(["demo", *arguments]) == 2
        assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("text", ["print('mine')\n", b"\xff\xfe\x00"], ids=["another", "not text"])
def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | bytes) -> None:
    """A file of somebody's own stays as it is."""
    script = tmp_path / "train.py"
    script.write_bytes(text if isinstance(text, bytes) else text.encode())
    before = script.read_bytes()
    assert cli.main(["demo", str(tmp_path)]) == 2
    assert script.read_bytes() == before
    assert str(script) in capsys.readouterr().err


def test_a_folder_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file is in its way: one sentence."""
    (tmp_path / "file").touch()
    assert cli.main(["demo", str(tmp_path / "file" / "folder")]) == 2
    assert capsys.readouterr().err.startswith("ddpcheck demo: ")


def test_it_runs_what_it_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program as it is, by the command that it names; twice in the same folder."""
    ran: list[Any] = []
    monkeypatch.setattr("ddpcheck.cli._run", lambda arguments: ran.append(arguments) or 1)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for _ in range(2):
        assert cli.main(["demo", str(tmp_path / "new" / "folder")]) == 1
    script = tmp_path / "new" / "folder" / "train.py"
    assert script.read_text() == demo.PROGRAM
    assert ran == [["--standalone", "--nproc-per-node", "2", str(script)]] * 2
    assert demo.command(script).split() == ["ddpcheck", "run", *ran[0]]


def test_the_program_is_short() -> None:
    """It is there to be read."""
    ast.parse(demo.PROGRAM)
    assert len(demo.PROGRAM.splitlines()) <= 20
