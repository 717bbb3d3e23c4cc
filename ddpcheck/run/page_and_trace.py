"""``--page`` and ``--trace``: the timeline from the evidence, and the files that show it.

What fails in here is said in one line: the verdict stands, and so does every other
report.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ddpcheck.judging.evidence_folder import Folder
from ddpcheck.judging.membership import worlds
from ddpcheck.report import report_files
from ddpcheck.report.timeline.timeline import Timeline
from ddpcheck.run.options import Options
from ddpcheck.verdict.verdict import Verdict


class PageAndTrace:
    """Writes what was asked for; ``lost`` says what could not be written, in lines, and why."""

    def __init__(self, options: Options) -> None:
        self._page, self._trace, self._strict = options.page, options.trace, options.strict
        self._timeline: Timeline | None = None
        self.lost: list[str] = []

    def look(self, verdict: Verdict, folder: Folder) -> None:
        """Make the timeline, as long as the evidence is there."""
        if self._page is None and self._trace is None:
            return
        from ddpcheck.report.timeline.made_from_evidence import in_folder, timeline

        def make() -> None:
            processes = list(folder.processes.values())
            self._timeline = timeline(worlds(processes), processes, in_folder(folder.path), verdict.findings)

        why = report_files.failure(make)
        self.lost += [f"the timeline {why}"] if why else []

    def write(self, verdict: Verdict) -> list[Path]:
        """Write both; the files that are there now."""
        written = []
        if self._page is not None:
            from ddpcheck.report.page import page

            make = partial(page.write, verdict, self._page, self._timeline, self._strict)
            written += self._try(f"--page {self._page}", self._page, make)
        if self._trace is not None and self._timeline is None and not self.lost:
            why = "the node of rank 0 has the evidence of all ranks"
            print(f"ddpcheck: --trace {self._trace} was not written: {why}", file=sys.stderr)
        elif self._trace is not None:
            from ddpcheck.report import trace_file

            make = partial(trace_file.write, verdict, self._trace, self._timeline or Timeline())
            written += self._try(f"--trace {self._trace}", self._trace, make)
        return written

    def _try(self, what: str, path: Path, make: Callable[[], None]) -> list[Path]:
        """The path, where what is made there could be made."""
        why = report_files.failure_in_place(path, make)
        self.lost += [f"{what} {why}"] if why else []
        return [] if why else [path]
