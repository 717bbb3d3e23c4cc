"""``ddpcheck judge``: the report of a run from the evidence that it has left, when the command that ran it is gone."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ddpcheck import evidence as ev
from ddpcheck.judging.evidence_folder import SUFFIX, Folder
from ddpcheck.judging.world import Moment, Process
from ddpcheck.run import report_writing, run_facts
from ddpcheck.run.accepted_findings import without_accepted
from ddpcheck.run.conclusion import Run, verdict_of
from ddpcheck.run.live_judging import LiveJudging
from ddpcheck.run.options import Options, WrongUsage, reporting, settings_of
from ddpcheck.run.page_and_trace import PageAndTrace
from ddpcheck.verdict.interruption import Interruption

PIECE = 1 << 20
"""Bytes of each file that are read at once: of a long run, what has been judged goes before more is read."""

PREFIX = "ddpcheck-"
"""Begins the names of the folders that runs make for themselves."""


def judge(given: argparse.Namespace) -> int:
    """Judge a folder of evidence, show the report, and return the exit code that the run's command would have had.

    Raises WrongUsage where there is none to be judged.
    """
    options = Options(torchrun=None, launched=True, script="", arguments=(), **reporting(given, settings_of(given)))
    try:
        folder = _with_evidence(given.folder) if given.folder is not None else _last_left()
    except OSError as error:
        raise WrongUsage(f"the folder of evidence cannot be read: {error}") from None
    facts = run_facts.read(folder)
    if facts is not None and facts.goes_on:
        raise WrongUsage(f"the run of {folder} goes on (process {facts.pid}), and reports at its end")
    evidence, judging = Folder(folder), LiveJudging(options.chosen)
    while evidence.read(PIECE):
        begun = [process for process in evidence.processes.values() if process.records]
        if begun:
            latest = max(begun, key=lambda process: process.records[-1].at)
            judging.settle(evidence.processes, _moment(latest, latest.records[-1].at))
    processes = list(evidence.processes.values())
    if not any(process.records for process in processes):
        raise WrongUsage(f"there is nothing on record in {folder} that this version can read")
    run = facts.run if facts is not None else None
    notes = [*facts.notes] if facts is not None else []
    if run is None:
        run = _lost(processes, facts)
        notes.append(
            "How the run ended is not on record: likely ddpcheck itself was killed while the program ran. This is "
            f"judged from what is left in {folder}."
        )
    defects = facts.defects if facts is not None else ()
    verdict = verdict_of(run, processes, judging.settled, options.chosen, defects, notes, options.left_out)
    verdict = without_accepted(options, verdict, processes, run.enough is not None)
    pages = PageAndTrace(options)
    pages.look(verdict, evidence)
    return report_writing.show(options, verdict, pages)


def _with_evidence(folder: Path) -> Path:
    """The folder, or the one below it that has most evidence: of several nodes, the judging one has that of all."""
    below = sorted(place for place in folder.iterdir() if place.is_dir() and not place.is_symlink())
    inside = {place: len(list(place.glob(f"*{SUFFIX}"))) for place in (folder, *below)}
    best = max(inside, key=lambda place: (inside[place], place == folder))
    if not inside[best]:
        raise WrongUsage(f"there is no evidence in {folder}: name the folder of --evidence, or one that a run has left")
    return best


def _last_left() -> Path:
    """The youngest folder that a run of this user's has made for itself and not taken away."""
    temporary = Path(tempfile.gettempdir())
    left = []
    for place in temporary.glob(f"{PREFIX}*"):
        about = None
        with contextlib.suppress(OSError):  # it has gone meanwhile
            about = place.lstat()
        if about is None or about.st_uid != os.getuid() or not stat.S_ISDIR(about.st_mode):
            continue
        facts = run_facts.read(place)
        if facts is not None and not facts.goes_on:
            left.append((facts.began, place))
    if not left:
        raise WrongUsage(f"no run has left evidence in {temporary}; name a folder")
    return max(left)[1]


def _lost(processes: Sequence[Process], facts: run_facts.Facts | None) -> Run:
    """A run whose command was killed: up to when its agent began to end the ranks, or to the last word of anybody."""
    ends = [(child, process) for process in processes for child in process.of(ev.ChildEnded)]
    asked = [(child.at, process) for child, process in ends if child.asked or child.signal]
    last = [(process.records[-1].at + 1e-6, process) for process in processes if process.records]
    at, told_by = min(asked, key=lambda one: one[0], default=None) or max(last, key=lambda one: one[0])
    first = min((p.began.at for p in processes if p.began is not None), default=at)
    return Run(
        pid=0,
        exit_code=None,
        signal=None,
        lost=Interruption(signal=signal.SIGKILL, moment=_moment(told_by, at)),
        seconds=at - first,
        launched=facts.launched if facts is not None else True,
        command=facts.command if facts is not None else "",
    )


def _moment(process: Process, at: float) -> Moment:
    """A moment on the clock of a process."""
    began = process.began
    if began is None:
        return Moment(at=at)
    return Moment(at=at, host=began.host, wall=began.wall + at - began.at)
