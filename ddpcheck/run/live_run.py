"""What a user sees of a run while it goes on: a status line, and findings as they become certain."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial

from ddpcheck.judging import long_runs
from ddpcheck.judging.world import Moment, Process
from ddpcheck.report import live_report
from ddpcheck.report.status_line import StatusLine, descriptor, takes_more
from ddpcheck.run.accepted_findings import WhileRunning
from ddpcheck.run.live_judging import LiveJudging
from ddpcheck.run.options import Options
from ddpcheck.run.service_pages import for_texts
from ddpcheck.vocabulary.model import Finding


class LiveRun:
    """Tells of a run on this process's stderr; what the project accepts is not told."""

    def __init__(self, options: Options, held: int = long_runs.HELD) -> None:
        self._accepting = WhileRunning(options.rules)
        self.judging = LiveJudging(options.chosen, self._counts, held, options.left_out)
        self.status = StatusLine(sys.stderr, options.status)
        self._texts = for_texts(options)
        self._options = options
        self._began = time.monotonic()
        self._findings = 0
        self._untold: list[Callable[[], None]] = []
        """Findings that are not printed yet: nothing here waits for a terminal that was stopped. The report has all."""

    def look(self, processes: Mapping[str, Process], now: Moment) -> Finding | None:
        """Judge, and tell what is new; the finding at which the run is to be ended (--fail-fast), if there is one."""
        fatal = None
        seconds = now.at - self._began
        for finding in map(self._options.rules.at_severity, self.judging.look(processes, now)):
            self._findings += 1
            if fatal is None and self._options.fail_fast and (finding.severity == "error" or self._options.strict):
                fatal = finding
            self._untold.append(
                partial(live_report.show_finding, finding, self.judging.last, seconds, self._texts,
                        finding is fatal)
            )  # fmt: skip
        while self._untold and takes_more(descriptor(sys.stderr)):
            with contextlib.suppress(OSError):  # nobody reads it any more
                self._untold.pop(0)()
        if self.status.due:
            self.status.show(live_report.status(self.judging.last, self._findings, seconds))
        return fatal

    def _counts(self, finding: Finding) -> bool:
        return self._accepting.counts(finding, self.judging.last)

    def close(self) -> None:
        """Tell nothing any more: the report follows."""
        self.status.close()
