"""Ledger 1: which ranks hold the same part of which tensor, who says so, and what they held from window to window.

A wrapper, a mesh or the program itself makes tensors of several ranks copies of
each other. Equal values do not: shards that are drawn from one seed are equal, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.facts.holdings import Ground, Holding, Look
from ddpcheck.facts.passes import AVERAGING
from ddpcheck.facts.windows import Window, windows, with_finite_gradients
from ddpcheck.judging import optimizer_pairing, step_alignment
from ddpcheck.judging.handed_out import handed_out
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.optimizer_pairing import Built
from ddpcheck.judging.replicated_parameters import grounds
from ddpcheck.judging.step_alignment import Aligned, Replicas
from ddpcheck.judging.world import Rank, World
from ddpcheck.judging.zero_digests import nothing_of

Key = tuple[int, str, tuple[int, ...], tuple[str, ...]]
"""A parameter among those of a rank's optimizers: how many had its name before, its name, shape and placements."""


class Copies(NamedTuple):
    """Parameters of one optimizer that several ranks hold alike."""

    optimizer: Aligned
    gradients: list[int]
    """The places that must agree on entry to every step."""
    parameters: list[int]
    """Those that must on its exit, and so in what decides the step."""
    ground: Ground


@once_per_world
def of(world: World) -> list[Holding]:
    """What ranks must hold alike: as training begins, and as gradients and parameters of each window."""
    found = [*map(_wrapped, step_alignment.wrappers(world))]
    for held in copies(world):
        found += _in_windows(world, held)
        if held.optimizer.first:
            found += _at_start(held)
    return found


# --- who holds copies of what


@once_per_world
def copies(world: World) -> list[Copies]:
    """What ranks hold alike: in wrappers, by what the program reduces itself, and as is declared."""
    found = []
    for optimizer in step_alignment.optimizers(world):
        ground = grounds(world, optimizer)
        found.append(Copies(optimizer, ground.gradients, ground.parameters, Ground("reduced")))
    for optimizer in aligned(world, _holders):
        places = list(range(len(optimizer.described[0].parameters)))
        along = _along(optimizer.ranks[0], optimizer.described[0])
        whom = f"the ranks that hold copies ({along})"
        apart = not _is_reduced_by_fsdp(world, optimizer)
        found.append(Copies(optimizer, places, places, Ground("declared", whom=whom, along=along, is_rounded=apart)))
    return found


@once_per_world
def beside(world: World) -> list[Aligned]:
    """The plain parameters of models that are otherwise sharded, for the ranks of the mesh of the others.

    It is not declared whether these are copies.
    """
    return aligned(world, _ranks_of_the_others)


def _is_reduced_by_fsdp(world: World, optimizer: Aligned) -> bool:
    layout = optimizer.described[0].parameters[0].layout
    reduced = [set(one.ranks) for _, one in world.of(ev.Parallelised) if one.how in AVERAGING]
    return layout is not None and any(ranks.issuperset(layout.holders) for ranks in reduced)


def _holders(_: Rank, parameter: ev.Parameter) -> tuple[int, ...]:
    layout = parameter.layout
    return layout.holders if layout is not None and layout.ground == "DTensor" else ()


def _ranks_of_the_others(rank: Rank, parameter: ev.Parameter) -> tuple[int, ...]:
    layout = parameter.layout
    if layout is None or layout.ground not in ("beside", "ignored") or parameter.wrapper is not None:
        return ()
    if layout.mesh is None:
        return next((one.ranks for one in reversed(rank.of(ev.Parallelised)) if one.ranks), ())
    return next((tuple(sorted(one.ranks)) for one in rank.of(ev.Mesh) if one.mesh == layout.mesh), ())


def aligned(ranks: Iterable[Rank], whose: Callable[[Rank, ev.Parameter], tuple[int, ...]]) -> list[Aligned]:
    """The parameters that belong to several of these ranks each, as optimizers of those alone."""
    by_ranks: dict[tuple[tuple[int, ...], int], dict[int, list[tuple[Built, list[int]]]]]
    by_ranks = defaultdict(lambda: defaultdict(list))
    for rank in ranks:
        for phases in step_alignment.lasting(rank):
            for turn, phase in enumerate(phases):
                places = defaultdict(list)
                for place, parameter in enumerate(phase[0].parameters):
                    places[whose(rank, parameter)].append(place)
                for numbers, own in places.items():
                    if len(numbers) > 1:
                        by_ranks[numbers, turn][rank.rank].append((Built(rank, [phase]), own))
    found: list[Aligned] = []
    for (numbers, _), by_rank in sorted(by_ranks.items()):
        if all(number in by_rank for number in numbers):
            found += _side_by_side([by_rank[number] for number in numbers])
    return found


def _side_by_side(of_ranks: list[list[tuple[Built, list[int]]]]) -> Iterator[Aligned]:
    """The optimizers of these ranks, as far as they have the same parameters, as one each."""
    for same in zip(*of_ranks, strict=False):
        keys = [_keys(built, places) for built, places in same]
        common = [key for key in keys[0] if all(key in own for own in keys[1:])]
        if not common:
            continue
        described, steps = [], []
        orders: list[list[int] | None] = []
        for (built, _), places in zip(same, keys, strict=True):
            order = [places[key] for key in common]
            optimizer, its_steps = optimizer_pairing.reordered(built.first, built.phases[0][1], order)
            described.append(optimizer)
            steps.append(its_steps)
            orders.append(order)
        first = all(optimizer.number == 0 for optimizer in described)
        yield Aligned(described[0].optimizer, [built.rank for built, _ in same], described, steps, first, orders)


def _keys(built: Built, places: list[int]) -> dict[Key, int]:
    """By key, where an optimizer has each of these parameters."""
    names: dict[str, int] = defaultdict(int)
    found: dict[Key, int] = {}
    for place in places:
        parameter = built.first.parameters[place]
        name, layout = parameter.path or parameter.name, parameter.layout
        shape, placements = (layout.shape, layout.placements) if layout is not None else ((), ())
        found[names[name], f"{name} {parameter.kind}", shape, placements] = place
        names[name] += 1
    return found


def _along(rank: Rank, described: ev.Optimizer) -> str:
    """The names of the dimensions along which these parameters are copies, with the number of their ranks."""
    layout = described.parameters[0].layout
    assert layout is not None
    mesh = next((one for one in rank.of(ev.Mesh) if one.mesh == layout.mesh), None)
    if mesh is None:
        return f"{len(layout.holders)} ranks of the mesh"
    dims = [place for place, one in enumerate(layout.placements) if one == "R"]
    names = [mesh.names[d] if d < len(mesh.names) else f"dimension {d} of the mesh" for d in dims]
    return f"along {' and '.join(names)}"


# --- when training begins


def _wrapped(replicas: Replicas) -> Holding:
    """A wrapped module when the constructor of its wrapper has returned."""
    first = replicas.wrapped[0]
    names = [*first.parameters.names, *first.buffers.names]
    parameters = len(first.parameters.names)
    ignored, local = set(first.ignored), {*first.ignored, *first.local_buffers}
    held = next((one.held for one in replicas.ranks[0].of(ev.Model) if one.model == first.module), [])
    known = {one.name: one for one in held}

    def line(holder: int) -> Any:
        return replicas.ranks[0].where(first.site)

    return Holding(
        "wrapped",
        tuple(rank.rank for rank in replicas.ranks),
        names,
        [place for place, name in enumerate(names) if name not in (ignored if place < parameters else local)],
        Ground("wrapper"),
        [Look(0, tuple(_digests(one.parameters) + _digests(one.buffers) for one in replicas.wrapped), line)],
        empty=lambda place: nothing_of(known.get(names[place])),
        links=(replicas.link,),
        has_steps=False,
    )


def _digests(tensors: ev.Tensors) -> bytes:
    """One for each name: those of tensors that were not looked at, too."""
    return tensors.digests[: ev.WIDTH * len(tensors.names)].ljust(ev.WIDTH * len(tensors.names), ev.UNSEEN[:1])


def _at_start(held: Copies) -> Iterator[Holding]:
    """Parameters on entry to the first step."""
    optimizer = held.optimizer
    first = optimizer.described[0]
    cause = "wrapped" if first.optimizer != ev.NOBODYS else "line"
    cause = "declared" if held.ground.along else "" if first.inner else cause
    sites = [rank.where(steps[min(steps)].site) for rank, steps in zip(optimizer.ranks, optimizer.steps, strict=True)
             if steps]  # fmt: skip
    for wrapper, places in optimizer.by_wrapper(held.parameters).items():
        if held.ground.along or wrapper is not None:
            look = Look(0, tuple(one.values for one in optimizer.described), lambda _: next(iter(sites), None))
            yield _holding(held, "start", places, wrapper, [look])._replace(cause=cause, optimizer=-1)


# --- windows


def _in_windows(world: World, held: Copies) -> Iterator[Holding]:
    """Gradients on entry to each step that all ranks have looked at, and parameters on its exit."""
    optimizer = held.optimizer
    found = windows(optimizer, optimizer.compared())
    finite = set(map(id, with_finite_gradients(optimizer, found)))
    gradients = [Look(one.number, one.gradients, one.line, one, id(one) in finite) for one in found]
    parameters = [Look(one.number, one.parameters, one.line, one, id(one) in finite) for one in found]
    idle = frozenset(range(len(optimizer.described[0].parameters))) - _moved(optimizer, found)
    for wrapper, places in optimizer.by_wrapper(held.gradients).items():
        yield _holding(held, "gradients", places, wrapper, gradients)
    owned = handed_out(world, optimizer).difference(held.gradients)
    for wrapper, places in optimizer.by_wrapper(held.parameters).items():
        for kind, part in (("", places - owned), ("owned", places & owned)):
            if part:
                holding = _holding(held, "parameters", part, wrapper, parameters)._replace(idle=idle)
                yield holding._replace(ground=holding.ground._replace(kind=kind or holding.ground.kind))
    if left := _not_handed_out(held, owned):
        yield _holding(held, "parameters", left, None, parameters)._replace(
            ground=Ground("left over", "warning", usual="none", is_lasting=True), idle=idle
        )


def _holding(held: Copies, moment: str, places: Collection[int], wrapper: int | None, looks: list[Look]) -> Holding:
    optimizer = held.optimizer
    parameters = optimizer.described[0].parameters
    ground = held.ground._replace(kind="wrapper") if wrapper is not None else held.ground
    links = (f"optimizer {optimizer.number}",) if wrapper is None else (f"wrapper {wrapper}",)
    return Holding(
        moment,
        tuple(rank.rank for rank in optimizer.ranks),
        [parameter.name for parameter in parameters],
        sorted(places),
        ground,
        looks,
        empty=lambda place: nothing_of(parameters[place]),
        words={"optimizer": optimizer.kind},
        links=(*links, *((f"copies {ground.along}",) if ground.along else ())),
        optimizer=optimizer.number,
    )


def _moved(optimizer: Aligned, found: list[Window]) -> set[int]:
    """The places that steps were seen to change."""
    ended = [one for one in found if one.steps[0].whole]
    begun = [one.values for one in optimizer.described]
    return {
        place
        for one in (*ended[:1], *ended[-1:])
        for values in zip(begun, one.parameters, strict=True)
        for place in step_alignment.differing(values)
    }


def _not_handed_out(held: Copies, owned: Collection[int]) -> set[int]:
    """Of a shape whose other parameters owners hand out, so many to each rank: the rest, which began alike.

    It is not declared that these are copies.
    """
    optimizer = held.optimizer
    by_kind: dict[str, set[int]] = defaultdict(set)
    for place, parameter in enumerate(optimizer.described[0].parameters):
        if parameter.wrapper is None and parameter.layout is None:
            by_kind[parameter.kind].add(place)
    apart = set(step_alignment.differing([one.values for one in optimizer.described]))
    found: set[int] = set()
    for places in by_kind.values():
        dealt, rest = places.intersection(owned), places.difference(owned, held.parameters, apart)
        whole_rounds = dealt and len(dealt) % len(optimizer.ranks) == 0 and len(dealt) + len(rest) == len(places)
        if whole_rounds and len(rest) < len(optimizer.ranks):
            found |= rest
    return found
