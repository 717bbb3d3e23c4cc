"""Judges a run while it goes on, beside what watches it: no rank waits for that, and little of a core is taken."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import traceback
from collections.abc import Callable, Collection, Mapping

from ddpcheck.judging import long_runs
from ddpcheck.judging.world import Moment, Process
from ddpcheck.verdict.interim import Interim, interim
from ddpcheck.verdict.settled import Settled
from ddpcheck.vocabulary.model import Finding

PERIOD = 1.0
"""Seconds between two judgements, at the least."""

SHARE = 0.02
"""Of one core, the most that judging takes while the run goes on."""

NICE = 10
"""How far the judging thread stands back behind what else the machine has to do."""


class LiveJudging:
    """Judges snapshots in a thread of its own, and lets go of what was judged.

    ``counts`` says of a finding whether it is to be told: one that the user
    has accepted is not.
    """

    def __init__(
        self,
        chosen: Collection[str] | None = None,
        counts: Callable[[Finding], bool] = lambda finding: True,
        held: int = long_runs.HELD,
        left_out: Collection[str] = (),
    ) -> None:
        self.settled = Settled()
        """What was judged of evidence that is held no longer."""
        self.last = Interim()
        self.failures: list[str] = []
        """Tracebacks of judgements that failed, each once: faults of ours, of which the run knows nothing."""
        self._chosen, self._counts, self._held, self._left_out = chosen, counts, held, left_out
        self._thread: threading.Thread | None = None
        self._found: Interim | None = None
        self._due = 0.0
        self._frees = True
        """To judge makes room: where nothing may go, it is no use to judge more often."""
        self._told: set[tuple[str, ...]] = set()

    def look(self, processes: Mapping[str, Process], now: Moment) -> list[Finding]:
        """Take in what the last judgement came to, and begin the next one if it is due; what it found that is new."""
        new: list[Finding] = []
        if self._thread is not None and not self._thread.is_alive():
            self._thread = None
            new = self._take(processes)
        due = now.at >= self._due or (self._frees and long_runs.is_due(processes.values(), 2 * self._held))
        if self._thread is None and due and processes:
            snapshots = [process.snapshot() for process in processes.values()]
            self._thread = threading.Thread(
                target=self._judge, args=(snapshots, now), name="ddpcheck-judging", daemon=True
            )
            self._thread.start()
        return new

    def settle(self, processes: Mapping[str, Process], now: Moment) -> None:
        """Judge here and now, if so much is held that some of it should go."""
        if long_runs.is_due(processes.values(), self._held):
            snapshots = [process.snapshot() for process in processes.values()]
            self._found = interim(snapshots, now, self.settled, self._chosen, self._held, self._left_out)
            self._take(processes)

    def _take(self, processes: Mapping[str, Process]) -> list[Finding]:
        found, self._found = self._found, None
        if found is None:
            return []
        self.last = found
        self._note(*found.defects)
        for token, before, after in found.past:
            self.settled.take(token, before, after)
        long_runs.let_go(processes, found.cut)
        self._frees = not found.full or not long_runs.is_due(processes.values(), self._held)
        return [one for one in found.findings if self._counts(one) and self._is_new(one)]

    def _is_new(self, finding: Finding) -> bool:
        """Whether it was not told: neither at this line, nor of this subject, whose line may get known later."""
        of_it = [str(finding.where), finding.subject] if finding.where is not None else [finding.subject]
        names = {(finding.check, finding.severity, what) for what in of_it}
        new = self._told.isdisjoint(names)
        self._told |= names
        return new

    def _judge(self, snapshots: list[Process], now: Moment) -> None:
        """In the thread: judge, and put down when it may be done again."""
        with contextlib.suppress(OSError, AttributeError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        began = time.thread_time()
        try:
            self._found = interim(snapshots, now, self.settled, self._chosen, self._held, self._left_out)
        except Exception:
            self._note(traceback.format_exc())
        self._due = time.monotonic() + max(PERIOD, (time.thread_time() - began) / SHARE)

    def _note(self, *failures: str) -> None:
        self.failures += [one for one in failures if one not in self.failures]
