"""Who holds copies of what, for each optimizer: the ranks that must agree on a parameter, and on what ground.

A world of one DDP group is the simplest case. Where tensors are declared to lie
on a mesh, the holders of the same elements are compared with each other, and
with nobody else: values never tell a replica from a shard.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.judging import optimizer_pairing, step_alignment
from ddpcheck.judging.loader_passes import AVERAGING
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.optimizer_pairing import Built
from ddpcheck.judging.replicated_parameters import grounds
from ddpcheck.judging.step_alignment import Aligned
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import Severity

Key = tuple[int, str, tuple[int, ...], tuple[str, ...]]
"""A parameter among those that a rank's optimizers hold: how many times the name was met before, its name, shape and
placements."""


class Copies(NamedTuple):
    """Parameters that several ranks hold alike, in one optimizer."""

    optimizer: Aligned
    gradients: list[int]
    """The places that must agree on entry to every step."""
    parameters: list[int]
    """Those that must on its exit, and so in what decides the step."""
    along: str = ""
    """The dimensions of the mesh along which they are copies, as a clause; empty for a wrapper's, or the program's."""
    computed_apart: bool = False
    """Each rank computes the same for itself, on a device whose kernels need not give the same bits: nobody reduces."""

    @property
    def severity(self) -> Severity:
        """How bad it is that they differ: how much, digests do not say, and rounding is no mistake of the program's."""
        return "warning" if self.computed_apart else "error"

    @property
    def links(self) -> tuple[str, ...]:
        """What findings about it are linked by."""
        return (f"copies {self.along}",) if self.along else ()

    @property
    def where(self) -> str:
        """Which ranks are meant by "all", in a message."""
        return "all ranks" if not self.along else f"the ranks that hold copies ({self.along})"


@once_per_world
def copies(world: World) -> list[Copies]:
    """All that ranks hold alike: in wrappers, by what the program reduces itself, and as is declared."""
    found = []
    for optimizer in step_alignment.optimizers(world):
        ground = grounds(world, optimizer)
        found.append(Copies(optimizer, ground.gradients, ground.parameters))
    return [*found, *_declared(world)]


def _declared(world: World) -> list[Copies]:
    """What DTensors are copies of on several ranks, holders by holders."""
    found = aligned(world, _holders)
    every = [list(range(len(one.described[0].parameters))) for one in found]
    return [
        Copies(one, places, places, _along(one.ranks[0], one.described[0]), _is_computed_apart(world, one))
        for one, places in zip(found, every, strict=True)
    ]


def _is_computed_apart(world: World, optimizer: Aligned) -> bool:
    """Whether the holders of some parameters are on devices, and FSDP does not reduce their gradients."""
    layouts = [one.parameters[0].layout for one in optimizer.described]
    meshes = {one.mesh: one.device for one in optimizer.ranks[0].of(ev.Mesh)}
    if layouts[0] is None or meshes.get(layouts[0].mesh or 0, "") in ("", "cpu"):
        return False
    reduced = [set(one.ranks) for _, one in world.of(ev.Parallelised) if one.how in AVERAGING]
    return not any(ranks.issuperset(layouts[0].holders) for ranks in reduced)


@once_per_world
def beside(world: World) -> list[Aligned]:
    """The plain parameters of models that are otherwise sharded, for the ranks of the mesh of the others.

    Whether these are copies nobody says.
    """
    return aligned(world, _ranks_of_the_others)


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


def aligned(world: World, whose: Callable[[Rank, ev.Parameter], tuple[int, ...]]) -> list[Aligned]:
    """The parameters that belong to several ranks each, as optimizers of those alone."""
    by_ranks: dict[tuple[tuple[int, ...], int], dict[int, list[tuple[Built, list[int]]]]]
    by_ranks = defaultdict(lambda: defaultdict(list))
    for rank in world:
        for phases in step_alignment.lasting(rank):
            for turn, phase in enumerate(phases):
                places = defaultdict(list)
                for place, parameter in enumerate(phase[0].parameters):
                    places[whose(rank, parameter)].append(place)
                for ranks, its in places.items():
                    if len(ranks) > 1:
                        by_ranks[ranks, turn][rank.rank].append((Built(rank, [phase]), its))
    found: list[Aligned] = []
    for (ranks, _), by_rank in sorted(by_ranks.items()):
        if all(number in by_rank for number in ranks):
            found += _of([by_rank[number] for number in ranks])
    return found


def _of(each: list[list[tuple[Built, list[int]]]]) -> list[Aligned]:
    """The optimizers of these ranks, as far as they have the same parameters, as one each."""
    found = []
    for same in zip(*each, strict=False):
        keys = [_keys(built, places) for built, places in same]
        common = [key for key in keys[0] if all(key in one for one in keys[1:])]
        if not common:
            continue
        described, steps = [], []
        orders: list[list[int] | None] = []
        for (built, _), places in zip(same, keys, strict=True):
            wanted = [places[key] for key in common]
            one, its = optimizer_pairing.reordered(built.first, built.phases[0][1], wanted)
            described.append(one)
            steps.append(its)
            orders.append(wanted)
        ranks: list[Rank] = [built.rank for built, _ in same]
        first = all(one.number == 0 for one in described)
        found.append(Aligned(described[0].optimizer, ranks, described, steps, first, orders))
    return found


def _keys(built: Built, places: list[int]) -> dict[Key, int]:
    """By key, where an optimizer has each of these parameters."""
    met: dict[str, int] = defaultdict(int)
    found: dict[Key, int] = {}
    for place in places:
        parameter = built.first.parameters[place]
        name, layout = parameter.path or parameter.name, parameter.layout
        shape, placements = (layout.shape, layout.placements) if layout is not None else ((), ())
        found[met[name], f"{name} {parameter.kind}", shape, placements] = place
        met[name] += 1
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
