"""What is said of a run while it goes on."""

from __future__ import annotations

import io

import pytest
from msgspec.structs import replace

from ddpcheck.report import live_report
from ddpcheck.verdict.interim import Interim
from ddpcheck.vocabulary.model import CallSite, Finding

FINDING = Finding(
    check="gradient-sync",
    ranks=(1,),
    step=40,
    subject="net.weight",
    expected="equal gradients",
    found="others on rank 1",
    cause="it clips",
    advice="Clip on every rank.",
    where=CallSite(file="train.py", line=13, function="main"),
)


@pytest.mark.parametrize(
    ("run", "findings", "seconds", "line"),
    [
        (Interim(), 0, 7.9, "7 s, no process group yet"),
        (
            Interim(world_size=2, steps=1, held=3),
            0,
            61.0,
            "1 min 01 s, 2 ranks, 1 step, 3 checks held so far, no finding",
        ),
        (
            Interim(world_size=32, steps=1200, samples=10_240.4, held=14),
            2,
            3 * 3600 + 5 * 60,
            "3 h 05 min, 32 ranks, 1,200 steps, 10,240 samples/s, 14 checks held so far, 2 findings",
        ),
        (
            Interim(world_size=2, steps=5, samples=0.25, held=1),
            1,
            2 * 86400 + 4 * 3600 + 59,
            "2 d 4 h, 2 ranks, 5 steps, 0.25 samples/s, 1 check held so far, 1 finding",
        ),
    ],
)
def test_how_far_it_is(run, findings, seconds, line):
    assert live_report.status(run, findings, seconds) == line


@pytest.mark.parametrize("ends", [False, True])
def test_a_finding_is_told_in_a_line(ends):
    """The report has it in full; here is where to look, and what for."""
    stream = io.StringIO()
    live_report.show_finding(replace(FINDING, subject="a\nb"), Interim(world_size=2), 12.0, stream, ends)
    next_ = "; the run is ended (--fail-fast)" if ends else ""
    line = f"ddpcheck, 12 s into the run: train.py:13  error  gradient-sync  a b (rank 1, step 40){next_}\n"
    assert stream.getvalue() == line


def test_it_is_written_at_once(tmp_path, monkeypatch):
    """No rank's output comes between."""
    pieces = []
    monkeypatch.setattr(live_report.os, "write", lambda fd, data: pieces.append(data) or len(data))
    with (tmp_path / "log").open("w") as stream:
        live_report.show_finding(FINDING, Interim(world_size=2), 1.0, stream, False)
    assert len(pieces) == 1
