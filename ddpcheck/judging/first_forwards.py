"""Models at their first outermost forward with gradients, and which of one rank is which of another's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite


class Everywhere(NamedTuple):
    """One model, on all ranks that have it."""

    models: dict[Rank, ev.Model]
    held: dict[str, dict[Rank, ev.Held]]
    """By name and rank, what ranks hold under it; a tensor with several names has its first."""

    @property
    def first(self) -> tuple[Rank, ev.Model]:
        """That of the lowest rank."""
        return next(iter(self.models.items()))


def numbered(rank: Rank) -> dict[int, tuple[str, int]]:
    """By the numbers of a rank's models: the class, and which of that class it is, in their order."""
    met: dict[str, int] = defaultdict(int)
    found = {}
    for model in rank.of(ev.Model):
        found[model.model] = (model.kind, met[model.kind])
        met[model.kind] += 1
    return found


@once_per_world
def everywhere(world: World) -> list[Everywhere]:
    """Models that lie on a mesh, by the ranks that share its tensors.

    Two ranks have the same model where it is the same in the order of those of
    its class, and some tensor of it is declared to lie on both.
    """
    turns: dict[tuple[str, int], dict[Rank, ev.Model]] = defaultdict(dict)
    for rank in world:
        names = numbered(rank)
        for model in rank.of(ev.Model):
            turns[names[model.model]][rank] = model
    found = []
    for of_turn in turns.values():
        by_mesh: dict[frozenset[int], dict[Rank, ev.Model]] = defaultdict(dict)
        for rank, model in of_turn.items():
            by_mesh[_reach(rank, model)][rank] = model
        found += [Everywhere(its, _by_name(its)) for reach, its in by_mesh.items() if reach]
    return found


def _reach(rank: Rank, model: ev.Model) -> frozenset[int]:
    """The ranks of all meshes that its tensors lie on, or that have cut shards of it; empty where there are none."""
    on = {one.layout.mesh for one in model.held if one.layout is not None}
    ranks = {number for mesh in rank.of(ev.Mesh) if mesh.mesh in on for number in mesh.ranks}
    return frozenset(ranks.union(*(one.cut_by for one in model.held)))


def _by_name(its: dict[Rank, ev.Model]) -> dict[str, dict[Rank, ev.Held]]:
    found: dict[str, dict[Rank, ev.Held]] = defaultdict(dict)
    for rank, model in its.items():
        for one in model.held:
            if not one.same_as:
                found[one.name][rank] = one
    return found


def held(model: ev.Model) -> dict[str, ev.Held]:
    """What a model holds, by name."""
    return {one.name: one for one in model.held}


def named(rank: Rank, module: int, names: Iterable[str]) -> list[ev.Held | None]:
    """What a rank's module holds under these names, as far as it is a model."""
    known = next((held(one) for one in rank.of(ev.Model) if one.model == module), {})
    return [known.get(name) for name in names]


def sharded_at(rank: Rank, model: ev.Model) -> CallSite | None:
    """The last line that has sharded or wrapped a module before a model's first forward."""
    before = [one for one in rank.of(ev.Parallelised) if one.n < model.n and one.stage is None]
    return rank.where(before[-1].site) if before else None
