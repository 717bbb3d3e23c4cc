"""What a run ends with whose reports could not all be written."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from ddpcheck.report import junit_report
from ddpcheck.report.timeline.timeline import Timeline
from ddpcheck.run.options import Options
from ddpcheck.run.page_and_trace import PageAndTrace
from ddpcheck.run.report_writing import show
from tests.report.verdicts import HELD, NOTHING, VIOLATED

OPTIONS = Options(torchrun=None, launched=True, script="train.py", arguments=())
FULL = Path("/dev/full")


@pytest.mark.parametrize("report", ["json", "junit", "sarif", "codequality", "page", "trace"])
@pytest.mark.parametrize(("verdict", "code"), [(HELD, 4), (NOTHING, 4), (VIOLATED, 1)])
def test_a_report_that_could_not_be_written_is_no_success(tmp_path, capsys, report, verdict, code):
    """It is said below the report; the others are written, and an error that was found counts more."""
    others = {"json": tmp_path / "verdict.json", "junit": tmp_path / "junit.xml"}
    options = replace(OPTIONS, **{**others, report: FULL})
    pages = PageAndTrace(options)
    pages._timeline = Timeline()
    assert show(options, verdict, pages) == code
    above, _, last = capsys.readouterr().err.strip().rpartition("\n")
    assert "could not be written: cannot write /dev/full: no space left on device\n" in above
    assert last.endswith(f"{'; not all files were written' if code == 4 else ''}, exit code {code}")
    assert all(path.exists() for name, path in others.items() if name != report)


def test_a_fault_in_one_report_is_none_of_the_others(tmp_path, capsys, monkeypatch):
    """And the file of an earlier run does not stand for this one."""

    def fails(*args, **kwargs):
        raise KeyError("fault")

    monkeypatch.setattr(junit_report, "junit", fails)
    options = replace(OPTIONS, json=tmp_path / "v.json", junit=tmp_path / "j.xml", sarif=tmp_path / "s.sarif")
    options.junit.write_text("of an earlier run")
    assert show(options, HELD, PageAndTrace(options)) == 4
    assert {path.name for path in tmp_path.iterdir()} == {"v.json", "s.sarif"}
    assert "by a fault of ddpcheck" in capsys.readouterr().err


@pytest.mark.parametrize(("verdict", "code"), [(HELD, 4), (VIOLATED, 1)])
def test_a_baseline_that_could_not_be_written_is_no_success(capsys, verdict, code):
    """The exit code says so, and the last line does not call it a failure of ddpcheck."""
    verdict = replace(verdict, lost=("cannot write b.json: no space left on device",))
    assert show(OPTIONS, verdict, PageAndTrace(OPTIONS)) == code
    printed = capsys.readouterr().err
    assert "\nddpcheck: cannot write b.json: no space left on device\n" in printed
    assert ("; not all files were written, exit code 4" in printed) == (code == 4)
