"""What becomes of --page and --trace when they fail: a line, and nothing else."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from ddpcheck.judging.evidence_folder import Folder
from ddpcheck.report import trace_file
from ddpcheck.report.page import page
from ddpcheck.report.timeline import made_from_evidence
from ddpcheck.run.page_and_trace import PageAndTrace
from tests.report.verdicts import HELD
from tests.simulated_evidence import Training, write


@dataclasses.dataclass
class Asked:
    """The options that matter here."""

    page: Path | None = None
    trace: Path | None = None
    strict: bool = False


@pytest.fixture
def folder(tmp_path):
    write(tmp_path, Training(steps=5))
    found = Folder(tmp_path)
    found.read()
    return found


def fails(*args: Any, **kwargs: Any) -> None:
    raise KeyError("a\nfault")


def test_both_are_written(tmp_path, folder, capsys):
    """And named as written."""
    asked = Asked(tmp_path / "page.html", tmp_path / "trace.json.gz")
    files = PageAndTrace(asked)
    files.look(HELD, folder)
    assert files.write(HELD) == [asked.page, asked.trace]
    assert "rank 0" in asked.page.read_text()
    assert asked.trace.read_bytes()[:2] == b"\x1f\x8b"
    assert files.lost == []
    assert capsys.readouterr().err == ""


def test_nobody_pays_who_has_not_asked(folder, monkeypatch):
    """No timeline is made."""
    monkeypatch.setattr(made_from_evidence, "timeline", fails)
    files = PageAndTrace(Asked())
    files.look(HELD, folder)
    assert files.write(HELD) == []
    assert files.lost == []


@pytest.mark.parametrize("where", [(made_from_evidence, "timeline"), (page, "write"), (trace_file, "write")])
def test_a_fault_of_ours_is_one_line(tmp_path, folder, monkeypatch, where):
    """It says what and where, the other file is written, and nothing is raised."""
    monkeypatch.setattr(*where, fails)
    files = PageAndTrace(Asked(tmp_path / "page.html", tmp_path / "trace.json.gz"))
    files.look(HELD, folder)
    written = files.write(HELD)
    assert len(written) == (2 if where[1] == "timeline" else 1)
    (line,) = files.lost
    assert "by a fault of ddpcheck; please report it: KeyError: 'a\\nfault'" in line
    assert "test_page_and_trace.py:" in line


def test_a_folder_that_is_gone(tmp_path, folder):
    """Is no fault of ours."""
    files = PageAndTrace(Asked(tmp_path / "gone" / "page.html"))
    files.look(HELD, folder)
    assert files.write(HELD) == []
    (line,) = files.lost
    assert "no such file" in line


def test_a_node_that_does_not_judge(tmp_path, capsys):
    """Has no evidence of the others: its page is without a timeline, and there is no trace."""
    asked = Asked(tmp_path / "page.html", tmp_path / "trace.json.gz")
    assert PageAndTrace(asked).write(HELD) == [asked.page]
    assert "the node of rank 0 has the evidence of all ranks" in asked.page.read_text()
    assert "--trace" in capsys.readouterr().err
    assert not asked.trace.exists()
