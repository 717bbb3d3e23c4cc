"""What the judges say of a recording: the verdict that the command would have come to."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from ddpcheck.judging.evidence_folder import Folder
from ddpcheck.judging.world import Process
from ddpcheck.run import run_facts
from ddpcheck.run.conclusion import verdict_of
from ddpcheck.verdict.settled import Settled
from ddpcheck.verdict.verdict import Verdict
from tests.corpus import forked_run

Seen = Callable[[list[Process]], list[Process]]


class Replayed:
    """A recorded run, judged; ``seen`` may change what its processes have recorded."""

    def __init__(self, evidence: Path, seen: Seen = list) -> None:
        self.evidence, self._seen = evidence, seen
        self._facts = run_facts.read(evidence)

    @cached_property
    def _ran(self) -> forked_run.Ran:
        return forked_run.judged(self.evidence, self._seen)

    @cached_property
    def verdict(self) -> Verdict:
        """What the command would say of it all."""
        if self._facts is None:
            assert self._ran.verdict is not None
            return self._ran.verdict
        folder = Folder(self.evidence)
        folder.read()
        assert self._facts.run is not None, f"the run of {self.evidence} did not end"
        processes = self._seen(list(folder.processes.values()))
        return verdict_of(self._facts.run, processes, Settled(), None, self._facts.defects, self._facts.notes)

    @property
    def exits(self) -> dict[int, int]:
        """By rank: the exit code, negative for a signal."""
        if self._facts is None:
            return self._ran.exits
        return {r.rank: -r.signal if r.signal else r.exit_code or 0 for r in self.verdict.ranks}

    @property
    def hung(self) -> bool:
        """It was ended because it did not go on."""
        return self._ran.hung if self._facts is None else bool(self._facts.run and self._facts.run.stuck)

    @property
    def certain(self) -> bool:
        """That it would not go on was known before its time was up."""
        return self._ran.certain if self._facts is None else self.hung

    @property
    def seconds(self) -> float:
        """What it took to run."""
        return self._ran.seconds if self._facts is None else self.verdict.seconds

    @property
    def output(self) -> str:
        """What its ranks printed, where that was kept."""
        return self._ran.output if self._facts is None else ""
