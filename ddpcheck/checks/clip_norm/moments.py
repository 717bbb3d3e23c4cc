"""What each rank measured its gradients by before one step, side by side; and which ranks hold parts of one model."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.judging import happens_before
from ddpcheck.judging.world import Rank, World

CLIPS = ("clip_grad_norm_", "FSDP.clip_grad_norm_")
"""The functions that clip, of those that measure."""

ALIKE = 1e-3
"""By how much of itself a number may differ from what it should be: gradients may have been rounded."""

VARIED = 1e-2
"""By how much of themselves the factors of a clip differ from step to step, at least, where its bound tells of it."""


class Measured(NamedTuple):
    """What one rank measured before a step."""

    rank: Rank
    optimizer: ev.Optimizer
    """As it was then."""
    norm: ev.Norm
    among: frozenset[int]
    """The ranks that hold other parts of the model, as is declared, and this one."""

    @property
    def squares(self) -> tuple[float, ...]:
        """For each parameter; NOTHING among them."""
        return tuple(n if n == ev.NOTHING else n * n for n in ev.unpacked(self.norm.norms))

    @property
    def total(self) -> float:
        """The square of the norm of all that the rank has."""
        return math.fsum(one for one in self.squares if one != ev.NOTHING)

    def shared_out(self, ranks: int) -> float:
        """This rank's part of the squares, where others of so many ranks have copies of what is not declared split."""
        return math.fsum(
            square if one.layout is not None and one.layout.sharded else square / ranks
            for square, one in zip(self.squares, self.parameters, strict=True)
            if square != ev.NOTHING
        )

    @property
    def parameters(self) -> list[ev.Parameter]:
        return self.optimizer.parameters

    @property
    def sharded_by(self) -> str:
        """Who has dealt out its parameters to several ranks: FSDP, DTensors, or nobody."""
        for one in self.parameters:
            if one.layout is not None and others(self.rank, one.layout):
                return one.layout.ground
        return ""


Step = dict[int, list[Measured]]
"""By rank, what was measured before one step of one optimizer, in its order."""


def steps(world: World) -> Iterator[tuple[int, int, Step]]:
    """All steps before which something was measured: the optimizer, the number, and each rank's."""
    found: dict[tuple[int, int], Step] = defaultdict(lambda: defaultdict(list))
    for rank in world:
        described: dict[int, tuple[ev.Optimizer, frozenset[int]]] = {}
        records: list[ev.Optimizer | ev.Norm] = [*rank.of(ev.Optimizer), *rank.of(ev.Norm)]
        for record in sorted(records, key=lambda one: one.n):
            if isinstance(record, ev.Optimizer):
                described[record.optimizer] = record, _declared(rank, record)
                continue
            last, among = described.get(record.optimizer, (None, frozenset[int]()))
            if last is not None and len(last.parameters) * 8 == len(record.norms):
                found[record.optimizer, record.number][rank.rank].append(Measured(rank, last, record, among))
    for (optimizer, number), each in sorted(found.items()):
        yield optimizer, number, each


def scaled(measured: list[Measured]) -> Measured | None:
    """The measurement since which all gradients were multiplied by one number, if by any."""
    known = [one for one in measured if one.norm.factor is not None]
    changed = [one for one in known if differ(_factor(one), 1.0)]
    # A clip by torch's function says more than a number that is summed up on the way to it, or for a log.
    changed.sort(key=lambda one: one.norm.how not in CLIPS)
    return next(iter([*changed, *known]), None)


def _factor(measured: Measured) -> float:
    assert measured.norm.factor is not None
    return measured.norm.factor


def differ(one: float, other: float, by: float = ALIKE) -> bool:
    """Whether two numbers are not the same, but for rounding."""
    return abs(one - other) > by * max(abs(one), abs(other))


def clipping(steps: Iterable[tuple[int, int, Step]]) -> frozenset[tuple[int, int]]:
    """The optimizers, each with a rank, whose gradients are seen to be clipped.

    Torch's function says so itself. By hand, a clip shows in its bound: at all
    steps that made gradients smaller, the factor times some norm of theirs is
    one number, while the factors differ. An average over ranks, a loss scale or
    a number of tokens comes to no such bound.
    """
    found: set[tuple[int, int]] = set()
    factors: dict[tuple[int, int], list[float]] = defaultdict(list)
    bounds: dict[tuple[int, int], dict[tuple[str, int], list[float]]] = defaultdict(lambda: defaultdict(list))
    for optimizer, _, step in steps:
        for rank, measured in step.items():
            key = optimizer, rank
            if any(one.norm.how in CLIPS and math.isfinite(one.norm.largest or 0.0) for one in measured):
                found.add(key)
            one = scaled(measured)
            if one is None or _factor(one) >= 1 - ALIKE:
                continue
            factors[key].append(_factor(one))
            for what, norm in _norms(step, one, measured):
                bounds[key][what].append(_factor(one) * norm)
    for key, numbers in factors.items():
        same = any(len(its) == len(numbers) and is_one(its) for its in bounds[key].values())
        if same and differ(min(numbers), max(numbers), VARIED):
            found.add(key)
    return frozenset(found)


def _norms(step: Step, one: Measured, measured: list[Measured]) -> Iterator[tuple[tuple[str, int], float]]:
    """What a program may have taken for the norm of a rank's gradients, at a step, each with a name of its own."""
    group = [step[rank][0] for rank in one.among if step.get(rank)]
    yield ("own", 0), math.sqrt(one.total)
    yield ("sum", 0), math.sqrt(math.fsum(each.total for each in group))
    yield ("largest", 0), math.sqrt(max(each.total for each in group))
    yield ("copies once", 0), math.sqrt(math.fsum(each.shared_out(len(group)) for each in group))
    for place, each in enumerate(measured):
        given, came = each.norm.given, each.norm.came
        if came is not None and came > 0:
            yield ("root", place), came
            yield ("squares", place), math.sqrt(came)
            if given is not None:
                yield ("squares with the rest", place), math.sqrt(max(0.0, each.total - given + came))


def is_one(numbers: Sequence[float]) -> bool:
    """Whether several numbers are the same, but for rounding; one alone is not."""
    return len(numbers) > 1 and not differ(min(numbers), max(numbers))


# --- which ranks have parts of one model


def _declared(rank: Rank, optimizer: ev.Optimizer) -> frozenset[int]:
    """The ranks that hold other parts of the model whose parameters these are, as is declared, and this one."""
    found = {rank.rank}
    for one in optimizer.parameters:
        if one.layout is not None:
            found.update(others(rank, one.layout))
    for stage in rank.of(ev.Parallelised):
        if stage.how == "PipelineStage":
            found.update(stage.pipeline)
    return frozenset(found)


def others(rank: Rank, layout: ev.Layout) -> tuple[int, ...]:
    """The ranks that have other parts of one tensor: along the dimensions of its mesh in which it is cut."""
    if layout.ground == "FSDP":
        return layout.among if len(layout.among) > 1 else ()
    if layout.ground != "DTensor":
        return ()
    mesh = next((one for one in rank.of(ev.Mesh) if one.mesh == layout.mesh), None)
    if mesh is None or rank.rank not in mesh.ranks or len(mesh.shape) != len(layout.placements):
        return ()
    mine = _coordinates(mesh.ranks.index(rank.rank), mesh.shape)
    return tuple(
        other
        for place, other in enumerate(mesh.ranks)
        if other != rank.rank
        and all(
            a == b or way.startswith("S")
            for a, b, way in zip(mine, _coordinates(place, mesh.shape), layout.placements, strict=True)
        )
    )


def _coordinates(place: int, shape: Iterable[int]) -> tuple[int, ...]:
    found = []
    for size in reversed(tuple(shape)):
        place, own = divmod(place, size)
        found.append(own)
    return tuple(reversed(found))


def joint(world: World, norm: ev.Norm) -> frozenset[int]:
    """The ranks with which this one has exchanged something within its backward()."""
    found: set[int] = set()
    for group in norm.joint:
        found.update(happens_before.members(group, world.world_size))
    return frozenset(found)
