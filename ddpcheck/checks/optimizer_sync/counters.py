"""Counts of steps that an optimizer keeps in its groups of parameters: the same on all ranks that step alike?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from ddpcheck import evidence as ev
from ddpcheck.judging.copies import Copies
from ddpcheck.judging.step_alignment import Aligned
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import ranks_text

ENOUGH = 2
"""Looks at which it was behind."""


def findings(held: Copies) -> Iterator[Finding]:
    """On some rank an entry has grown by one with every step, and on another one it is behind, by more and more.

    Other numbers that ranks count may be of their own work. One that is called so
    and raised with each step on one rank counts the steps there.
    """
    optimizer = held.optimizer
    if not held.parameters or len(optimizer.ranks) < 2:
        return
    looked: dict[int, list[dict[str, int]]] = defaultdict(lambda: [{} for _ in optimizer.ranks])
    for place, (rank, described) in enumerate(zip(optimizer.ranks, optimizer.described, strict=True)):
        for one in rank.of(ev.GroupCounts):
            if one.optimizer == described.optimizer:
                looked[one.number][place] = one.grown
    last = min((max((s.number for s in its.values()), default=-1) for its in optimizer.steps), default=-1)
    numbers = [number for number in sorted(looked) if number <= last]
    for key in dict.fromkeys(key for number in numbers for each in looked[number] for key in each):
        counts = [[looked[number][place].get(key, 0) for number in numbers] for place in range(len(optimizer.ranks))]
        steps = [each == numbers for each in counts]
        behind = [place for place, each in enumerate(counts) if _is_behind(each, numbers)]
        if any(steps) and behind and all(one or place in behind for place, one in enumerate(steps)):
            yield _finding(optimizer, key, numbers, counts, behind)


def _is_behind(counts: Sequence[int], numbers: Sequence[int]) -> bool:
    missed = [number - count for number, count in zip(numbers, counts, strict=True)]
    return sum(one > 0 for one in missed) >= ENOUGH and missed == sorted(missed) and missed[-1] > missed[0]


def _finding(
    optimizer: Aligned, key: str, numbers: Sequence[int], counts: Sequence[Sequence[int]], behind: Sequence[int]
) -> Finding:
    name = key.partition(" ")[2]
    ahead = next(place for place, each in enumerate(counts) if list(each) == list(numbers))
    ranks = [optimizer.ranks[place] for place in behind]
    first = next(at for at, number in enumerate(numbers) if counts[behind[0]][at] < number)
    step = next((s for s in optimizer.steps[behind[0]].values() if s.number >= numbers[first] - 1), None)
    return Finding(
        rule="unequal-step-counters",
        severity="warning",
        ranks=tuple(rank.rank for rank in ranks),
        subject=f"the {optimizer.kind}'s {name}",
        step=numbers[first] - 1,
        expected=f"a count of steps, {name!r} in the groups of parameters, to be the same on all ranks that have made "
        "the same steps",
        found=f"{numbers[-1]} on rank {optimizer.ranks[ahead].rank} after {numbers[-1]} steps, and "
        f"{counts[behind[0]][-1]} on {ranks_text([rank.rank for rank in ranks])}",
        cause="a rank counts only the steps in which it has something to do itself",
        advice="Count every step on every rank, before it is known which gradients there are: what is renewed, decayed "
        "or corrected by this count is so at other times on each rank.",
        where=ranks[0].where(step.site) if step is not None else None,
        links=(f"counts of optimizer {optimizer.number}",),
    )
