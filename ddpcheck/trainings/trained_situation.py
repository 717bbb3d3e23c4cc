"""One situation as a trainer has gone through it: what its judges look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ddpcheck.evidence import training_record
from ddpcheck.evidence.oracle_comparison import Comparison
from ddpcheck.judging.known_errors import Explained, explain_words
from ddpcheck.judging.world import Judged
from ddpcheck.outcomes.test_outcome import Outcome, crash_message
from ddpcheck.trainings.situations import Situation
from ddpcheck.trainings.steps_with_micro_batches import Trace
from ddpcheck.vocabulary.model import Finding, RunRecord
from ddpcheck.vocabulary.wording import ranks_text


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
        """What the adapter has said on every rank that it cannot do; empty where it has not."""
        said = [trace.first(training_record.NotSupportedSaid) for trace in self.traces]
        return "" if None in said else str(said[0].text)

    @property
    def _disagreed(self) -> list[int]:
        """The ranks that alone have said that it is not supported."""
        said = [rank for rank in self.ranks if self.traces[rank].first(training_record.NotSupportedSaid) is not None]
        return said if len(said) < self.world_size else []

    @property
    def failed(self) -> bool:
        """It did not come to its end on every rank."""
        return self.outcome.result != "passed" or bool(self._disagreed)

    @property
    def hung(self) -> bool:
        return any(ending.kind == "hung" for ending in self.record.endings)

    @property
    def ranks(self) -> range:
        return range(self.world_size)

    @property
    def explained(self) -> Explained | None:
        """What is known of the exception that it ended with, if anything is."""
        report = self.outcome.report
        return None if self.hung else explain_words(crash_message(report) if report is not None else self.text)

    def failure(self) -> Finding:
        """That it did not end well, as a finding."""
        if self._disagreed:
            return Finding(
                check="rank-failure",
                rule="unsupported-on-some-ranks",
                ranks=tuple(self._disagreed),
                subject=f"fit(job), {self.situation.about}",
                expected="ddpcheck.NotSupported to be raised on all ranks, or on none",
                found=f"{ranks_text(self._disagreed)} raised it, and the others did not",
                advice="Let it depend on the job's settings alone, which are the same on every rank.",
            )
        hung = self.hung
        ranks = tuple(e.rank for e in self.record.endings if e.kind == "hung") if hung else (self.outcome.root or 0,)
        known = self.explained
        limit = f"within {self.record.plan.timeout:g} s"
        return Finding(
            check="no-hang" if hung else "rank-failure",
            rule="fit-never-returns" if hung else "failed-training",
            ranks=ranks,
            subject=f"fit(job), {self.situation.about}",
            expected=f"fit to return on every rank {limit if hung else ''}".strip(),
            found=self.outcome.headline + (f"\n{self.text}" if self.text else ""),
            cause=known.cause if known is not None else "",
            advice=known.advice
            if known is not None
            else (
                "See from the stacks what the ranks wait for: they may have different numbers of batches, or one has "
                "left a loop that the others are in."
                if hung
                else "See from the traceback what it needs; raise ddpcheck.NotSupported for what the library has not."
            ),
        )
