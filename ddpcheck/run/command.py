"""``ddpcheck run``, from the command line to the exit code."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from ddpcheck.evidence import Defect, Launched
from ddpcheck.judging.evidence_folder import Folder
from ddpcheck.judging.membership import exits_told, worlds
from ddpcheck.judging.world import Process
from ddpcheck.report import json_report, junit_report, report_files, terminal_report
from ddpcheck.run import options as asked
from ddpcheck.run.options import Options, WrongUsage
from ddpcheck.run.page_and_trace import PageAndTrace
from ddpcheck.run.supervisor import NotStarted, Run, Supervisor
from ddpcheck.verdict.interruption import interruption, until
from ddpcheck.verdict.judges import judge_world
from ddpcheck.verdict.ranks_we_crashed import brought_down
from ddpcheck.verdict.verdict import Exit, RankResult, Verdict, conclude, results_of
from ddpcheck.vocabulary.wording import signal_name

OTHER_NODES = 60.0
"""Seconds to wait for what other nodes have to say at the end."""


def run(arguments: Sequence[str]) -> int:
    """Run a script as asked, show the verdict, and return the exit code."""
    try:
        options = asked.parse(list(arguments))
    except WrongUsage as error:
        print(f"ddpcheck run: {error}", file=sys.stderr)
        return Exit.USAGE
    if sys.stderr is None:  # it was closed before we were started
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    pages = PageAndTrace(options)
    with _folder(options) as path:
        supervisor = Supervisor(options, Folder(path))
        try:
            seen = supervisor.run()
        except NotStarted as error:
            print(f"ddpcheck run: {error}", file=sys.stderr)
            return Exit.INTERNAL
        if supervisor.sender is not None:
            told = supervisor.sender.finish(OTHER_NODES)
            if told is not None:
                _write(options, told)
                pages.write(told)
                print(f"ddpcheck: {told.verdict}; the node of rank 0 has judged, and shows the report", file=sys.stderr)
                return told.exit_code(options.strict)
        supervisor.gather(OTHER_NODES)
        verdict = _verdict(options, supervisor, seen)
        if supervisor.collector is not None:
            supervisor.collector.tell(verdict)
        pages.look(verdict, supervisor.folder)
    code = verdict.exit_code(options.strict)
    try:
        written = [*_write(options, verdict), *pages.write(verdict)]
        if pages.failed and code in (Exit.HELD, Exit.NOTHING_CHECKED):
            code = Exit.INTERNAL
        terminal_report.show(verdict, sys.stderr, written, options.strict)
    except OSError:  # nobody reads it any more
        return code
    except Exception:
        if code != Exit.BROKEN:
            raise
        traceback.print_exc()
    return code


_NOWHERE = Path(os.devnull, "ddpcheck")
"""Where no evidence can be kept."""


@contextlib.contextmanager
def _folder(options: Options) -> Iterator[Path]:
    """The folder for evidence; without room for one, the run goes on and nothing is recorded."""
    with contextlib.ExitStack() as stack:
        path = _NOWHERE
        with contextlib.suppress(OSError):
            if options.evidence is None:
                made = tempfile.TemporaryDirectory(prefix="ddpcheck-", ignore_cleanup_errors=True)
                path = Path(stack.enter_context(made))
            else:
                # Nodes may share this folder; each judges what is in its own.
                own = f"{socket.gethostname()}-{os.getpid()}" if options.nodes > 1 else ""
                (options.evidence / own).mkdir(parents=True, exist_ok=True)
                path = options.evidence / own
        yield path


def _verdict(options: Options, supervisor: Supervisor, seen: Run) -> Verdict:
    processes = [supervisor.own, *supervisor.folder.processes.values()]
    defects = [*supervisor.defects, *(defect.text for process in processes for defect in process.of(Defect))]
    failed = bool(seen.exit_code or seen.signal)
    notes = []
    if supervisor.folder.path == _NOWHERE:
        notes.append("There was no room to keep evidence in (is the disk full?): nothing was recorded.")
    notes += supervisor.nodes_notes
    if seen.stuck:
        notes.append(f"The run was ended because {seen.stuck}.")
    all_of_it = worlds(processes)
    ranks = results_of(all_of_it) or _started(processes, seen.pid)
    asked = interruption(processes)
    if asked is not None and not failed:
        notes.append(f"{signal_name(asked.signal)} came while it ran; the program ended by itself.")
    interrupted = asked if failed and not seen.stuck else None
    if interrupted is not None:
        processes = until(processes, interrupted)
    found = worlds(processes, interrupted.moment) if interrupted is not None else all_of_it
    judged = [judge_world(world, defects) for world in found]
    return conclude(
        judged,
        worlds=found,
        processes=processes,
        ranks=ranks,
        chosen=options.chosen,
        failed=failed,
        hung=bool(seen.stuck),
        killed_by=seen.signal if options.launched else None,
        ours=brought_down(processes),
        interrupted_by=interrupted.signal if interrupted is not None else None,
        command=options.command,
        seconds=seen.seconds,
        notes=notes,
        internal=[text.strip() for text in defects[:3]],
    )


def _started(processes: Sequence[Process], agent: int) -> list[RankResult]:
    """The ranks that torchrun has started, where none of them joined a group; torch may be in none of them."""
    exits = exits_told(processes)
    results = {}
    for process in processes:
        began = process.began
        if began is None or began.pid != agent:
            continue
        for one in process.of(Launched):
            if one.rank is not None:
                code, signal = exits.get((began.host, one.pid), (None, None))
                results[one.rank] = RankResult(
                    rank=one.rank, exit_code=code, signal=signal, host=began.host, pid=one.pid
                )
    return [results[rank] for rank in sorted(results)]


def _write(options: Options, verdict: Verdict) -> list[Path]:
    written = []
    for path, render in (
        (options.json, json_report.write),
        (options.junit, partial(junit_report.write, strict=options.strict)),
    ):
        if path is not None:
            try:
                render(verdict, path)
                written.append(path)
            except (OSError, report_files.Unwritable) as error:
                print(f"ddpcheck run: {path} could not be written: {error}", file=sys.stderr)
    return written
