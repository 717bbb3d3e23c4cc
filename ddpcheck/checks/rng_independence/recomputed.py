"""Parts of a forward that run once more for backward(): do they draw the same numbers again?"""

from __future__ import annotations

from collections import defaultdict

from ddpcheck import evidence as ev
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count


def judge(world: World) -> tuple[int, list[Finding]]:
    """How many second runs drew random numbers, and a finding for each line that lets them draw others."""
    checked = 0
    found: dict[str, list[tuple[Rank, ev.Recomputed]]] = defaultdict(list)
    drew: dict[str, int] = defaultdict(int)
    for rank in world:
        for one in rank.of(ev.Recomputed):
            checked += bool(one.drew)
            drew[str(rank.where(one.site))] += bool(one.drew)
            if one.apart:
                found[str(rank.where(one.site))].append((rank, one))
    return checked, [_finding(there, drew[line]) for line, there in found.items()]


def _finding(there: list[tuple[Rank, ev.Recomputed]], drew: int) -> Finding:
    rank, first = there[0]
    return Finding(
        severity="error",
        ranks=tuple(sorted({one.rank for one, _ in there})),
        subject="the random state of a recomputed forward",
        expected="a part of the forward that runs once more for backward() to draw the random numbers of its first run",
        found=f"{len(there)} of the {count(drew, 'second run')} that drew to begin from another state: gradients are "
        "those of another dropout mask than the one that the loss was computed with",
        cause="preserve_rng_state=False, or random states that are set within the function",
        advice="Leave preserve_rng_state=True where the function draws random numbers.",
        where=rank.where(first.site),
        count=len(there),
    )
