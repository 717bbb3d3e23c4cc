"""What all tokens of a step count together: off by the size of some group, or not the same for all parameters."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.judging import happens_before, summed_gradients
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.summed_gradients import Brought, brought
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import count, listing

NEAR = 5e-3
"""By how much of itself a number may be off to be called a whole one."""


class Loss(NamedTuple):
    """The loss of one rank in one window: one mean or sum of elements, of one weight each."""

    weight: float
    elements: int
    values: tuple[float | None, ...]
    where: CallSite | None
    kind: str
    number: int
    """The step."""

    @property
    def total(self) -> float:
        return self.weight * self.elements


@once_per_world
def losses(world: World) -> dict[int, dict[int, Loss]]:
    """By window and rank: the losses of which all elements have one weight, and that have no other term."""
    found: dict[int, dict[int, Loss]] = defaultdict(dict)
    for rank, record in world.of(ev.StepWeights):
        own = [one for one in record.backwards if not one.continued]
        terms = [one.terms[0] for one in own if len(one.terms) == 1]
        counted = [term for term in terms if term.elements and term.weight]
        if record.why or not counted or len(terms) < len(own) or any(term.scaled for term in counted):
            continue
        weights = [term.weight for term in counted]
        if max(weights) > (1 + NEAR) * min(weights):
            continue
        elements = sum(term.elements for term in counted)
        values = tuple(one.value for one in own)
        where = rank.where(own[0].site)
        found[record.window][rank.rank] = Loss(weights[0], elements, values, where, counted[0].kind, record.number)
    return found


@once_per_world
def with_loss(world: World) -> dict[int, set[int]]:
    """The ranks that have computed a loss, known or not, by window."""
    found: dict[int, set[int]] = defaultdict(set)
    for rank, record in world.of(ev.StepWeights):
        if not all(one.continued for one in record.backwards):
            found[record.window].add(rank.rank)
    return found


def known(world: World, window: int, ranks: Sequence[int]) -> list[Loss] | None:
    """Of the ranks that have one; None where one is not known, or two are of the same batch."""
    wanted = sorted(with_loss(world).get(window, set()).intersection(ranks))
    its = losses(world).get(window, {})
    if not wanted or not all(number in its for number in wanted):
        return None
    found = [its[number] for number in wanted]
    values = [one.values for one in found]
    if any(None in one for one in values):
        return None
    same = any(
        len(a) == len(b) and all(math.isclose(x or 0.0, y or 0.0, rel_tol=1e-5) for x, y in zip(a, b, strict=True))
        for place, a in enumerate(values)
        for b in values[:place]
    )
    return None if same else found


def whole(value: float) -> int | None:
    """The whole number, 2 or more, that a factor or its inverse is; None where it is none."""
    ratio = value if value >= 1 else 1 / value if value > 0 else 1.0
    if not math.isfinite(ratio):
        return None
    nearest = round(ratio)
    return nearest if nearest > 1 and abs(ratio - nearest) <= NEAR * nearest else None


# --- one factor for all


class _Off(NamedTuple):
    """What all tokens of some ranks count together, in several windows."""

    windows: list[int]
    values: list[float]
    first: Brought
    loss: Loss


def scaled(world: World) -> list[Finding]:
    """The findings of losses that are divided by the tokens of all ranks, and then off by one factor."""
    met: dict[tuple[int, ...], _Off] = {}
    first: dict[tuple[tuple[int, ...], int], Brought] = {}
    for one in brought(world):
        if len(one.over) > 1 and one.rank.rank == min(one.over):
            first.setdefault((one.over, one.window), one)
    for (over, window), one in first.items():
        each = known(world, window, over)
        if each is None or len(each) < 2 or not _is_of_all(each):
            continue
        off = met.setdefault(over, _Off([], [], one, each[0]))
        off.windows.append(window)
        off.values.append(one.factor * math.fsum(loss.total for loss in each))
    found = []
    for over, off in met.items():
        size = whole(off.values[0])
        steady = all(abs(value - off.values[0]) <= NEAR * off.values[0] for value in off.values)
        if size is not None and steady and len(off.values) > 1 and world.world_size % size == 0:
            found.append(_finding(world, over, off, size))
    return _without_repetition(found)


def _is_of_all(known: Sequence[Loss]) -> bool:
    """Whether a token has one weight on all ranks, though these have unequally many."""
    weights = [loss.weight for loss in known]
    return len({loss.elements for loss in known}) > 1 and max(weights) <= (1 + NEAR) * min(weights)


def _finding(world: World, over: tuple[int, ...], off: _Off, size: int) -> Finding:
    times = f"{size} times" if off.values[0] > 1 else f"1/{size} of"
    name = called(world, size, over)
    undone = (
        "the loss is multiplied by it, and gradients are not divided by it"
        if off.values[0] > 1
        else "gradients are divided by it, and the loss is not multiplied by it"
    )
    return Finding(
        rule="loss-off-by-factor",
        ranks=over,
        subject="the loss",
        severity="warning",
        step=off.loss.number,
        count=len(off.windows),
        expected="the tokens of a step to count together as much as one mean over them: each rank divides its loss by "
        "the tokens of all",
        found=f"{times} that: each of the {off.loss.elements} elements of rank {over[0]} has the weight "
        f"{off.loss.weight:.4g}, and the gradients of {len(over)} ranks are added up and multiplied by "
        f"{off.first.factor:.4g}",
        cause=f"{size} is {name}: {undone}",
        advice=f"Multiply the loss by the {len(over)} ranks over which gradients are averaged, or by what undoes the "
        "division, and by nothing else; or accept it, where the learning rate was chosen so.",
        where=off.loss.where,
    )


def _without_repetition(found: list[Finding]) -> list[Finding]:
    """One finding of each line: several groups of ranks have the same."""
    first: dict[str, Finding] = {}
    for one in found:
        first.setdefault(f"{one.where} {one.found.partition(':')[0]} {one.cause}", one)
    return list(first.values())


def called(world: World, size: int, over: tuple[int, ...]) -> str:
    """Whose size this is: a dimension of a mesh or a group, rather one that gradients are not averaged over."""
    names = []
    rank = next(one for one in world if one.rank in over)
    for mesh in rank.of(ev.Mesh):
        for place, (name, length) in enumerate(zip(mesh.names, mesh.shape, strict=False)):
            if length == size and over not in _lines(mesh, place):
                names.append(f"the size of the mesh's dimension {name}")
    groups = {one.group for one in rank.of(ev.Call)}
    members = {happens_before.members(group, world.world_size) for group in groups}
    apart = [one for one in members if len(one) == size and one != over]
    names += [f"the size of the group of ranks {listing(map(str, min(apart)))}"] if apart else []
    if world.world_size == size:
        names.append("the world size")
    return " and ".join(dict.fromkeys(names)) or "a number by which the world size can be divided"


def _lines(mesh: ev.Mesh, place: int) -> set[tuple[int, ...]]:
    """The ranks along one dimension of a mesh, line by line."""
    step, length = math.prod(mesh.shape[place + 1 :]), mesh.shape[place]
    starts = [i for i in range(len(mesh.ranks)) if i // step % length == 0]
    return {tuple(sorted(mesh.ranks[start + step * i] for i in range(length))) for start in starts}


# --- another factor for some parameters


def unequal(world: World) -> list[Finding]:
    """The findings of parameters that the same tokens reach, and whose gradients are not scaled alike.

    Which tokens reach a parameter is told by all-to-alls and by what is sent from
    one rank to another. A part of a model that has the gradients of some ranks
    alone, and is averaged over these, is right.
    """
    met: dict[tuple[int, int], _Unequal] = {}
    by_rank: dict[tuple[Rank, int], list[Brought]] = defaultdict(list)
    for one in brought(world):
        if len(one.over) > 1 or abs(one.factor - 1) > NEAR or summed_gradients.serves_others(world, one.rank):
            by_rank[one.rank, one.window].append(one)
    for (_, window), each in by_rank.items():
        all_of_it = known(world, window, [rank.rank for rank in world])
        if all_of_it is None or len(each) < 2:
            continue
        weight = math.fsum(loss.total for loss in all_of_it)
        usual = max(each, key=lambda one: (is_near(one.factor * weight, 1), len(one.over)))
        for one in each:
            size = whole(one.factor / usual.factor)
            joined = one.model == usual.model or one.optimizer == usual.optimizer
            if size is None or not joined or one.over == usual.over or world.world_size % size:
                continue
            if summed_gradients.reach(world, one.over) != summed_gradients.reach(world, usual.over):
                continue
            off = met.setdefault((one.model, size), _Unequal([], one, usual, size))
            if window not in off.windows:
                off.windows.append(window)
    return [_of_parameter(world, one) for one in met.values() if len(one.windows) > 1]


class _Unequal(NamedTuple):
    """A parameter that is given another part of a token's gradient than another one is."""

    windows: list[int]
    one: Brought
    usual: Brought
    size: int


def is_near(value: float, wanted: float) -> bool:
    return abs(value - wanted) <= NEAR * wanted


def _of_parameter(world: World, off: _Unequal) -> Finding:
    windows, one, usual, size = off
    heavier = one.factor > usual.factor
    kind = next((step for step in one.rank.of(ev.Step) if step.optimizer == one.optimizer), None)
    times = f"{size} times" if heavier else f"1/{size} of"
    total = len(summed_gradients.reach(world, one.over))
    return Finding(
        rule="unequal-parameter-weights",
        ranks=tuple(sorted({*one.over, *usual.over})),
        subject=one.path,
        severity="warning",
        step=windows[0],
        count=len(windows),
        expected=f"a token to count the same in {one.path} as in {usual.path}",
        found=f"{times} that: gradients of {one.path} are added up over {count(len(one.over), 'rank')} and multiplied "
        f"by {_fraction(one.factor)}, those of {usual.path} over {len(usual.over)} and multiplied by "
        f"{_fraction(usual.factor)}, while the tokens of {total} ranks reach either",
        cause=f"{size} is {called(world, size, one.over)}: gradients are divided by the ranks that hold a copy, and "
        "not by those whose tokens they come from"
        if heavier
        else f"{size} is {called(world, size, one.over)}: gradients are divided by it once too often",
        advice=f"Divide the gradients of {one.path} by the ranks whose losses its tokens are in, whichever hold a copy "
        "(under FSDP2 by set_gradient_divide_factor); or accept it, where the loss or a hook divides for it.",
        where=one.rank.where(kind.site) if kind is not None else None,
    )


def _fraction(value: float) -> str:
    size = whole(value)
    return f"1/{size}" if size is not None and value < 1 else f"{value:.4g}"


# --- a sum that nobody divides


def undivided(world: World) -> list[Finding]:
    """The findings of stages whose loss is a sum, of other numbers of tokens in each step."""
    found = []
    for rank in world:
        stages = any(one.stage is not None for one in rank.of(ev.Parallelised))
        its = [of_rank[rank.rank] for of_rank in losses(world).values() if rank.rank in of_rank]
        sums = [one for one in its if one.kind == "sum" and is_near(one.weight, 1)]
        if not stages or len(sums) < 2 or len(sums) < len(its) or len({one.elements for one in sums}) < 2:
            continue
        other = next(one.elements for one in sums if one.elements != sums[0].elements)
        found.append(
            Finding(
                rule="undivided-token-sum",
                ranks=(rank.rank,),
                subject="the loss",
                severity="warning",
                step=sums[0].number,
                count=len(sums),
                expected="a step of a pipeline to count as much as one mean over its tokens, however many there are",
                found=f"sums over {sums[0].elements} tokens, over {other} and so on, each token with the weight 1 when "
                "backward() runs",
                cause="the loss is divided by the tokens only when the schedule has run backward, or not at all",
                advice="Divide in the loss function that the schedule is given; or accept it, where the learning rate "
                "was chosen so.",
                where=sums[0].where,
            )
        )
    return found
