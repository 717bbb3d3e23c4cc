"""What the names of a mesh's dimensions say: along which of them ranks read other data, and along which the same."""

from __future__ import annotations

import itertools

from ddpcheck import evidence as ev
from ddpcheck.judging.world import World

_OTHER_DATA = frozenset(
    {"dp", "ddp", "data", "data_parallel", "fsdp", "hsdp", "replicate", "replica", "replicas", "shard", "dp_replicate",
     "dp_shard", "worker", "workers", "dp_mod_ep"}
)  # fmt: skip
_SAME_DATA = frozenset(
    {"tp", "sp", "cp", "pp", "tensor", "sequence", "context", "pipeline", "model", "stage", "tensor_parallel",
     "sequence_parallel", "context_parallel", "pipeline_parallel", "ulysses", "ring"}
)  # fmt: skip
SPLIT = frozenset({"tp", "tensor", "tensor_parallel", "sp", "sequence", "sequence_parallel", "etp"})
SEQUENCE = frozenset({"sp", "cp", "sequence", "context", "sequence_parallel", "context_parallel", "ulysses", "ring"})
EXPERTS = frozenset({"ep", "expert", "experts", "expert_parallel"})
"""Along which modules are split, along which sequences are, and along which experts are dealt out."""


def _mesh(world: World) -> ev.Mesh | None:
    """The mesh over all ranks whose dimensions all have names that say so."""
    for _, mesh in world.of(ev.Mesh):
        known = all(name.lower() in _OTHER_DATA | _SAME_DATA for name in mesh.names)
        if mesh.names and known and len(mesh.ranks) == world.world_size == len(world):
            return mesh
    return None


def of_other_data(mesh: ev.Mesh) -> bool:
    """Whether ranks read other data along all of its dimensions, by their names."""
    return bool(mesh.names) and all(name.lower() in _OTHER_DATA for name in mesh.names)


def readers(world: World) -> list[list[int]]:
    """The ranks that read different data, group by group; none where no mesh says so."""
    return _groups(world, _OTHER_DATA)


def peers(world: World) -> list[list[int]]:
    """The ranks that hold one copy of the model among them, and read the same data."""
    return _groups(world, _SAME_DATA)


def _groups(world: World, names: frozenset[str]) -> list[list[int]]:
    mesh = _mesh(world)
    if mesh is None or all(name.lower() in _OTHER_DATA for name in mesh.names):
        return []
    return _along(mesh, names)


def _along(mesh: ev.Mesh, names: frozenset[str]) -> list[list[int]]:
    """The ranks that differ in these dimensions alone."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for number, place in zip(mesh.ranks, itertools.product(*map(range, mesh.shape)), strict=True):
        fixed = tuple(at for at, name in zip(place, mesh.names, strict=False) if name.lower() not in names)
        groups.setdefault(fixed, []).append(number)
    return [sorted(group) for group in groups.values() if len(group) > 1]


def copied(world: World) -> list[tuple[str, list[int]]]:
    """The ranks that differ in one dimension alone, with its name, where they train one model on other data or tokens.

    Whatever lies along the other dimensions, all of these have the same part of it.
    """
    mesh = _mesh(world)
    if mesh is None:
        return []
    names = [name for name in mesh.names if name.lower() in _OTHER_DATA | SEQUENCE]
    return [(name, ranks) for name in names for ranks in _along(mesh, frozenset({name.lower()}))]


def along(world: World) -> str:
    """The dimensions along which ranks read the same data."""
    mesh = _mesh(world)
    return " and ".join(name for name in mesh.names if name.lower() in _SAME_DATA) if mesh is not None else ""
