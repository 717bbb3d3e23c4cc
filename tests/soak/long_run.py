"""The command's memory over a run of days: simulated evidence of 32 ranks, judged while it is written.

``python -m tests.soak.long_run --ranks 32 --steps 100000`` prints memory and time at every tenth of the run, and what
the verdict says at the end; ``--diverges`` plants a fault half-way.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import socket
import sys
import tempfile
import time
from pathlib import Path

import psutil

from ddpcheck import evidence as ev
from ddpcheck.judging import long_runs
from ddpcheck.judging.evidence_folder import Folder
from ddpcheck.judging.world import Moment
from ddpcheck.run.conclusion import Run, verdict_of
from ddpcheck.run.live_judging import LiveJudging
from tests.simulated_evidence import Training, records

TOGETHER = 2500
"""Steps that the ranks write between two looks."""


class Followed:
    """A simulated run, read and judged as the command does."""

    def __init__(self, folder: Path, training: Training, held: int = long_runs.HELD) -> None:
        self.training = training
        self.folder = Folder(folder)
        self.judging = LiveJudging(held=held)
        self.told: list[tuple[int, str, int | None]] = []
        """Steps that had been made when a finding was told, its check, and its step."""
        numbers = training.only or range(training.ranks)
        self._files = [folder / f"host0-{1000 + rank}-1.evidence" for rank in numbers]
        self._records = [records(training, rank) for rank in numbers]
        for file in self._files:
            file.write_bytes(ev.HEADER + ev.GOING)
        self.judged = 0.0
        """Seconds of this process that went into looks."""

    def go(self, steps: int) -> bool:
        """Let every rank make so many steps; whether there are more."""
        more = False
        for file, record in zip(self._files, self._records, strict=True):
            made = 0
            with file.open("ab") as opened:
                while made < steps and (one := next(record, None)) is not None:
                    opened.write(ev.frame(one))
                    made += isinstance(one, ev.Step)
                    more = True
        return more

    def look(self, made: int) -> None:
        """Read what is new, and judge it."""
        began = time.process_time()
        self.folder.read()
        for _ in range(2):  # one look begins to judge, the next one takes what came of it
            latest = max((p.records[-1].at for p in self.folder.processes.values() if p.records), default=0.0)
            now = Moment(at=latest, host="host0", wall=0.0)
            self.judging._due = 0.0
            for finding in self.judging.look(self.folder.processes, now):
                self.told.append((made, finding.check, finding.step))
            if self.judging._thread is not None:
                self.judging._thread.join()
        self.judged += time.process_time() - began

    def verdict(self):
        """What the command would say."""
        run = Run(pid=0, exit_code=0, signal=None, command="train.py")
        processes = list(self.folder.processes.values())
        return verdict_of(run, processes, self.judging.settled, None, self.judging.failures, [])


def follow(training: Training, held: int = long_runs.HELD, together: int = TOGETHER, report=lambda made, run: None):
    """Follow a simulated run to its end."""
    with tempfile.TemporaryDirectory() as folder:
        run = Followed(Path(folder), training, held)
        for made in itertools.count(together, together):
            if not run.go(together):
                break
            run.look(made)
            report(made, run)
        run.look(training.steps)
        return run, run.verdict()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=32)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--diverges", action="store_true")
    given = parser.parse_args()
    diverges = (1, given.steps // 2) if given.diverges else None
    training = Training(ranks=given.ranks, steps=given.steps, epoch=1000, diverges=diverges)
    every = max(TOGETHER, given.steps // 10)
    began, own = time.monotonic(), psutil.Process()

    def report(made: int, run: Followed) -> None:
        if made % every < TOGETHER:
            held = sum(len(p.records) for p in run.folder.processes.values())
            taken = sum(p.taken for p in run.folder.processes.values())
            print(
                f"{made:>9,} steps  {own.memory_info().rss / 2**20:6.0f} MB  {held:>9,} of {taken:>11,} records held  "
                f"{run.judged:6.1f} s judged  {time.monotonic() - began:6.1f} s",
                flush=True,
            )

    run, verdict = follow(training, report=report)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    checked = {check: result.checked for check, result in verdict.checks.items() if result.checked}
    print(f"peak {peak:.0f} MB; {verdict.verdict}; {checked}; told {run.told}; {run.judging.failures[:1]}")
    findings = [(f.check, f.step, f.count) for f in verdict.findings]
    print(f"findings {findings} on {socket.gethostname() and given.ranks} ranks")
    return 0


if __name__ == "__main__":
    sys.exit(main())
