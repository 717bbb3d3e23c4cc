"""Parts of a forward that run once more for backward(): do they draw the same numbers again?"""

from __future__ import annotations

from collections import defaultdict

from ddpcheck import evidence as ev
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count


def judge(world: World) -> list[Finding]:
    """A finding for each line that lets second runs draw other random numbers than first ones."""
    found: dict[str, list[tuple[Rank, ev.Recomputed]]] = defaultdict(list)
    drew: dict[str, int] = defaultdict(int)
    others: set[str] = set()
    for rank, one in world.of(ev.Recomputed):
        line = str(rank.where(one.site))
        drew[line] += bool(one.drew)
        if not one.drew:
            others.add(line)
        if one.apart:
            found[line].append((rank, one))
    # Where some runs draw nothing, it may be another thread that has drawn while the others ran.
    return [_finding(there, drew[line]) for line, there in found.items() if line not in others]


def _finding(there: list[tuple[Rank, ev.Recomputed]], drew: int) -> Finding:
    rank, first = there[0]
    return Finding(
        rule="different-recomputed-draws",
        severity="error",
        ranks=tuple(sorted({one.rank for one, _ in there})),
        subject="the random state of a recomputed forward",
        expected="a part of the forward that runs once more for backward() to draw the random numbers of its first run",
        found=f"{len(there)} of the {count(drew, 'second run')} that drew to begin from another state: gradients are "
        "those of another dropout mask than the one that the loss was computed with",
        cause="preserve_rng_state=False: no random state is put back for the second run",
        advice="Leave preserve_rng_state=True where the function draws random numbers.",
        where=rank.where(first.site),
    )
