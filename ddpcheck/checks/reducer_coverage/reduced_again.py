"""Gradients that a wrapper has averaged already, and that the program adds up over the same ranks once more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.judging import happens_before
from ddpcheck.judging.summed_gradients import EXACT, Brought, brought
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import count, listing, ranks_text

AT_LEAST = 2
"""Steps at which it was so."""


class _Again(NamedTuple):
    one: Brought
    ranks: tuple[int, ...]
    """Over which the program adds up what a wrapper has averaged over them, and maybe over more."""


def judge(world: World) -> Iterator[Finding]:
    """An average of what is equal already is the same again; a sum of it is a multiple.

    That the gradient is so many times the mean is asked for, too: it may be
    divided afterwards.
    """
    met: dict[tuple[CallSite | None, tuple[int, ...]], list[_Again]] = defaultdict(list)
    looked: dict[tuple[int, int, str], list[_Again | None]] = defaultdict(list)
    for one in brought(world):
        if one.declared and len(one.over) > 1:
            looked[one.rank.rank, one.model, one.path].append(_again(world, one))
    for each in looked.values():
        again = [one for one in each if one is not None]
        if len(again) >= AT_LEAST and len(again) == len(each):
            first = again[0]
            met[_where(first.one.rank, first.one.optimizer), first.ranks].append(first)
    by_line: dict[CallSite | None, list[_Again]] = defaultdict(list)
    for (where, _), its in met.items():
        by_line[where] += its
    for where, its in by_line.items():
        yield _finding(where, its)


def _again(world: World, one: Brought) -> _Again | None:
    """The ranks of a call of the program's own over this gradient, where it has made so many times the mean of it."""
    for record in one.rank.of(ev.Exchanged):
        described = _described(one.rank, record)
        for carried in (*record.carried, *record.parts) if described is not None else ():
            if carried.of != "gradient" or not carried.alike or carried.flat:
                continue
            parameter = described.parameters[carried.place] if described is not None else None
            if parameter is None or parameter.model != one.model or parameter.path != one.path:
                continue
            ranks = tuple(sorted(happens_before.members(carried.group, world.world_size)))
            times = one.factor * len(one.over)
            if len(ranks) > 1 and set(ranks) <= set(one.over) and abs(times - len(ranks)) <= EXACT * len(ranks):
                return _Again(one, ranks)
    return None


def _described(rank: Rank, record: ev.Exchanged) -> ev.Optimizer | None:
    its = [one for one in rank.of(ev.Optimizer) if one.optimizer == record.optimizer and one.n < record.n]
    return its[-1] if its and len(its[-1].parameters) > max((c.place for c in record.carried), default=-1) else None


def _where(rank: Rank, optimizer: int) -> CallSite | None:
    step = next((step for step in rank.of(ev.Step) if step.optimizer == optimizer), None)
    return rank.where(step.site) if step is not None else None


def _finding(where: CallSite | None, its: list[_Again]) -> Finding:
    first = its[0]
    names = list(dict.fromkeys(one.one.path for one in its))
    times = len(first.ranks)
    return Finding(
        severity="warning",
        ranks=tuple(sorted({one.one.rank.rank for one in its})),
        subject=names[0],
        expected="gradients to be averaged over the ranks that read other data once before a step",
        found=f"those of {count(len(names), 'parameter')} to be averaged over {ranks_text(first.one.over)} by the "
        f"wrapper, and to be added up over {ranks_text(first.ranks)} by the program after that: {times} times the "
        f"mean: {listing(names)}",
        cause="the program's own reduction was kept when the wrapper took it over, or along a dimension that its mesh "
        "has already",
        advice="Leave out the program's own reduction; or wrap over the other dimension's mesh alone.",
        where=where,
        links=(f"optimizer {first.one.optimizer}",),
    )
