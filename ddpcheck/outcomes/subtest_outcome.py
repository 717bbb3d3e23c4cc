"""Parts that a test reports by themselves, such as subtests: what all ranks said of each, and its one outcome."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from msgspec.structs import replace

from ddpcheck.outcomes.test_outcome import Note, Outcome, decide
from ddpcheck.vocabulary.model import PhaseReport, RankEnding, RunRecord, Struct


class Subtest(Struct, frozen=True, kw_only=True):
    """One subtest, decided as a test is, over the ranks that came to it."""

    record: RunRecord
    """Of these ranks alone, each with its report of this subtest."""
    outcome: Outcome

    @property
    def parameters(self) -> dict[str, Any]:
        """What the test has told it apart by, besides the message."""
        context = self.record.endings[0].reports[0].data.get(_CONTEXT)
        return dict(context["kwargs"]) if context else {}


_CONTEXT = "_subtest.context"
"""Where pytest and pytest-subtests put the message and the parameters of a subtest."""


def subtests_of(record: RunRecord) -> list[Subtest]:
    """The subtests of a run, the first to end first.

    Ranks mean the same subtest where they give it the same message and
    parameters; of several such, the first is every rank's first.
    """
    said: dict[tuple[str, int], dict[int, PhaseReport]] = {}
    for ending in record.endings:
        times: Counter[str] = Counter()
        for report in ending.subtests:
            name = json.dumps(report.data.get(_CONTEXT), sort_keys=True, default=str)
            times[name] += 1
            said.setdefault((name, times[name]), {})[ending.rank] = report
    return [_decided(record, by_rank) for by_rank in sorted(said.values(), key=_first_end)]


def _first_end(by_rank: dict[int, PhaseReport]) -> float:
    return min(report.at for report in by_rank.values())


def _decided(record: RunRecord, by_rank: dict[int, PhaseReport]) -> Subtest:
    endings = tuple(RankEnding(rank=k, kind="finished", at=r.at, reports=(r,)) for k, r in by_rank.items())
    own = replace(record, endings=endings)
    outcome = decide(own)
    if outcome.result == "failed":
        absent = (e.rank for e in record.endings if e.rank not in by_rank)
        notes = (*outcome.notes, *(Note(rank=rank, text="did not come to its end") for rank in absent))
        outcome = replace(outcome, notes=tuple(sorted(notes, key=lambda note: note.rank)))
    return Subtest(record=own, outcome=outcome)
