"""One situation as a trainer has gone through it: what its judges look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ddpcheck.checks.world import Judged
from ddpcheck.conformance import facts
from ddpcheck.conformance.compared import Comparison
from ddpcheck.conformance.situations import Situation
from ddpcheck.conformance.traces import Trace
from ddpcheck.model import Finding, RunRecord
from ddpcheck.outcome import Outcome


class Trained:
    """The evidence of all ranks of one training, and of the oracle."""

    def __init__(
        self,
        situation: Situation,
        world_size: int,
        record: RunRecord,
        outcome: Outcome,
        text: str,
        traces: Sequence[Trace],
        comparison: Comparison | None = None,
        watched: Mapping[str, Judged] | None = None,
    ) -> None:
        self.situation, self.world_size = situation, world_size
        self.record, self.outcome = record, outcome
        self.text = text
        """How it ended, where it did not end well: the failure text of a test."""
        self.traces = list(traces)
        self.comparison = comparison
        self.watched = dict(watched or {})
        """What the judges of a script's run say of it."""

    @property
    def unsupported(self) -> str:
        """What the adapter has said that it cannot do; empty where it has said nothing."""
        said = [fact.text for trace in self.traces for fact in trace.of(facts.NotSupportedSaid)]
        return said[0] if said else ""

    @property
    def failed(self) -> bool:
        """It did not come to its end on every rank."""
        return self.outcome.result != "passed"

    @property
    def hung(self) -> bool:
        return any(ending.kind == "hung" for ending in self.record.endings)

    @property
    def ranks(self) -> range:
        return range(self.world_size)

    def failure(self) -> Finding:
        """That it did not end well, as a finding."""
        hung = self.hung
        ranks = tuple(e.rank for e in self.record.endings if e.kind == "hung") if hung else (self.outcome.root or 0,)
        limit = f"within {self.record.plan.timeout:g} s"
        return Finding(
            check="no-hang" if hung else "rank-failure",
            severity="error",
            ranks=ranks,
            subject=f"fit(job), {self.situation.about}",
            expected=f"fit to return on every rank {limit if hung else ''}".strip(),
            found=self.outcome.headline + (f"\n{self.text}" if self.text else ""),
            advice=(
                "See from the stacks what the ranks wait for: they may have different numbers of batches, or one has "
                "left a loop that the others are in."
                if hung
                else "See from the traceback what it needs; raise ddpcheck.NotSupported for what the library has not."
            ),
        )
