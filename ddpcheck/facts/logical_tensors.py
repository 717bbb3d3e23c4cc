"""Logical tensors: what ranks hold of one parameter, by the model that has it, its name and its shape."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.facts import moments
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.world import Rank, World

Ranks = frozenset[int]
Slice = tuple[object, ...]
"""Where a part begins and how large it is; empty for a whole tensor."""


class Held(NamedTuple):
    """What one rank has of it."""

    rank: Rank
    pieces: tuple[ev.Piece, ...]
    """Several of one that got another place, and where optimizers step a flat tensor in its memory."""
    stepped: tuple[ev.Piece, ...]
    """Those that an optimizer of this rank steps."""

    @property
    def piece(self) -> ev.Piece:
        return (self.stepped or self.pieces)[-1]

    @property
    def slice(self) -> Slice:
        """What of it this rank steps."""
        return slice_of(self.piece)


class Tensor(NamedTuple):
    """One parameter, or one part of it where ranks contribute to their parts alone."""

    model: str
    path: str
    shape: tuple[int, ...]
    slice: Slice
    held: dict[int, Held]
    """By rank."""

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def stepped(self) -> dict[int, Held]:
        """By rank, where it is stepped."""
        return {rank: held for rank, held in self.held.items() if held.stepped}


@once_per_world
def of(world: World) -> list[Tensor]:
    """All that are of a model.

    Where backward() contributes to the whole and a rank steps a slice of it, as
    with FSDP, that is one tensor; where each rank contributes to its slice
    alone, as in tensor parallelism, each slice is one.
    """
    found: dict[tuple[str, str, tuple[int, ...], Slice], dict[int, Held]] = defaultdict(dict)
    for rank in world:
        names = models_of(rank)
        wholes = _contributed_whole(rank)
        stepped = {piece for its in moments.windows(rank).values() for window in its for piece in window.places}
        by_name: dict[tuple[str, str, tuple[int, ...]], list[ev.Piece]] = defaultdict(list)
        for piece in moments.pieces(rank).values():
            if piece.model in names and piece.path:
                by_name[names[piece.model], piece.path, piece.shape].append(piece)
        for name, pieces in by_name.items():
            held = Held(rank, tuple(pieces), tuple(one for one in pieces if one.piece in stepped))
            is_whole = any(one.piece in wholes or not slice_of(one) for one in pieces)
            key = (*name, () if is_whole else held.slice)
            found[key][rank.rank] = held
    return [Tensor(*key, held) for key, held in found.items()]


def steppers(tensors: Sequence[Tensor]) -> dict[Ranks, list[int]]:
    """The ranks that step a tensor between them, each a slice; one rank where it steps all of it. With the tensors."""
    found: dict[Ranks, list[int]] = defaultdict(list)
    for place, tensor in enumerate(tensors):
        for ranks in wholes(tensor):
            found[ranks].append(place)
    return found


def wholes(tensor: Tensor) -> Iterable[Ranks]:
    """The sets of ranks that have all of a tensor between them; none where slices do not make up a whole."""
    by_slice: dict[object, list[int]] = defaultdict(list)
    for rank, held in sorted(tensor.stepped.items()):
        by_slice[held.slice].append(rank)
    if by_slice.keys() <= {tensor.slice}:
        return [frozenset({rank}) for rank in tensor.stepped]
    parts = [ranks for ranks in by_slice.values() if _elements(tensor, ranks[0])]
    if sum(_elements(tensor, ranks[0]) for ranks in parts) != tensor.elements or len(set(map(len, parts))) > 1:
        return []
    return [frozenset(ranks) for ranks in zip(*parts, strict=True)]


def _elements(tensor: Tensor, rank: int) -> int:
    return math.prod(tensor.held[rank].piece.sizes)


def models_of(rank: Rank) -> dict[int, str]:
    """By number, a name that means the same on all ranks: the class, and how many of it came before."""
    before: Counter[str] = Counter()
    found: dict[int, str] = {}
    for one in rank.of(ev.Model):
        if one.model not in found:
            before[one.kind] += 1
            found[one.model] = f"{one.kind} {before[one.kind]}"
    return found


def _contributed_whole(rank: Rank) -> set[int]:
    return {
        piece
        for record in rank.of(ev.Contributions)
        for piece, is_whole in zip(record.pieces, record.whole, strict=True)
        if is_whole
    }


def slice_of(piece: ev.Piece) -> Slice:
    """Where a piece lies in the whole; empty where it is all of it."""
    if piece.sizes == (piece.shape if not piece.is_run else (math.prod(piece.shape),)):
        return ()
    return (*piece.offset, *piece.sizes, piece.is_run)
