"""The norms of gradients before each step on the ranks that hold one model, and by what factors they were scaled."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np

from ddpcheck import evidence as ev
from ddpcheck.facts import stages
from ddpcheck.facts.mixing import is_trained_apart
from ddpcheck.facts.sketches import Numbers
from ddpcheck.judging import happens_before, step_alignment
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite

ENOUGH = 3
"""Windows in which gradients of several ranks have to be the same numbers, to be taken for those of copies."""
ALIKE, ROUGH = 1e-3, 1e-2
"""How far rounding takes a norm or a factor, over its size; and where any gradient has 16 bits."""

Holders = frozenset[int]


class Measure:
    """What one rank measured before a step, of the optimizers that it measured together."""

    def __init__(
        self,
        rank: Rank,
        described: Sequence[ev.Optimizer],
        norms: Sequence[ev.Norm],
        group: tuple[int, ...] = (),
        stepped_on: bytes = b"",
    ) -> None:
        self.rank, self.described, self.norms = rank, described, norms
        self.group = group
        """The ranks over which the program summed up a number."""
        self.stepped_on = stepped_on
        """The digests of the gradients on entry to the step; empty where nobody looked."""
        self.first = norms[0]
        self.parameters = [parameter for one in described for parameter in one.parameters]

    @cached_property
    def sizes(self) -> Numbers:
        """By parameter, what adds up over parts: the norm to its power; or the norm, where the largest counts."""
        norms = np.concatenate([np.frombuffer(one.norms, "<f8") for one in self.norms])
        norms = norms.clip(min=0)  # NOTHING is negative
        return norms if math.isinf(self.first.power) else norms**self.first.power

    @cached_property
    def tensors(self) -> set[tuple[object, ...]]:
        """Its parameters, as far as they are of a module."""
        return {(one.model, one.path) for one in self.parameters if one.model is not None and one.path}

    @cached_property
    def began(self) -> list[bytes]:
        """By parameter, its digest on entry to the first step; empty where nobody looked."""
        digests = [step_alignment.at(of.values, turn) for of in self.described for turn in range(len(of.parameters))]
        return [b"" if one == ev.UNSEEN else one for one in digests]

    @property
    def is_scaled(self) -> bool:
        return self.factor is not None and are_apart([self.factor, 1.0], self.rounding)

    @cached_property
    def own(self) -> float:
        """The norm of all that the rank has."""
        return self.norm([self.size()])

    def size(self, holders: Sequence[int] | None = None, optimizer: int | None = None) -> float:
        """What the rank adds to the size of the whole, where so many ranks hold each parameter alike.

        ``optimizer``: its parameters alone, by its place among those that were measured together.
        """
        sizes = self.sizes if holders is None or math.isinf(self.first.power) else self.sizes / np.array(holders)
        if optimizer is not None:
            ends = np.cumsum([len(one.parameters) for one in self.described])
            sizes = np.split(sizes, ends)[optimizer]
        return float(sizes.max(initial=0.0) if math.isinf(self.first.power) else sizes.sum())

    def norm(self, sizes: Sequence[float]) -> float:
        """The norm of parts of these sizes."""
        if math.isinf(self.first.power):
            return max(sizes)
        return float(np.sum(sizes) ** np.divide(1, self.first.power))

    @cached_property
    def factor(self) -> float | None:
        """What all gradients were multiplied by until the step, but for what a scaler divided them by."""
        factors = [one.factor for one in self.norms]
        known = [one for one in factors if one is not None]
        if len(known) < len(factors) or are_apart(known, self.rounding):
            return None
        return known[0] * (self.first.scale or 1.0)

    @cached_property
    def rounding(self) -> float:
        floats = ("float32", "float64")
        return ALIKE if all(one.kind.startswith(floats) for one in self.parameters) else ROUGH

    @property
    def clips(self) -> bool:
        return is_clip(self.first)

    @property
    def bound(self) -> float | None:
        """The norm up to which torch's function left them alone."""
        return self.first.largest if self.clips else None

    @property
    def came(self) -> float | None:
        """The norm by which it clipped."""
        return self.first.came if self.clips else None

    @property
    def line(self) -> CallSite | None:
        return self.step_line if self.first.how == "backward" else self.rank.where(self.first.site)

    @property
    def step_line(self) -> CallSite | None:
        return self.rank.where(self.first.step_site)


def is_clip(norm: ev.Norm) -> bool:
    """Whether one of torch's functions scaled the gradients: with no bound it makes their norm alone."""
    return norm.how in ev.CLIPS and math.isfinite(norm.largest or 0.0)


class Window(NamedTuple):
    """One step on the ranks of a team, as far as they measured anything."""

    number: int
    measures: list[Measure]
    """Rank by rank: the measurement that is next to the scaling."""
    others: list[list[Measure]]
    """Rank by rank, all of them."""

    @property
    def steps(self) -> set[tuple[int, int]]:
        """The optimizers, each with the number of its step."""
        return {(one.optimizer, one.number) for measure in self.measures[:1] for one in measure.norms}


class Team(NamedTuple):
    """Ranks that hold the parts of one model, or copies of it, and what they measured in every window."""

    optimizer: int
    """The number of the first one on the first rank."""
    ranks: tuple[int, ...]
    kind: str
    """Why they belong together: ``FSDP``, ``DTensor``, ``stages``; ``sent`` to each other, or ``exchanged`` within
    backward(); or they are ``copies``."""
    replicas: int
    """The teams that hold copies of this one's model, as is declared, itself among them."""
    windows: list[Window]
    declared: list[list[Holders]]
    """Rank by rank and parameter by parameter: the ranks of the team that are declared to hold the same."""
    seen: list[list[Holders]]
    """The same, with those whose gradients were the same numbers in every window."""
    is_apart: bool
    """Ranks step copies for themselves, and bring them together now and then."""
    is_sliced: bool
    """Its shards are slices of tensors, by torch's own functions; other ones may be whole entries of a stack, such as
    experts."""


def are_apart(numbers: Collection[float], limit: float) -> bool:
    """Whether numbers differ by more than rounding."""
    return bool(numbers) and max(numbers) - min(numbers) > limit * max(map(abs, numbers))


@once_per_world
@np.errstate(all="ignore")
def of(world: World) -> list[Team]:
    """The teams of all optimizers: of each one alone, and of those that were measured together."""
    windows: dict[tuple[int, bool], list[tuple[int, Step]]] = defaultdict(list)
    for together, optimizer, number, step in _steps(world):
        windows[optimizer, together].append((number, step))
    found = []
    for (optimizer, _), steps in windows.items():
        for ranks, kind in _teams(world, optimizer, [step for _, step in steps]):
            by_step = [(number, [step[rank] for rank in ranks if rank in step]) for number, step in steps]
            team = [Window(number, list(map(_chosen, measures)), measures) for number, measures in by_step if measures]
            found.append(_team(world, ranks, kind, team))
    return found


# --- what was measured


Step = dict[int, list[Measure]]
"""By rank, what was measured before one step, in its order."""


def _steps(world: World) -> Iterator[tuple[bool, int, int, Step]]:
    """All steps before which something was measured: whether it is of several optimizers, the first one, its step."""
    found: dict[tuple[bool, int, int], Step] = defaultdict(lambda: defaultdict(list))

    def numbers(measure: Measure, together: bool) -> tuple[bool, int, int]:
        return together, _number(world, measure.rank, measure.first.optimizer), measure.first.number

    for rank in world:
        described: dict[int, ev.Optimizer] = {}
        moments: dict[int, list[Measure]] = defaultdict(list)
        stepped_on = {(one.optimizer, one.number): one.gradients for one in rank.of(ev.Step)}
        records: list[ev.Optimizer | ev.Norm] = [*rank.of(ev.Optimizer), *rank.of(ev.Norm)]
        for record in sorted(records, key=lambda one: one.n):
            if isinstance(record, ev.Optimizer):
                described[record.optimizer] = record
                continue
            of = described.get(record.optimizer)
            if of is None or len(of.parameters) * 8 != len(record.norms):
                continue
            group = happens_before.members(record.group, world.world_size) if record.group else ()
            measure = Measure(rank, [of], [record], group, stepped_on.get((record.optimizer, record.number), b""))
            others = [one for one in moments[record.moment] if one.first.optimizer != record.optimizer]
            # An optimizer that steps the same tensors later does so on other gradients.
            if all(one.tensors.isdisjoint(measure.tensors) for one in others):
                moments[record.moment].append(measure)
                found[numbers(measure, False)][rank.rank].append(measure)
        for each in moments.values():
            if len({one.first.optimizer for one in each}) > 1:
                each.sort(key=lambda one: one.first.optimizer)
                of_all = [one for measure in each for one in measure.described]
                measure = Measure(rank, of_all, [one.first for one in each], each[0].group)
                found[numbers(measure, True)][rank.rank].append(measure)
                if measure.is_scaled:  # by one norm: none of them is scaled for itself
                    for one in each:
                        found[numbers(one, False)][rank.rank].remove(one)
    for at_step, step in sorted(found.items()):
        if measured := {rank: measures for rank, measures in step.items() if measures}:
            yield *at_step, measured


@once_per_world
def _shared(world: World) -> dict[tuple[int, int], int]:
    """By rank and its own number, the number by which ranks know an optimizer that they share."""
    found: dict[tuple[int, int], int] = {}
    for optimizer in step_alignment.optimizers(world):
        for rank, described in zip(optimizer.ranks, optimizer.described, strict=True):
            found.setdefault((rank.rank, described.optimizer), optimizer.number)
    return found


def _number(world: World, rank: Rank, own: int) -> int:
    """One below zero for an optimizer that ranks do not share, such as those of stages."""
    return _shared(world).get((rank.rank, own), -1 - own)


def _chosen(measures: Sequence[Measure]) -> Measure:
    """The measurement that says most of how gradients were scaled.

    A clip by torch's function says more than a number that is summed up on the
    way to it, or for a log; and the last one more than those before.
    """
    turns = enumerate(measures)
    return max(turns, key=lambda one: (one[1].factor is not None, one[1].clips, one[1].is_scaled, one[0]))[1]


# --- who belongs together


def _teams(world: World, optimizer: int, steps: Sequence[Step]) -> list[tuple[tuple[int, ...], str]]:
    """The ranks that hold parts of one model, each with the kind; or all of them, where each has a whole one."""
    firsts = {rank: measures[0] for step in reversed(steps) for rank, measures in step.items()}
    parts = {rank: _parts(measure) for rank, measure in firsts.items()}
    sent = {(a.rank, b.rank) for pair in stages.pairs(world) for a, b in (pair, pair[::-1])}
    groups = _connected({a: others | {c for b, c in sent if b == a} for a, (others, _) in parts.items()})
    kinds = [next((kind for rank in ranks if (kind := parts.get(rank, ((), ""))[1])), "sent") for ranks in groups]
    found = [(ranks, kind) for ranks, kind in zip(groups, kinds, strict=True) if len(ranks) > 1]
    if not found and not is_trained_apart(world):  # a rank that steps a copy of its own clips by its own norm
        found = [(ranks, "exchanged") for ranks in sorted({one for step in steps for one in _by_exchange(world, step)})]
    stepping = {
        rank.rank for rank in world if any(_number(world, rank, one.optimizer) == optimizer for one in rank.of(ev.Step))
    }
    found = found or [(tuple(sorted(stepping | firsts.keys())), "copies")]
    empty = {rank.rank for rank in world if rank.rank not in firsts and _has_nothing(world, rank, optimizer)}
    return [(tuple(rank for rank in ranks if rank not in empty), kind) for ranks, kind in found]


def _has_nothing(world: World, rank: Rank, optimizer: int) -> bool:
    """Whether all slices of a rank are empty, so that there is nothing to measure."""
    described = next((one for one in rank.of(ev.Optimizer) if _number(world, rank, one.optimizer) == optimizer), None)
    layouts = [one.layout for one in described.parameters] if described is not None else []
    return bool(layouts) and all(layout is not None and 0 in layout.local for layout in layouts)


def _by_exchange(world: World, step: Step) -> Iterator[tuple[int, ...]]:
    """The ranks that exchange something within the backward(), and have some gradient in common."""
    for rank, measures in step.items():
        ranks = tuple(sorted(_joint(world, measures[0].first) & step.keys()))
        if len(ranks) > 1 and rank == ranks[0] and _is_partly_equal([step[one][0] for one in ranks]):
            yield ranks


def _connected(neighbours: dict[int, Holders]) -> list[tuple[int, ...]]:
    groups: list[set[int]] = []
    for rank, others in neighbours.items():
        near = {rank, *others}
        for group in [one for one in groups if one & near]:
            groups.remove(group)
            near |= group
        groups.append(near)
    return sorted(tuple(sorted(one)) for one in groups)


def _parts(measure: Measure) -> tuple[Holders, str]:
    """The ranks that are declared to hold other parts of the model than this one, and by what."""
    found: set[int] = set()
    kind = ""
    for parameter in measure.parameters:
        others = _other_slices(measure.rank, parameter.layout)
        if others and parameter.layout is not None:
            found.update(others)
            kind = parameter.layout.ground
    for stage in measure.rank.of(ev.Parallelised):
        if stage.how == "PipelineStage" and len(stage.pipeline) > 1:
            found.update(stage.pipeline)
            kind = kind or "stages"
    return frozenset(found), kind


def _other_slices(rank: Rank, layout: ev.Layout | None) -> tuple[int, ...]:
    """The ranks that have other slices of one tensor: along the dimensions of its mesh in which it is cut."""
    if layout is None:
        return ()
    if layout.ground == "FSDP":
        return tuple(one for one in layout.among if one != rank.rank)
    mesh = next((one for one in rank.of(ev.Mesh) if one.mesh == layout.mesh), None)
    if layout.ground != "DTensor" or mesh is None or rank.rank not in mesh.ranks:
        return ()
    if len(mesh.shape) != len(layout.placements) or math.prod(mesh.shape) != len(mesh.ranks):
        return ()
    return _along_cuts(mesh.ranks, mesh.shape, layout.placements, rank.rank)


@cache
def _along_cuts(
    ranks: tuple[int, ...], shape: tuple[int, ...], placements: tuple[str, ...], rank: int
) -> tuple[int, ...]:
    grid = np.array(ranks).reshape(shape)
    mine = np.unravel_index(ranks.index(rank), shape)
    cut = grid[tuple(slice(None) if way.startswith("S") else at for at, way in zip(mine, placements, strict=True))]
    return tuple(int(other) for other in cut.flat if other != rank)


def _joint(world: World, norm: ev.Norm) -> set[int]:
    """The ranks with which this one has exchanged something within its backward()."""
    return {rank for group in norm.joint for rank in happens_before.members(group, world.world_size)}


def _is_partly_equal(measures: Sequence[Measure]) -> bool:
    """Whether some parameter began alike, and has the same gradient, on all of these ranks."""
    if len({len(one.sizes) for one in measures}) > 1:
        return False
    sizes = np.array([one.sizes for one in measures])
    equal = (sizes[0] > 0) & (np.ptp(sizes, axis=0) <= 1e-9 * sizes.max(axis=0))
    return any(
        len({(one.parameters[place].kind, one.began[place]) for one in measures}) == 1 and measures[0].began[place]
        for place in np.flatnonzero(equal)
    )


# --- who holds copies


def _team(world: World, ranks: tuple[int, ...], kind: str, windows: list[Window]) -> Team:
    first = max(windows, key=lambda one: len(one.measures))
    # Optimizers may get other parameters on their way, and copies with them: only steps on the same are compared.
    same = [one for one in windows if _described(one) == _described(first)]
    team = frozenset(ranks)
    copies = _holders(world, first.measures)
    declared = [[holders & team for holders in of_rank] for of_rank in copies]
    replicas = {len(holders) // max(1, len(holders & team)) for of_rank in copies for holders in of_rank}
    return Team(
        first.measures[0].first.optimizer,
        ranks,
        kind,
        min(replicas, default=1),
        same,
        declared,
        _seen(first.measures, same, declared),
        is_trained_apart(world),
        all(_is_sliced(measure, team) for measure in first.measures),
    )


def _described(window: Window) -> list[tuple[int, int]]:
    return [(measure.rank.rank, one.n) for measure in window.measures for one in measure.described]


def _is_sliced(measure: Measure, team: Holders) -> bool:
    layouts = [one.layout for one in measure.parameters if one.layout is not None and one.layout.sharded]
    if any(one.ground == "FSDP" for one in layouts):
        return True
    dealt = [one.ranks for one in measure.rank.of(ev.Parallelised) if one.how != "PipelineStage"]
    is_stack = all(len(one.shape) > 2 and {way for way in one.placements if way != "R"} == {"S0"} for one in layouts)
    return not is_stack and team <= {measure.rank.rank}.union(*dealt)


def _holders(world: World, measures: Sequence[Measure]) -> list[list[Holders]]:
    """Rank by rank, who holds each parameter: by wrappers, placements, and what the program itself reduces."""
    calls = [_calls(measure) for measure in measures]
    reduced: dict[object, set[int]] = defaultdict(set)
    for measure, own in zip(measures, calls, strict=True):
        for call in own.values():
            reduced[call].add(measure.rank.rank)
    found = []
    for measure, own in zip(measures, calls, strict=True):
        groups = {one.wrapper: one.group for one in measure.rank.of(ev.Wrapped)}
        of_rank = []
        for place, parameter in enumerate(measure.parameters):
            layout = parameter.layout
            holders: Iterable[int] = reduced[own[place]] if place in own else ()
            if layout is not None and layout.ground in ("DTensor", "FSDP"):
                holders = layout.holders if "P" not in layout.placements else ()
            elif parameter.wrapper in groups and parameter.reduced:
                holders = happens_before.members(groups[parameter.wrapper], world.world_size)
            of_rank.append(frozenset({measure.rank.rank, *holders}))
        found.append(of_rank)
    return found


def _calls(measure: Measure) -> dict[int, object]:
    """By place, the call that makes a gradient the same on several ranks."""
    found: dict[int, object] = {}
    offset = 0
    for turn, (described, norm) in enumerate(zip(measure.described, measure.norms, strict=True)):
        exchanged = (one for one in measure.rank.of(ev.Exchanged) if one.optimizer == norm.optimizer)
        last = max((one for one in exchanged if one.number <= norm.number), key=lambda one: one.n, default=None)
        for c in last.carried if last is not None and not last.lost else ():
            if c.of == "gradient" and c.alike and not c.inside and not c.flat:
                found[offset + c.place] = turn, c.group, c.number, c.offset
        offset += len(described.parameters)
    return found


def _seen(measures: Sequence[Measure], windows: list[Window], declared: list[list[Holders]]) -> list[list[Holders]]:
    """Also the ranks that began alike, and had the same gradients in all of several windows, which were not constant.

    Parts of one tensor are no copies, whatever they hold.
    """
    found = [list(of_rank) for of_rank in declared]
    lengths = {len(one.parameters) for one in measures}
    whole = [one for one in windows if len(one.measures) == len(measures)]
    if len(lengths) > 1 or len(whole) < ENOUGH:
        return found
    columns = [np.array([one.measures[turn].sizes for one in whole]) for turn in range(len(measures))]
    for place in range(lengths.pop()):
        equal: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for turn, measure in enumerate(measures):
            parameter, column = measure.parameters[place], columns[turn][:, place]
            if np.ptp(column) > 0 and measure.began[place]:  # what is the same in every window may be a constant
                equal[parameter.kind, parameter.name, measure.began[place], column.tobytes()].append(turn)
        for turns in equal.values():
            holders = frozenset(measures[turn].rank.rank for turn in turns)
            parts = (_other_slices(measures[turn].rank, measures[turn].parameters[place].layout) for turn in turns)
            if all(map(holders.isdisjoint, parts)):
                for turn in turns:
                    found[turn][place] |= holders
    return found
