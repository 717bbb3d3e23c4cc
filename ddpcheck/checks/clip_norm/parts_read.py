"""Norms of gradients that are read as numbers while they are those of this rank's part alone."""

from __future__ import annotations

from collections import defaultdict

from ddpcheck import evidence as ev
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import ranks_text

_WORDS = {"norm": "norm", "sum": "sum", "max": "largest element", "min": "smallest element"}


def judge(world: World) -> list[Finding]:
    """The lines at which the ranks read other numbers.

    Where a program brings them together itself, each rank's own number is what
    it needs.
    """
    lines: dict[CallSite, dict[int, dict[Rank, ev.PartRead]]] = defaultdict(lambda: defaultdict(dict))
    joined = {rank.where(one.site) for rank, one in world.of(ev.PartsJoined)}
    for rank, one in world.of(ev.PartRead):
        where = rank.where(one.site)
        if where is not None and where not in joined:
            lines[where][one.number][rank] = one
    apart = {where: [each for _, each in sorted(its.items()) if _is_of_a_part(each)] for where, its in lines.items()}
    return [_finding(where, each) for where, each in apart.items() if each]


def _is_of_a_part(each: dict[Rank, ev.PartRead]) -> bool:
    """Whether it is not seen to be the same on all ranks, as where one of them has it all."""
    return len(each) == 1 or len({one.value for one in each.values()}) > 1


def _finding(where: CallSite, apart: list[dict[Rank, ev.PartRead]]) -> Finding:
    first = apart[0]
    what = _WORDS[next(iter(first.values())).what]
    shown = ", ".join(f"{one.value:.4g} on rank {rank.rank}" for rank, one in list(first.items())[:4])
    ranks = tuple(rank.rank for rank in first)
    return Finding(
        rule="partial-value-read",
        severity="warning",
        ranks=ranks,
        subject=f"a {what} of a DTensor",
        expected=f"the {what} of a tensor that is dealt out to several ranks to be read once its parts are brought "
        "together",
        found=f"the {what} of each rank's own part, read as a number: {shown}",
        cause="item() brings nothing together: the value is still to be made of what "
        f"{ranks_text(next(iter(first.values())).ranks)} have",
        advice="Call full_tensor() first, on all ranks that have parts: norm.full_tensor().item(). What was clipped "
        "by torch's own function was clipped rightly; what is logged, or decided by this number, is not that of the "
        "whole.",
        where=where,
        links=("parts read",),
    )
