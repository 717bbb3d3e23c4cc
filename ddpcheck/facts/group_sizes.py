"""How many ranks there are, in all, along each dimension of a mesh and in each group, and what these numbers are."""

from __future__ import annotations

import math

from ddpcheck import evidence as ev
from ddpcheck.judging import happens_before
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.wording import listing

Ranks = frozenset[int]


@once_per_world
def of(world: World) -> dict[int, list[tuple[str, Ranks]]]:
    """By size, what has it, the more telling first, with the ranks of one such set; also divisors of the world size."""
    found: dict[int, list[tuple[str, Ranks]]] = {
        size: [] for size in range(2, world.world_size + 1) if world.world_size % size == 0
    }
    for rank in world:
        for mesh in rank.of(ev.Mesh):
            for place, (name, length) in enumerate(zip(mesh.names, mesh.shape, strict=False)):
                line = next((one for one in _lines(mesh, place) if rank.rank in one), Ranks())
                found.setdefault(length, []).append((f"the size of the mesh's dimension {name}", line))
    for group in dict.fromkeys(one.group for _, one in world.of(ev.Call)):
        members = happens_before.members(group, world.world_size)
        if len(members) < world.world_size:
            text = f"the size of the group of ranks {listing(map(str, members))}"
            found.setdefault(len(members), []).append((text, frozenset(members)))
    found.setdefault(world.world_size, []).append(("the world size", frozenset(range(world.world_size))))
    return found


def groups(world: World) -> dict[int, set[Ranks]]:
    """By size, the sets of ranks that have it."""
    return {size: {ranks for _, ranks in its if ranks} for size, its in of(world).items()}


def name(world: World, size: int, but: Ranks) -> str:
    """What a number is, rather not of these ranks, over which gradients are added up."""
    known = of(world).get(size, [])
    names = [text for text, ranks in known if ranks != but] or [text for text, _ in known]
    groups = [text for text in names if "group" in text]
    others = [text for text in names if text not in groups]
    chosen = dict.fromkeys([*others, *groups[:1]])
    return " and ".join(chosen) or "a number by which the world size can be divided"


def _lines(mesh: ev.Mesh, place: int) -> list[Ranks]:
    """The ranks along one dimension of a mesh, line by line."""
    step, length = math.prod(mesh.shape[place + 1 :]), mesh.shape[place]
    starts = [i for i in range(len(mesh.ranks)) if i // step % length == 0]
    return [frozenset(mesh.ranks[start + step * i] for i in range(length)) for start in starts]
