"""Ledger 6: what was read for a model, and is not in it when it is called for the first time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from ddpcheck import evidence as ev
from ddpcheck.facts import logical_tensors, moments, sketches, states
from ddpcheck.facts.sketches import Numbers, PartLeft
from ddpcheck.facts.states import Piece, State
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.world import Rank, World


class Matrix(NamedTuple):
    """A parameter of two dimensions or more."""

    shape: tuple[int, ...]
    sketch: Numbers


class LostRead(NamedTuple):
    """State that was read under the names of a model which was then called, and trained, for the first time."""

    rank: Rank
    read: State
    model: ev.Model
    names: tuple[str, ...]
    """The matrices of the model."""
    left: PartLeft
    """Of what was read, in what they are."""


@once_per_world
@np.errstate(all="ignore")
def of(world: World) -> list[LostRead]:
    """Reads of which no matrix is in the model, nor in any other that was called."""
    every = [*states.given_by_files(world), *(one for one in states.reads(world) if one.how in ("module", "dcp.load"))]
    if not every:
        return []
    begun, used = _begun(world), _used(world)
    return [lost for rank in world for lost in _of_rank(rank, [r for r in every if r.rank is rank], begun, used)]


def _begun(world: World) -> dict[tuple[str, int], dict[str, Matrix]]:
    """By model and rank: what its matrices were when it was called for the first time, put together from all ranks."""
    found: dict[tuple[str, int], dict[str, Matrix]] = defaultdict(dict)
    first = {rank.rank: _first_values(rank) for rank in world}
    for tensor in logical_tensors.of(world):
        if len(tensor.shape) < 2:
            continue
        parts: dict[object, tuple[int, Numbers]] = {}
        for number, held in tensor.held.items():
            for piece in held.pieces:
                if (value := first[number].get(piece.piece)) is not None:
                    own = Matrix(tensor.shape, value)
                    if not logical_tensors.slice_of(piece):
                        found[tensor.model, number][tensor.path] = own
                    parts[logical_tensors.slice_of(piece)] = prod(piece.sizes), value
        if sum(size for size, _ in parts.values()) == tensor.elements and len(parts) > 1:
            whole = Matrix(tensor.shape, np.sum([value for _, value in parts.values()], axis=0))
            for number in tensor.held:
                found[tensor.model, number][tensor.path] = whole
    return found


def _first_values(rank: Rank) -> dict[int, Numbers]:
    """By piece."""
    found: dict[int, Numbers] = {}
    for windows in moments.windows(rank).values():
        for piece, value in windows[0].before.items():
            if np.isfinite(value.sketch).all():
                found.setdefault(piece, value.sketch)
    return found


def _used(world: World) -> set[bytes]:
    """The digests of what any model held that was called."""
    found = {held.digest for _, model in world.of(ev.Model) for held in model.held}
    for _, used in world.of(ev.ModelUsed):
        found.update(_cut(used.digests))
    for _, evaluated in world.of(ev.Evaluated):
        found.update(_cut(evaluated.parameters.digests))
    return found


def _cut(digests: bytes) -> Iterator[bytes]:
    return (digests[n : n + ev.WIDTH] for n in range(0, len(digests), ev.WIDTH))


def _of_rank(
    rank: Rank, every: Sequence[State], begun: Mapping[tuple[str, int], Mapping[str, Matrix]], used: set[bytes]
) -> Iterator[LostRead]:
    steps = [one.n for one in rank.of(ev.Step)]
    names = logical_tensors.models_of(rank)
    for model in rank.of(ev.Model):
        matrices = begun.get((names[model.model], rank.rank))
        since = max((n for n in steps if n < model.n), default=0)
        for read in reversed([one for one in every if since < one.record.n < model.n]) if matrices else ():
            if given := _under_names(read, matrices or {}):
                is_used = any(one.digest in used or not one.seen for one in given.values())
                if not is_used and _is_loaded_in_vain(rank, read, model):
                    yield from _lost(rank, read, model, given, matrices or {})
                break


def _is_loaded_in_vain(rank: Rank, read: State, model: ev.Model) -> bool:
    """Whether it was loaded, and into no other module that is called: else it may have served as it was meant to."""
    loads = [s.model for s in rank.of(ev.StateLoaded) if s.owner == "module" and read.record.n <= s.n < model.n]
    if read.how == "module":
        assert isinstance(read.record, ev.StateRead)
        loads.append(read.record.model)
    called = {one.model for one in rank.of(ev.Model)} | {one.module for one in rank.of(ev.Evaluated)}
    called |= {one.model for one in rank.of(ev.ModelUsed)}
    is_given = bool(loads) or read.how == "dcp.load"
    return is_given and not any(number in called and number != model.model for number in loads)


def _under_names(read: State, matrices: Mapping[str, Matrix]) -> dict[str, Piece]:
    """By the names of all matrices, what was read; nothing where some were not, or have another shape."""
    prefix = states.prefix(read, matrices)
    pieces = {piece.entry.name: piece for piece in read.pieces}
    found = {name: pieces[f"{prefix}{name}"] for name in matrices} if prefix is not None else {}
    is_whole = all(one.size == matrices[name].shape and np.isfinite(one.sums).all() for name, one in found.items())
    return found if is_whole else {}


def _lost(
    rank: Rank, read: State, model: ev.Model, given: Mapping[str, Piece], matrices: Mapping[str, Matrix]
) -> Iterator[LostRead]:
    pairs = [(one.sketch, matrices[name].sketch) for name, one in given.items()]
    if any(sketches.are_alike(*pair) for pair in pairs):
        return
    left = sketches.share_of(pairs)
    if left is not None and left.is_nothing:
        yield LostRead(rank, read, model, tuple(given), left)
