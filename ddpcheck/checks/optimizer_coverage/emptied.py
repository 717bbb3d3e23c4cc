"""Is a step made of the gradients that backward() has computed, or of nothing in their place?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.facts import moments
from ddpcheck.judging.values_by_key import by_key
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import Finding, Severity
from ddpcheck.vocabulary.wording import count, ranks_text

ENOUGH = 2
"""Steps on zeros of some ranks: a single one may be left out on purpose."""
ALWAYS = 3
"""Steps of which not one may have been made on a gradient, or have moved a parameter, to say so of all."""


class _Made(NamedTuple):
    """A step, in a window of its rank."""

    rank: Rank
    step: ev.Step
    window: moments.Window
    emptied: bool
    """backward() has contributed gradients, and the step is made on zeros, or on none."""
    whole: bool
    """It was made on gradients."""
    name: str
    """A parameter."""


def findings(world: World) -> Iterator[Finding]:
    """Steps on nothing: of all ranks, always; or without any collective, of some, while others step on gradients.

    Who leaves a step out, as after an overflow, does so on all ranks, or learns
    of it from the others. Zeros that only stand in this rank's part of a sum are
    none when the step is made. A model that moves all the same has learnt by
    another way; and who steps on some of the gradients of a backward() leaves the others out on purpose.
    """
    made = [one for rank in world for one in _made(rank)]
    for its in by_key((one.step.optimizer, one) for one in made).values():
        everywhere = len({one.rank.rank for one in its}) == len(world.ranks)
        if everywhere and _is_never_stepped(its) and not _is_chosen(its, made):
            yield _finding(its, len(its), *_ALL)
    windows = by_key((one.step.number, one) for one in made)
    lost: dict[str, list[_Made]] = defaultdict(list)
    trained = {one.rank.rank for one in made if one.whole and one.step.collectives}
    for each in windows.values():
        if any(one.whole and one.step.collectives for one in each):
            for one in each:
                if one.emptied and not one.step.collectives and one.rank.rank in trained:
                    lost[str(one.rank.where(one.step.site))].append(one)
    for its in lost.values():
        if len(its) >= ENOUGH:
            yield _finding(its, sum(map(len, windows.values())), *_SOME)


def _made(rank: Rank) -> Iterator[_Made]:
    for step in rank.of(ev.Step):
        window = moments.window(rank, step.optimizer, step.number)
        if window is not None:
            stepped = {piece for piece, value in window.gradients.items() if value.sketch.any()}
            given = {piece for piece, each in window.contributions.items() if any(one.sketch.any() for one in each)}
            own = given & window.places.keys()
            pieces = moments.pieces(rank)
            name = pieces[min(own)].path if own else ""
            yield _Made(rank, step, window, bool(own) and not stepped, bool(stepped), name)


def _is_never_stepped(its: list[_Made]) -> bool:
    """Whether not one of these steps was made on a gradient, and all parameters are what they were at the first."""
    if len({one.step.number for one in its}) < ALWAYS or not all(one.emptied for one in its):
        return False
    if any(window.unreduced for one in its for window in one.rank.of(ev.Window)):  # they wait for their reduction
        return False
    held: dict[tuple[int, int], set[bytes]] = defaultdict(set)
    for one in its:
        for values in (one.window.before, one.window.after):
            for piece in one.window.places.keys() & values.keys():
                held[one.rank.rank, piece].add(values[piece].digest)
    return bool(held) and all(len(digests) == 1 for digests in held.values())


def _is_chosen(its: list[_Made], every: list[_Made]) -> bool:
    """Whether another optimizer steps on what the same backward() calls have left."""
    calls = {call for one in its for call in _calls(one)}
    return any(call in calls for one in every if one.whole for call in _calls(one))


def _calls(made: _Made) -> set[tuple[int, int]]:
    """The backward() calls that have contributed to what a step is of, by rank."""
    each = made.window.contributions
    return {(made.rank.rank, one.backward) for piece in made.window.places.keys() & each.keys() for one in each[piece]}


_ALL: tuple[Severity, str, str, str] = (
    "error",
    "and no parameter to have moved from the first of them to the last",
    "the gradients are gone when the optimizer steps, as where zero_grad() is called between backward() and step()",
    "Leave gradients in .grad until step(): call zero_grad() before backward(), or after step().",
)
_SOME: tuple[Severity, str, str, str] = (
    "warning",
    "and nothing was exchanged since; in the same round other ranks stepped on theirs",
    "the gradients are taken from a buffer that only an exchange fills, and there was none",
    "Step on the rank's own gradient where there is no other rank to average with, or leave the step out.",
)


def _finding(its: list[_Made], among: int, severity: Severity, so: str, cause: str, advice: str) -> Finding:
    first = its[0]
    ranks = tuple(sorted({one.rank.rank for one in its}))
    return Finding(
        rule="step-on-zeroed-gradients",
        severity=severity,
        ranks=ranks,
        subject=first.name,
        step=first.step.number,
        expected="each step to be made on what backward() has computed, or on what the ranks have made of it",
        found=f"{count(len(its), 'step')} (of {among} looked at) on zeros or nothing, on {ranks_text(ranks)}, though "
        f"backward() had left gradients, {so}",
        cause=cause,
        advice=advice,
        where=first.rank.where(first.step.site),
        count=len({(one.rank.rank, one.step.optimizer) for one in its}),
        links=(f"optimizer {first.step.optimizer}",),
    )
