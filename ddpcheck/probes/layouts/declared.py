"""Who says which part of a logical tensor this rank holds: a DTensor by its placements, FSDP by how it shards."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from ddpcheck.evidence import Layout, Mesh
from ddpcheck.probes.digests import readable_memory
from ddpcheck.probes.layouts import fsdp_groups
from ddpcheck.probes.recording import recorder, signal_exceptions
from ddpcheck.probes.recording.missing_seams import attribute

MOST_RANKS = 1 << 14
"""Ranks of a mesh up to which holders are worked out."""


class _Placed(NamedTuple):
    """What one mesh with these placements means for this rank."""

    placements: tuple[str, ...]
    holders: tuple[int, ...]
    offsets: dict[tuple[int, ...], tuple[int, ...] | None]
    """By the shape of the whole."""


class _Mesh:
    """A mesh that was met."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.placed: dict[Any, _Placed] = {}
        """By placements: parameters have few, and ask for them at every turn."""


_meshes: weakref.WeakKeyDictionary[Any, _Mesh] = weakref.WeakKeyDictionary()
_made: dict[tuple[Any, ...], int] = {}
"""Numbers by content: DeviceMesh objects of the same ranks and names are the same mesh."""

_writer: recorder.Recorder | None = None
"""In whose file they are."""


def layout_of(writer: recorder.Recorder, tensor: torch.Tensor, whole: bool = False) -> Layout | None:
    """Which part a rank holds of a tensor, if somebody says so; ``whole``: with its offset, which takes longer."""
    try:
        if readable_memory.is_dtensor(tensor):
            return _of_dtensor(writer, tensor, whole)
        return _of_fsdp(tensor) if readable_memory.is_of_fsdp(tensor) else None
    except Exception as error:  # a mesh without a group, a placement of the user's own
        signal_exceptions.let_through(error)
        return None


def is_any_known() -> bool:
    """Whether some tensor was seen to lie on a mesh."""
    return bool(_meshes)


def holders_of(tensor: Any) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The placements of a DTensor, and the ranks that hold the same part of it; none where that is not known."""
    words = tuple(_word(one) for one in tensor.placements)
    return words, _holders(tensor.device_mesh, words)


def place_of(tensor: Any) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Where the part of a DTensor begins, and the ranks that have the whole among them, this one included.

    None where its placements name no one part.
    """
    mesh, placements = tensor.device_mesh, tuple(tensor.placements)
    offset, coordinate = _offset(tensor, mesh, placements), mesh.get_coordinate()
    if offset is None or coordinate is None:
        return None
    index = tuple(at if _word(one) == "R" else slice(None) for one, at in zip(placements, coordinate, strict=True))
    return offset, tuple(sorted(mesh.mesh[index].flatten().tolist()))


def with_pending_sums(parameters: Sequence[Any], places: Iterable[int]) -> set[int]:
    """The places of those whose gradients lie otherwise than they do: a partial sum is no other rank's equal."""
    found = set()
    for place in places:
        gradient = parameters[place].grad
        if gradient is not None and getattr(gradient, "placements", None) != parameters[place].placements:
            found.add(place)
    return found


# --- DTensor


def note(writer: recorder.Recorder, mesh: Any) -> None:
    """Put down a mesh whose dimensions have names: these say what is done along them."""
    _begin_for(writer)
    _number(writer, mesh)


def _begin_for(writer: recorder.Recorder) -> None:
    """Another file of evidence knows none of the meshes."""
    global _writer
    if _writer is not writer:
        _writer = writer
        _meshes.clear()
        _made.clear()


def _of_dtensor(writer: recorder.Recorder, tensor: Any, whole: bool) -> Layout:
    _begin_for(writer)
    mesh = tensor.device_mesh
    known = _meshes.get(mesh)
    if known is None:
        known = _meshes[mesh] = _Mesh(_number(writer, mesh))
    placements = tuple(tensor.placements)
    placed = known.placed.get(placements)
    if placed is None:
        words = tuple(_word(one) for one in placements)
        placed = known.placed[placements] = _Placed(words, _holders(mesh, words), {})
    local = readable_memory.part(tensor)
    shape = tuple(tensor.shape)
    if whole and shape not in placed.offsets:
        placed.offsets[shape] = _offset(tensor, mesh, placements)
    return Layout(
        ground="DTensor",
        shape=shape,
        mesh=known.number,
        placements=placed.placements,
        holders=placed.holders,
        local=tuple(local.shape) if local is not None else (),
        offset=placed.offsets[shape] if whole else None,
    )


def _number(writer: recorder.Recorder, mesh: Any) -> int:
    """The number of a mesh, which is written down when it is met for the first time."""
    names = tuple(str(name) for name in mesh.mesh_dim_names or ())
    shape, ranks = tuple(mesh.mesh.shape), tuple(mesh.mesh.flatten().tolist())
    key = (names, shape, ranks)
    if key not in _made:
        _made[key] = len(_made)
        device = str(getattr(mesh, "device_type", ""))
        writer.write(Mesh(**writer.next(), mesh=_made[key], names=names, shape=shape, ranks=ranks, device=device))
    return _made[key]


def _word(placement: Any) -> str:
    """``R``, ``S0``, ``S0/2`` for one that is strided, ``P``, or ``?``."""
    if placement.is_replicate():
        return "R"
    if placement.is_partial():
        return "P"
    dim = getattr(placement, "dim", None)
    strided = getattr(placement, "split_factor", None)
    if isinstance(dim, int):
        return f"S{dim}" + (f"/{strided}" if strided is not None else "")
    return "?"


def _holders(mesh: Any, words: tuple[str, ...]) -> tuple[int, ...]:
    """The ranks of a mesh that differ from this one in dimensions of copies alone."""
    coordinate = mesh.get_coordinate()
    if coordinate is None or "?" in words or mesh.mesh.numel() > MOST_RANKS or len(coordinate) != len(words):
        return ()
    index = tuple(slice(None) if word == "R" else at for word, at in zip(words, coordinate, strict=True))
    return tuple(sorted(mesh.mesh[index].flatten().tolist()))


def _offset(tensor: Any, mesh: Any, placements: tuple[Any, ...]) -> tuple[int, ...] | None:
    home = sys.modules.get("torch.distributed.tensor._utils")
    work_out = attribute(home, "compute_local_shape_and_global_offset", None) if home is not None else None
    if work_out is None:
        return None
    try:
        _, offset = work_out(tensor.shape, mesh, placements)
        return tuple(int(one) for one in offset)
    except Exception as error:  # placements for which there is no one offset
        signal_exceptions.let_through(error)
        return None


# --- FSDP1


def _of_fsdp(tensor: Any) -> Layout:
    """Of a flat parameter, or of a view of one: a part by its place in the flat one, which nobody names."""
    dealt = fsdp_groups.of(tensor)
    return Layout(
        ground="FSDP",
        shape=tuple(tensor.shape),
        placements=("F",) if dealt is None or dealt.among else ("R",),
        local=tuple(tensor.shape),
        holders=dealt.holders if dealt is not None else (dist.get_rank(),),
        among=dealt.among if dealt is not None else (),
    )
