"""What is said of a run while it goes on: how far it is, and each finding at the moment from which it is certain."""

from __future__ import annotations

import os
from typing import IO

from ddpcheck.report.console import plain
from ddpcheck.report.finding_text import circumstances, in_a_line
from ddpcheck.verdict.interim import Interim
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count


def status(run: Interim, findings: int, seconds: float) -> str:
    """How far a run is, in a line."""
    if not run.world_size:
        return f"{_time(seconds)}, no process group yet"
    parts = [_time(seconds), count(run.world_size, "rank"), count(run.steps, "step")]
    if run.samples is not None:
        parts.append(f"{run.samples:,.0f} samples/s" if run.samples >= 10 else f"{run.samples:.2g} samples/s")
    parts.append(f"{count(run.held, 'check')} held so far")
    parts.append(count(findings, "finding") if findings else "no finding")
    return ", ".join(parts)


def _time(seconds: float) -> str:
    """``42 s``, ``12 min``, ``3 h 05 min``, ``2 d 4 h``."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def show_finding(finding: Finding, run: Interim, seconds: float, stream: IO[str], ends: bool) -> None:
    """Print a finding in one line; ``ends``: the run ends for it. The report has it in full."""
    ending = "; the run is ended (--fail-fast)" if ends else ""
    line = f"{in_a_line(finding)}{circumstances(finding, run.world_size)}{ending}"
    line = plain(f"ddpcheck, {_time(seconds)} into the run: {line}").replace("\n", " ")
    _write(stream, f"{line}\n")


def _write(stream: IO[str], text: str) -> None:
    """In one piece, past the stream's own buffer."""
    data = text.encode(getattr(stream, "encoding", None) or "utf-8", "backslashreplace")
    try:
        stream.flush()
        descriptor = stream.fileno()
    except (AttributeError, OSError, ValueError):
        stream.write(text)
        return
    while data:
        data = data[os.write(descriptor, data) :]
