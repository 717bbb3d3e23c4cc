"""Do the ranks take equally many batches, and as many as the numbers imply? Judge of batch-count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from ddpcheck.evidence.epochs import BatchFacts
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count

CHECK = "batch-count"


def implied(size: int, world_size: int, batch_size: int, drop_last: bool, sampler_drops: bool) -> int:
    """The number of batches of each rank: the sampler shares out and pads (or drops), the loader batches."""
    share = size // world_size if sampler_drops else -(-size // world_size)
    return share // batch_size if drop_last else -(-share // batch_size)


def judge(said: Sequence[Any], rounds: Sequence[Sequence[Any]]) -> tuple[Finding, ...]:
    """Compare the ranks' numbers of batches with each other, and with what the sizes imply."""
    facts = [msgspec.convert(one, BatchFacts) for one in said]
    taken = [f.batches if f.consumed is None else f.consumed for f in facts]
    first = _usual(facts)
    expected = None
    if first.size is not None and first.batch_size:
        expected = implied(first.size, len(facts), first.batch_size, first.drop_last, first.sampler_drops)
    if len(set(taken)) == 1 and (expected is None or taken[0] == expected):
        if taken[0] == 0:
            return (_finding(facts, taken, expected, "No rank has a batch, so nothing would be trained."),)
        return ()
    if len(set(taken)) > 1:
        why = (
            "A rank with fewer batches leaves the others in a collective that never completes: let a "
            "DistributedSampler pad, or drop_last even the shards out, or train within `with model.join():`"
        )
    else:
        why = "Loader and sampler do not fit together: look for a missing or a second DistributedSampler"
    return (_finding(facts, taken, expected, why + "."),)


def _usual(facts: Sequence[BatchFacts]) -> BatchFacts:
    """The facts of a rank whose sizes are the most common: the odd one must not set the number for all."""
    sizes = [(f.size, f.batch_size, f.drop_last, f.sampler_drops) for f in facts]
    return facts[sizes.index(Counter(sizes).most_common(1)[0][0])]


def _finding(facts: Sequence[BatchFacts], taken: Sequence[int], expected: int | None, advice: str) -> Finding:
    first = _usual(facts)
    wanted = "the same number of batches on every rank"
    if expected is not None:
        dropped = " with drop_last" if first.drop_last else ""
        wanted = (
            f"{count(expected, 'batch', 'batches')} on every rank ({count(first.size or 0, 'sample')} on "
            f"{count(len(facts), 'rank')}, "
            f"batches of {first.batch_size}{dropped})"
        )
    usual = Counter(taken).most_common(1)[0][0] if expected is None else expected
    odd = tuple(rank for rank, n in enumerate(taken) if n != usual) or tuple(range(len(facts)))
    shown = ", ".join(f"{n} on rank {rank}" for rank, n in enumerate(taken))
    return Finding(
        check=CHECK,
        severity="error",
        ranks=odd,
        subject="the loader",
        expected=wanted,
        found=shown,
        advice=advice,
    )
