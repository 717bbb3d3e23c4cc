"""``ddpcheck run``, from the command line to the exit code."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType

from msgspec.structs import replace

from ddpcheck.judging.evidence_folder import Folder
from ddpcheck.run import agent, report_writing, run_facts
from ddpcheck.run.accepted_findings import without_accepted
from ddpcheck.run.conclusion import Run, verdict_of
from ddpcheck.run.left_evidence import PREFIX
from ddpcheck.run.options import Options
from ddpcheck.run.page_and_trace import PageAndTrace
from ddpcheck.run.supervisor import NotStarted, Supervisor
from ddpcheck.verdict.verdict import Exit, Verdict

OTHER_NODES = 60.0
"""Seconds to wait for what other nodes have to say at the end."""

HURRIED = 3.0
"""Seconds that a report may take where the user has asked twice to leave."""


def run(options: Options) -> int:
    """Run a script as asked, show the verdict, and return the exit code."""
    try:
        with _folder(options) as path:
            try:
                return _run(options, path)
            finally:
                agent.print_closing_words(path)
    except KeyboardInterrupt:  # while the report was made: the ranks have ended
        with contextlib.suppress(OSError):
            print("\nddpcheck: left without a report", file=sys.stderr)
        return 128 + signal.SIGINT


def _run(options: Options, path: Path) -> int:
    pages = PageAndTrace(options)
    closing = partial(agent.print_closing_words, path)
    supervisor = Supervisor(options, Folder(path, options.limit))
    facts = run_facts.begin(path, options.command, options.launched)
    try:
        seen = supervisor.run()
    except NotStarted as error:
        print(f"ddpcheck run: {error}", file=sys.stderr)
        return Exit.INTERNAL
    patience = OTHER_NODES
    if seen.hurried:
        patience = 0.0
        _leave_in(HURRIED)
    if supervisor.sender is not None:
        told = supervisor.sender.finish(patience)
        if told is not None:
            return _show(options, told, pages, supervisor.sender.shown_by, closing)
    supervisor.gather(patience)
    verdict = _verdict(options, supervisor, seen, facts)
    elsewhere = supervisor.collector.tell(verdict) if supervisor.collector is not None else ""
    pages.look(verdict, supervisor.folder)
    return _show(options, verdict, pages, elsewhere, closing)


def _show(options: Options, verdict: Verdict, pages: PageAndTrace, elsewhere: str, between: Callable[[], None]) -> int:
    """Write and print everything, unless another node prints it; the exit code."""
    try:
        return report_writing.show(options, verdict, pages, elsewhere, between)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _leave_in(seconds: float) -> None:
    """Who has asked twice gets a report if that takes no time."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, leave)
    signal.setitimer(signal.ITIMER_REAL, seconds)


_NOWHERE = Path(os.devnull, "ddpcheck")
"""Where no evidence can be kept."""


@contextlib.contextmanager
def _folder(options: Options) -> Iterator[Path]:
    """The folder for evidence; without room for one, the run goes on and nothing is recorded."""
    with contextlib.ExitStack() as stack:
        path = _NOWHERE
        with contextlib.suppress(OSError):
            if options.evidence is None:
                made = tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True)
                path = Path(stack.enter_context(made))
            else:
                # Nodes may share this folder; each judges what is in its own.
                own = f"{socket.gethostname()}-{os.getpid()}" if options.among_others else ""
                (options.evidence / own).mkdir(parents=True, exist_ok=True)
                path = options.evidence / own
        yield path


def _verdict(options: Options, supervisor: Supervisor, seen: Run, facts: run_facts.Facts) -> Verdict:
    notes = []
    if supervisor.folder.path == _NOWHERE:
        notes.append("There was no room to keep evidence in (is the disk full?): nothing was recorded.")
    notes += supervisor.nodes_notes
    notes += supervisor.unfollowed.notes(supervisor.followed)
    if supervisor.live.judging.failures:
        last = supervisor.live.judging.failures[0].strip().rpartition("\n")[2]
        notes.append(f"Not all of it could be judged while it ran, for a fault of ddpcheck's own ({last}).")
    defects = tuple(supervisor.defects)
    run_facts.write(supervisor.folder.path, replace(facts, run=seen, defects=defects, notes=tuple(notes)))
    processes = [supervisor.own, *supervisor.folder.processes.values()]
    settled = supervisor.live.judging.settled
    verdict = verdict_of(seen, processes, settled, options.chosen, defects, notes, options.left_out)
    return without_accepted(options, verdict, processes, seen.enough is not None)
