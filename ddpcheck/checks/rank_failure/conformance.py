"""`rank-failure` over a training: what one rank raises comes out of fit there, and no other rank goes on."""

from __future__ import annotations

from ddpcheck.evidence import training_record
from ddpcheck.judging.world import Judged
from ddpcheck.outcomes.test_outcome import crash_message
from ddpcheck.trainings.suite_row import Row, one
from ddpcheck.trainings.trained_situation import Trained
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import ranks_text

PLANNED = "the conformance suite lets the loss of this rank fail here"


def judge(trained: Trained) -> Judged:
    """`rank-failure`: what one rank raises comes out of fit there, and no other rank returns as if all were well."""
    last = trained.world_size - 1
    trace, ending = trained.traces[last], trained.record.endings[last]
    if not trace.of(training_record.Raised):
        return Judged(checked=0, skipped_because="the loss was not called on the last rank")
    if trace.returned:
        found = f"fit returned on rank {last}, although job.loss had raised there"
        return _violated(trained, [last], found, _SWALLOWS, rule="swallowed-exception")
    if ending.kind == "hung":
        found = f"rank {last} hung after job.loss had raised there"
        return _violated(trained, [last], found, _SWALLOWS, rule="hang-after-exception")
    told = " ".join(crash_message(r) + str(r.data.get("longrepr")) for r in ending.reports if r.outcome == "failed")
    told += ending.raised.text if ending.raised is not None else ""
    if PLANNED not in told:
        return _violated(
            trained,
            [last],
            f"rank {last} ended without the words of that exception: {trained.outcome.headline}",
            "Raise the exception itself, or another one from it.",
            rule="replaced-exception",
        )
    went_on = [rank for rank in range(last) if trained.traces[rank].returned]
    if went_on:
        return _violated(
            trained, went_on, f"fit returned on {ranks_text(went_on)} as if all were well",
            "Let the other ranks' collectives fail with the rank that is lost.",
            rule="peers-return-normally",
        )  # fmt: skip
    return Judged(checked=1)


_SWALLOWS = "Let exceptions out of fit: catch none that is not your own, and do not go on to the next batch."


def _violated(trained: Trained, ranks: list[int], found: str, advice: str, *, rule: str) -> Judged:
    finding = Finding(
        rule=rule,
        ranks=tuple(ranks),
        subject="fit(job)",
        expected="the exception that job.loss raises on one rank to come out of fit there, and no rank to go on",
        found=found,
        advice=advice,
    )
    return Judged(checked=1, findings=(finding,))


ROWS = (Row("rank-failure", ("raises",), one(judge), also_failed=True),)
