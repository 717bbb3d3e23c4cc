"""Is each element counted once in a norm whose squares the program itself sums up over ranks?

That this sum is what it clips by shows in the steps: the factor times the norm
is the same number wherever gradients were made smaller, the norm up to which
they are left alone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.checks.clip_norm import moments
from ddpcheck.checks.clip_norm.moments import Measured, Step
from ddpcheck.judging import happens_before
from ddpcheck.judging.step_alignment import Windows
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
    then: tuple[Measured, ...] = ()
    """Where sums along one dimension were summed up along another: the second call, rank by rank."""

    @property
    def groups(self) -> tuple[str, ...]:
        """Of the first rank: those that its squares have gone through."""
        return (self.each[0].norm.group, *(one.norm.group for one in self.then[:1]))

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


def judge(
    world: World, steps: list[tuple[int, int, Step]], clipping: frozenset[tuple[int, int]]
) -> tuple[Windows, list[Finding]]:
    """The windows in which sums of gradients that are clipped were looked at, and the findings."""
    sums: dict[tuple[int, tuple[str, ...], int], list[Summed]] = defaultdict(list)
    for optimizer, number, step in steps:
        for turn, summed in enumerate([*_sums(world, number, step), *_in_turn(world, number, step)]):
            sums[optimizer, summed.groups, turn].append(summed)
    findings, checked = [], Windows()
    for (optimizer, _, _), its in sums.items():
        if all((optimizer, one.rank.rank) in clipping for one in its[0].each):
            checked |= {(optimizer, one.number) for one in its}
        finding = _judge(world, optimizer, its)
        if finding is not None:
            findings.append(finding)
    return checked, findings


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


def _in_turn(world: World, number: int, step: Step) -> Iterator[Summed]:
    """The sums along one dimension of a mesh that are summed up along another one, so that they are of all its ranks.

    The ranks are those of which the numbers come to the last one, each taken once.
    """
    twice = {rank: next(_pairs(measured), None) for rank, measured in step.items()}
    seen: set[frozenset[int]] = set()
    for pair in twice.values():
        if pair is None:
            continue
        over = happens_before.members(pair[1].norm.group, world.world_size)
        firsts = [one[0] for rank in over if (one := twice.get(rank)) is not None]
        ranks = [happens_before.members(one.norm.group, world.world_size) for one in firsts]
        among = frozenset().union(*ranks)
        each = [one for rank in sorted(among) if (one := twice.get(rank)) is not None]
        if len(firsts) < len(over) or len(each) < len(among) or among in seen or len(among) < sum(map(len, ranks)):
            continue
        seen.add(among)
        came = pair[1].norm.came or 0.0
        if not moments.differ(came, math.fsum(one.norm.given or 0.0 for one, _ in each)):
            yield Summed(number, [one for one, _ in each], came, tuple(then for _, then in each))


def _pairs(measured: Sequence[Measured]) -> Iterator[tuple[Measured, Measured]]:
    """A sum of all of a rank's squares, and the next one, over other ranks, into which it has put what came of that."""
    for one, then in pairwise(measured):
        groups = {one.norm.group, then.norm.group}
        given, came = then.norm.given, one.norm.came
        if len(groups) == 2 and "" not in groups and given is not None and given == came and _is_of_all(one):
            yield one, then


def _is_of_all(one: Measured) -> bool:
    """Whether what a rank has put into a sum is the square of the norm of all its gradients."""
    given = one.norm.given
    return given is not None and one.norm.came is not None and given > 0 and not moments.differ(given, one.total)


REPEATEDLY = "copies-counted-repeatedly"


def _judge(world: World, optimizer: int, sums: list[Summed]) -> Finding | None:
    first = sums[0]
    # Optimizers may get other parameters on their way, and copies with them: only steps on the same are compared.
    sums = [one for one in sums if [m.optimizer.n for m in one.each] == [m.optimizer.n for m in first.each]]
    clipped = [one for one in sums if one.factor < 1 - moments.ALIKE]
    if not clipped:
        return None
    equal = _equal(first, sums) if len(sums) >= ENOUGH else {}
    held = _declared(world, first)
    found = [
        (rule, declared)
        for declared in (held, {})
        if (counted := declared or equal) and (rule := _rule(clipped, counted))
    ]
    found.sort(key=lambda one: one[0] != REPEATEDLY)  # what is no more than an advisory comes last
    return next((_finding(optimizer, clipped, declared, equal, rule) for rule, declared in found), None)


def _rule(clipped: list[Summed], held: Count) -> str:
    """What is wrong where gradients were scaled by this sum, and not by one in which each element is counted once."""
    if not any(moments.differ(one.sum, one.once(held), 2 * moments.ALIKE) for one in clipped):
        return ""
    taken = [one.factor * math.sqrt(one.sum) for one in clipped]
    right = [one.factor * math.sqrt(one.once(held)) for one in clipped]
    factors = [one.factor for one in clipped]
    if max(factors) > 1.01 * min(factors) and moments.is_one(taken) and not moments.is_one(right):
        return REPEATEDLY
    # Where all elements are counted equally often, both are the same at every step. A bound is a round number.
    # One of three digits may be the bound as well, which makes one of two, times the root of the ranks.
    round_one = all(map(_is_round, taken)) and not any(map(_is_round, right))
    return "all-gradients-counted-repeatedly" if round_one and not all(_is_round(n, 3) for n in right) else ""


def _is_round(number: float, digits: int = 2) -> bool:
    """Whether it has so many digits at most, but for rounding."""
    return number > 0 and not moments.differ(number, float(f"{number:.{digits - 1}e}"), 1e-4)


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
    """The gradients that were the same numbers on several ranks at every step, if these compute one model together.

    Parts of one tensor are no copies, whatever they hold. Where all gradients are the same on equally many ranks,
    nothing tells the sum of this program from a right one.
    """
    if len({len(one.squares) for one in first.each}) > 1:
        return {}
    numbers = {one.rank.rank for one in first.each}
    if any(not one.norm.joint and not numbers <= one.among for one in first.each):
        return {}
    found: Count = {number: {} for number in numbers}
    for place in range(len(first.each[0].parameters)):
        alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for at, one in enumerate(first.each):
            parameter = one.parameters[place]
            squares = tuple(summed.each[at].squares[place] for summed in sums)
            if squares[0] > 0 and not parameter.kind.endswith(("[]", "[1]")):
                alike[parameter.kind, parameter.name, squares].append(one.rank.rank)
        for ranks in alike.values():
            if len(ranks) > 1 and not _are_parts(first, place, ranks):
                for number in ranks:
                    found[number][place] = len(ranks)
    every = {tuple(held.get(place, 1) for place in range(len(first.each[0].parameters))) for held in found.values()}
    return {} if all(len(set(one)) == 1 for one in every) and len(every) == 1 else found


def _are_parts(summed: Summed, place: int, ranks: Sequence[int]) -> bool:
    """Whether some of these ranks are declared to hold other parts of a parameter than each other."""
    for one in summed.each:
        layout = one.parameters[place].layout
        if one.rank.rank in ranks and layout is not None and set(ranks).intersection(moments.others(one.rank, layout)):
            return True
    return False


# --- the words


def _finding(optimizer: int, clipped: list[Summed], held: Count, equal: Count, rule: str) -> Finding:
    """``held``: who has copies, as is declared; ``equal``: and who is taken to have some."""
    first = clipped[0]
    one = first.each[0]
    mine, alike = held.get(one.rank.rank, {}), equal.get(one.rank.rank, {})
    counted = {number: {**equal.get(number, {}), **held.get(number, {})} for number in {*held, *equal}}
    times = max((mine or alike).values(), default=2)
    everything = len(mine) == len(one.parameters)
    used, right = math.sqrt(first.sum), math.sqrt(first.once(counted))
    has = "which every rank has" if times == len(first.each) else f"of which {times} ranks have copies"
    same = (
        "whose gradients were the same numbers on "
        f"{'all' if times == len(first.each) else times} of these ranks at every step looked at"
    )
    names = {place: one.parameters[place].name for place in sorted(mine or alike)}
    more = len(set(alike).difference(mine)) if mine else 0
    return Finding(
        rule=rule,
        severity="error" if held else "warning",
        ranks=tuple(m.rank.rank for m in first.each),
        subject=next(iter(names.values()), "the gradients"),
        step=first.number,
        expected="each element of the gradient to be counted once in the norm that clips it",
        found=f"a norm of {used:.4g}, in which {'all parameters' if everything else listing(list(names.values()))}, "
        f"{has if held else same}, {'and ' + str(more) + ' more, ' + same + ', ' if more else ''}are "
        f"counted {times} times; counted once, it is {right:.4g}",
        cause="the squares of all gradients are summed up over the ranks, those of copies too",
        advice="Sum up over the ranks the squares of what is split over them alone, and add those of what every rank "
        "has once" + (": here no sum over ranks is needed." if everything else "."),
        where=one.rank.where(_last(first, next(iter(names), 0)).norm.site),
        count=len(clipped),
        links=(f"optimizer {optimizer}",),
    )


def _last(summed: Summed, place: int) -> Measured:
    """The call that has counted copies of a parameter: of two, the second one where the first one's ranks have none."""
    one = summed.each[0]
    among = [m for m in summed.each if m.norm.group == one.norm.group]
    within = len({m.squares[place] for m in among}) < len(among)
    return summed.then[0] if summed.then and not within else one
