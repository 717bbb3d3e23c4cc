"""Who holds copies of what, for each optimizer: the ranks that must agree on a parameter, and on what ground.

A world of one DDP group is the simplest case. Where tensors are declared to lie
on a mesh, the holders of the same elements are compared with each other, and
with nobody else: values never tell a replica from a shard.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.judging import optimizer_pairing, step_alignment
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.optimizer_pairing import Built
from ddpcheck.judging.replicated_parameters import grounds
from ddpcheck.judging.step_alignment import Aligned
from ddpcheck.judging.world import Rank, World

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
    by_holders: dict[tuple[tuple[int, ...], int], dict[int, list[tuple[Built, list[int]]]]]
    by_holders = defaultdict(lambda: defaultdict(list))
    for rank in world:
        for phases in step_alignment.lasting(rank):
            for turn, phase in enumerate(phases):
                places = defaultdict(list)
                for place, parameter in enumerate(phase[0].parameters):
                    layout = parameter.layout
                    if layout is not None and layout.ground == "DTensor" and len(layout.holders) > 1:
                        places[layout.holders].append(place)
                for holders, its in places.items():
                    by_holders[holders, turn][rank.rank].append((Built(rank, [phase]), its))
    found: list[Copies] = []
    for (holders, _), by_rank in sorted(by_holders.items()):
        if all(number in by_rank for number in holders):
            found += _of(world, [by_rank[number] for number in holders])
    return found


def _of(world: World, each: list[list[tuple[Built, list[int]]]]) -> list[Copies]:
    """The optimizers of these ranks, as far as they have the same parameters, as one each."""
    found = []
    for same in zip(*each, strict=False):
        keys = [_keys(built, places) for built, places in same]
        common = [key for key in keys[0] if all(key in one for one in keys[1:])]
        if not common:
            continue
        described, steps = [], []
        for (built, _), places in zip(same, keys, strict=True):
            wanted = [places[key] for key in common]
            one, its = optimizer_pairing.reordered(built.first, built.phases[0][1], wanted)
            described.append(one)
            steps.append(its)
        ranks: list[Rank] = [built.rank for built, _ in same]
        first = all(one.number == 0 for one in described)
        aligned = Aligned(described[0].optimizer, ranks, described, steps, first, [None] * len(ranks))
        every = list(range(len(common)))
        found.append(Copies(aligned, every, every, _along(world, ranks[0], described[0])))
    return found


def _keys(built: Built, places: list[int]) -> dict[Key, int]:
    """By key, where an optimizer has each of these parameters."""
    met: dict[str, int] = defaultdict(int)
    found: dict[Key, int] = {}
    for place in places:
        parameter = built.first.parameters[place]
        assert parameter.layout is not None
        found[met[parameter.name], parameter.name, parameter.layout.shape, parameter.layout.placements] = place
        met[parameter.name] += 1
    return found


def _along(world: World, rank: Rank, described: ev.Optimizer) -> str:
    """The names of the dimensions along which these parameters are copies, with the number of their ranks."""
    layout = described.parameters[0].layout
    assert layout is not None
    mesh = next((one for one in rank.of(ev.Mesh) if one.mesh == layout.mesh), None)
    if mesh is None:
        return f"{len(layout.holders)} ranks of the mesh"
    dims = [place for place, one in enumerate(layout.placements) if one == "R"]
    names = [mesh.names[d] if d < len(mesh.names) else f"dimension {d} of the mesh" for d in dims]
    return f"along {' and '.join(names)}"
