"""Do the ranks take equally many batches, and as many as the numbers imply? Judge of batch-count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from ddpcheck.checks.batch_count import causes
from ddpcheck.evidence.epochs import BatchFacts
from ddpcheck.judging import uneven_batches
from ddpcheck.vocabulary.model import Finding


def judge(said: Sequence[Any], rounds: Sequence[Sequence[Any]]) -> tuple[Finding, ...]:
    """Compare the ranks' numbers of batches with each other, and with what the sizes imply."""
    facts = [msgspec.convert(one, BatchFacts) for one in said]
    taken = [f.batches if f.consumed is None else f.consumed for f in facts]
    first = _usual(facts)
    expected = None
    if first.size is not None and first.batch_size:
        expected = causes.implied(first.size, len(facts), first.batch_size, first.drop_last, first.sampler_drops)
    if len(set(taken)) == 1 and (expected is None or taken[0] == expected):
        if taken[0] == 0:
            advice = "No rank has a batch, so nothing would be trained."
            return (_finding(facts, taken, expected, advice, rule="no-batches"),)
        return ()
    if len(set(taken)) > 1:
        advice = f"{causes.LEFT}: {uneven_batches.EVEN_OUT}"
        return (_finding(facts, taken, expected, advice, rule="unequal-batch-counts"),)
    advice = "Loader and sampler do not fit together: look for a missing or a second DistributedSampler."
    return (_finding(facts, taken, expected, advice, rule="unexpected-batch-count"),)


def _usual(facts: Sequence[BatchFacts]) -> BatchFacts:
    """The facts of a rank whose sizes are the most common: the odd one must not set the number for all."""
    sizes = [(f.size, f.batch_size, f.drop_last, f.sampler_drops) for f in facts]
    return facts[sizes.index(Counter(sizes).most_common(1)[0][0])]


def _finding(
    facts: Sequence[BatchFacts], taken: Sequence[int], expected: int | None, advice: str, *, rule: str
) -> Finding:
    usual = Counter(taken).most_common(1)[0][0] if expected is None else expected
    odd = tuple(rank for rank, n in enumerate(taken) if n != usual) or tuple(range(len(facts)))
    shown = ", ".join(f"{n} on rank {rank}" for rank, n in enumerate(taken))
    return Finding(
        rule=rule,
        ranks=odd,
        subject="the loader",
        expected=causes.wanted(expected, _loaded(_usual(facts)), len(facts)),
        found=shown,
        cause=causes.why([*map(_loaded, facts)]) if len(set(taken)) > 1 else "",
        advice=advice,
    )


def _loaded(facts: BatchFacts) -> causes.Loaded:
    return causes.Loaded(
        facts.size, facts.batch_size, facts.drop_last, facts.sampler_drops, facts.dataset, facts.sampler
    )
