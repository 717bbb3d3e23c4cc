"""Is each element counted once in a norm whose squares the program itself sums up over ranks?

That this sum is what it clips by shows in the steps: the factor times the norm
is the same number wherever gradients were made smaller, the norm up to which
they are left alone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.checks.clip_norm import moments
from ddpcheck.checks.clip_norm.moments import Measured, Step
from ddpcheck.judging import happens_before
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import listing

ENOUGH = 3
"""Steps at which gradients of several ranks have to be the same numbers, to be taken for those of copies."""

Count = dict[int, dict[int, int]]
"""By rank and place, how many of the ranks of a sum hold the same elements."""


class Summed(NamedTuple):
    """All squares of all ranks of a group were summed up before a step."""

    number: int
    each: list[Measured]
    sum: float

    @property
    def factor(self) -> float:
        return min((one.norm.factor if one.norm.factor is not None else 1.0) for one in self.each)

    def once(self, held: Count) -> float:
        """What the sum would be with each element counted once."""
        return math.fsum(
            square / held[one.rank.rank].get(place, 1)
            for one in self.each
            for place, square in enumerate(one.squares)
            if square != ev.NOTHING
        )


def judge(world: World, steps: list[tuple[int, int, Step]]) -> tuple[int, list[Finding]]:
    """How many sums were looked at, and the findings."""
    sums: dict[tuple[int, str, int], list[Summed]] = defaultdict(list)
    for optimizer, number, step in steps:
        for turn, summed in enumerate(_sums(world, number, step)):
            sums[optimizer, summed.each[0].norm.group, turn].append(summed)
    findings = []
    for (optimizer, _, _), its in sums.items():
        finding = _judge(world, optimizer, its)
        if finding is not None:
            findings.append(finding)
    return sum(map(len, sums.values())), findings


def _sums(world: World, number: int, step: Step) -> list[Summed]:
    """The sums, over all ranks of their group, of the squares of everything that each of them has."""
    found = []
    groups = dict.fromkeys(one.norm.group for measured in step.values() for one in measured if one.norm.group)
    for group in groups:
        ranks = happens_before.members(group, world.world_size)
        if len(ranks) < 2 or any(rank not in step for rank in ranks):
            continue
        lists = [[one for one in step[rank] if one.norm.group == group and _is_of_all(one)] for rank in ranks]
        for each in zip(*lists, strict=False):
            came = each[0].norm.came or 0.0
            if not moments.differ(came, math.fsum(one.norm.given or 0.0 for one in each)):
                found.append(Summed(number, list(each), came))
    return found


def _is_of_all(one: Measured) -> bool:
    """Whether what a rank has put into a sum is the square of the norm of all its gradients."""
    given = one.norm.given
    return given is not None and one.norm.came is not None and given > 0 and not moments.differ(given, one.total)


def _judge(world: World, optimizer: int, sums: list[Summed]) -> Finding | None:
    first = sums[0]
    # Optimizers may get other parameters on their way, and copies with them: only steps on the same are compared.
    sums = [one for one in sums if [m.optimizer.n for m in one.each] == [m.optimizer.n for m in first.each]]
    clipped = [one for one in sums if one.factor < 1 - moments.ALIKE]
    if not clipped:
        return None
    held = _declared(world, first)
    if _is_used(clipped, held):
        return _finding(optimizer, clipped, held, certain=True)
    equal = _equal(first, sums) if len(sums) >= ENOUGH else {}
    if equal and _is_used(clipped, equal):
        return _finding(optimizer, clipped, equal, certain=False)
    return None


def _is_used(clipped: list[Summed], held: Count) -> bool:
    """Whether gradients were scaled by this sum, and not by one in which each element is counted once."""
    if not any(moments.differ(one.sum, one.once(held), 2 * moments.ALIKE) for one in clipped):
        return False
    taken = [one.factor * math.sqrt(one.sum) for one in clipped]
    right = [one.factor * math.sqrt(one.once(held)) for one in clipped]
    factors = [one.factor for one in clipped]
    if max(factors) > 1.01 * min(factors) and _is_one(taken) and not _is_one(right):
        return True
    # Where all elements are counted equally often, both are the same at every step. A bound is a round number.
    return all(map(_is_round, taken)) and not any(map(_is_round, right))


def _is_one(numbers: Sequence[float]) -> bool:
    return len(numbers) > 1 and not moments.differ(min(numbers), max(numbers))


def _is_round(number: float) -> bool:
    """Whether it has two digits at most, but for rounding."""
    return number > 0 and not moments.differ(number, float(f"{number:.1e}"), 1e-4)


# --- who holds copies


def _declared(world: World, summed: Summed) -> Count:
    """By wrappers, by placements, and by what the program itself reduces."""
    ranks = {one.rank.rank for one in summed.each}
    found: Count = {}
    carried: dict[tuple[str, int, int], set[int]] = defaultdict(set)
    for one in summed.each:
        for key, _ in _reduced(one, summed.number):
            carried[key].add(one.rank.rank)
    for one in summed.each:
        mine = found[one.rank.rank] = {}
        groups = {w.wrapper: w.group for w in one.rank.of(ev.Wrapped)}
        for place, parameter in enumerate(one.parameters):
            holders: set[int] = set()
            layout = parameter.layout
            if layout is not None and layout.ground in ("DTensor", "FSDP") and "P" not in layout.placements:
                holders = set(layout.holders)
            elif parameter.wrapper in groups and parameter.reduced:
                holders = set(happens_before.members(groups[parameter.wrapper], world.world_size))
            if len(holders & ranks) > 1:
                mine[place] = len(holders & ranks)
        for key, place in _reduced(one, summed.number):
            if len(carried[key] & ranks) > 1:
                mine.setdefault(place, len(carried[key] & ranks))
    return found


def _reduced(one: Measured, number: int) -> list[tuple[tuple[str, int, int], int]]:
    """The places of the gradients that the program itself makes the same on several ranks, with the call of each."""
    last = None
    for record in one.rank.of(ev.Exchanged):
        if record.optimizer == one.norm.optimizer and record.number <= number:
            last = record
    if last is None or last.lost:
        return []
    return [
        ((c.group, c.number, c.offset), c.place)
        for c in last.carried
        if c.of == "gradient" and c.alike and not c.inside and not c.flat
    ]


def _equal(first: Summed, sums: list[Summed]) -> Count:
    """The gradients that were the same numbers on all ranks at every step, of ranks that compute one model together."""
    if len({len(one.squares) for one in first.each}) > 1:
        return {}
    if any(not one.norm.joint for one in first.each):
        return {}
    places = []
    for place, parameter in enumerate(first.each[0].parameters):
        same = {(one.parameters[place].kind, one.parameters[place].name) for one in first.each}
        each = [[one.squares[place] for one in summed.each] for summed in sums]
        if len(same) == 1 and all(s[0] > 0 and len(set(s)) == 1 for s in each) and not _is_scalar(parameter):
            places.append(place)
    if not places or len(places) == len(first.each[0].parameters):
        return {}
    return {one.rank.rank: dict.fromkeys(places, len(first.each)) for one in first.each}


def _is_scalar(parameter: ev.Parameter) -> bool:
    return parameter.kind.endswith(("[]", "[1]"))


# --- the words


def _finding(optimizer: int, clipped: list[Summed], held: Count, certain: bool) -> Finding:
    first = clipped[0]
    one = first.each[0]
    names = [one.parameters[place].name for place in held[one.rank.rank]]
    times = max(held[one.rank.rank].values(), default=2)
    everything = len(names) == len(one.parameters)
    used, right = math.sqrt(first.sum), math.sqrt(first.once(held))
    copies = (
        "which every rank has"
        if certain
        else "whose gradients were the same numbers on all of these ranks at every step looked at"
    )
    return Finding(
        severity="error" if certain else "warning",
        ranks=tuple(m.rank.rank for m in first.each),
        subject=names[0] if names else "the gradients",
        step=first.number,
        expected="each element of the gradient to be counted once in the norm that clips it",
        found=f"a norm of {used:.4g}, in which {'all parameters' if everything else listing(names)}, {copies}, are "
        f"counted {times} times; counted once, it is {right:.4g}",
        cause="the squares of all gradients are summed up over the ranks, those of copies too",
        advice="Sum up over the ranks the squares of what is split over them alone, and add those of what every rank "
        "has once" + (": here no sum over ranks is needed." if everything else "."),
        where=one.rank.where(one.norm.site),
        count=len(clipped),
        links=(f"optimizer {optimizer}",),
    )
