"""Which ranks hold copies of a logical tensor, and on what ground: who says so, or what they were seen to compute."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import cached_property
from itertools import accumulate, combinations
from typing import Literal, NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.facts import exchanges, logical_tensors, stages
from ddpcheck.facts.logical_tensors import Held, Tensor
from ddpcheck.judging import happens_before
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.values_by_key import by_key
from ddpcheck.judging.world import Rank, World

Kind = Literal["wrapper", "declared", "beside", "computed", "drawn", "constant", "ignored", "alone"]
"""Who says so: a wrapper; a mesh, or FSDP; that its model is otherwise sharded among these ranks; its module,
which read and made the same on all of them; equal values when training began, drawn at random or one number; or nobody
does, as the program keeps it from the wrapper, or as no other rank has it."""


class Holders(NamedTuple):
    ranks: frozenset[int]
    kind: Kind
    is_narrower: bool = False
    """A wrapper or a mesh was given fewer ranks."""


Place = tuple[int, int, str]
"""A rank, its number of a model, and a name in there."""


@once_per_world
def of(world: World) -> dict[int, dict[int, Holders]]:
    """By the place of a tensor among all, and by rank."""
    known = _Known(world)
    found: dict[int, dict[int, Holders]] = {}
    for place, tensor in enumerate(logical_tensors.of(world)):
        declared = {rank: _declared(known, tensor, held) for rank, held in tensor.held.items()}
        found[place] = dict(declared)
        for beginning, each in by_key((known.beginning(tensor, rank), rank) for rank in tensor.held).items():
            for alike in known.by_rate(tensor, known.but_for_stages(each)) if beginning is not None else ():
                # Whole models may be wrapped or sharded anew in other groups, which began with the same.
                ranks = frozenset(alike).union(*(declared[rank].ranks for rank in alike))
                kind = _kind(known, tensor, ranks, min(alike, default=-1))
                for rank in alike:
                    if not (
                        ranks <= declared[rank].ranks or _is_part(known, tensor, declared[rank], tensor.held[rank])
                    ):
                        found[place][rank] = Holders(ranks, kind, declared[rank].kind in ("wrapper", "declared"))
    return found


def _is_part(known: _Known, tensor: Tensor, declared: Holders, held: Held) -> bool:
    """Whether a mesh says of this very slice who has it: one of a single rank says nothing of the others."""
    is_of_slice = bool(tensor.slice or not logical_tensors.slice_of(held.piece))
    return declared.kind == "declared" and is_of_slice and bool(_named(known, held) - {held.rank.rank})


def _kind(known: _Known, tensor: Tensor, ranks: frozenset[int], first: int) -> Kind:
    if len(ranks) < 2:
        return "alone"
    own = known.parameter(tensor.held[first])
    if own is not None and own.ignored:
        return "ignored"
    if known.computed_alike(tensor, ranks):
        return "computed"
    return "constant" if known.is_constant(tensor, first) else "drawn"


def _declared(known: _Known, tensor: Tensor, held: Held) -> Holders:
    """Who has copies by a wrapper, FSDP or a mesh."""
    rank, own, layout = held.rank.rank, known.parameter(held), held.piece.layout
    if own is not None and own.wrapper is not None and not own.ignored:
        return Holders(known.groups.get((rank, own.wrapper), frozenset({rank})).intersection(tensor.held), "wrapper")
    if layout is not None and layout.ground == "beside":
        return Holders(
            frozenset(tensor.held) & known.sharded.get((rank, held.piece.model), frozenset({rank})), "beside"
        )
    if layout is None or layout.ground not in ("DTensor", "FSDP"):
        return Holders(frozenset({rank}), "alone")
    if tensor.slice or not logical_tensors.slice_of(held.piece):
        return Holders(frozenset({rank, *layout.holders}).intersection(tensor.held), "declared")
    return Holders(_among(known, tensor, rank).intersection(tensor.held), "declared")


def _among(known: _Known, tensor: Tensor, rank: int) -> frozenset[int]:
    """The ranks between which FSDP or a mesh has divided and copied what a rank has a shard of."""
    found, new = set[int](), {rank}
    while new:
        found |= new
        new = {other for one in new if one in tensor.held for other in _named(known, tensor.held[one])} - found
    return frozenset(found)


def _named(known: _Known, held: Held) -> set[int]:
    layout = held.piece.layout
    if layout is None:
        return set()
    return {*layout.among, *layout.holders, *known.meshes.get((held.rank.rank, layout.mesh), ())}


class _Known:
    """What is on record of all ranks' models."""

    def __init__(self, world: World) -> None:
        self.groups = {
            (rank.rank, one.wrapper): frozenset(happens_before.members(one.group, world.world_size))
            for rank, one in world.of(ev.Wrapped)
        }
        self.meshes: dict[tuple[int, int | None], tuple[int, ...]] = {
            (rank.rank, one.mesh): one.ranks for rank, one in world.of(ev.Mesh)
        }
        self.parameters: dict[Place, ev.Parameter] = {}
        self.begun: dict[Place, bytes] = {}
        """Its digest when training began."""
        self.rates: dict[Place, bytes] = {}
        """By what it is stepped first."""
        self.constants: set[Place] = set()
        self.sharded: dict[tuple[int, int], frozenset[int]] = {}
        """By rank and model, the ranks among which some of it is divided."""
        self.shards: set[Place] = set()
        """What says of no parameter beside it whose it is."""
        self.values = {rank.rank: _module_values(rank) for rank in world}
        self.between = exchanges.between(world)
        self.stages = {frozenset((one.rank, other.rank)) for one, other in stages.pairs(world)}
        self.stages |= {
            frozenset((rank.rank, other)) for rank, one in world.of(ev.Parallelised) for other in one.pipeline
        }
        for rank, model in world.of(ev.Model):
            for held in model.held:
                where = (rank.rank, model.model, held.name)
                self._add(where, held.digest, held.filled)
                layout = held.layout
                if held.buffer or (layout is not None and layout.ground in ("DTensor", "FSDP")):
                    self.shards.add(where)
                if layout is not None and layout.sharded:
                    mesh = self.meshes.get((rank.rank, layout.mesh), ())
                    before = self.sharded.get(where[:2], frozenset())
                    self.sharded[where[:2]] = before.union(mesh, layout.among, layout.holders)
        first: dict[tuple[int, int], ev.Step] = {}
        for rank, step in world.of(ev.Step):
            first.setdefault((rank.rank, step.optimizer), step)
        for rank, described in world.of(ev.Optimizer):
            begun = first.get((rank.rank, described.optimizer))
            rates = dict(enumerate(begun.rates if begun is not None else ()))
            ends = list(accumulate(described.groups))
            for place, one in enumerate(described.parameters):
                where = (rank.rank, -1 if one.model is None else one.model, one.path)
                if one.model is not None and where not in self.parameters:
                    self.parameters[where] = one
                    self._add(where, described.values[place * ev.WIDTH : (place + 1) * ev.WIDTH], one.filled)
                    self.rates[where] = repr(rates.get(bisect_right(ends, place))).encode()

    def parameter(self, held: Held) -> ev.Parameter | None:
        """As the first optimizer that has it describes it."""
        return self.parameters.get((held.rank.rank, held.piece.model, held.piece.path))

    def _add(self, where: Place, digest: bytes, filled: bool) -> None:
        if digest not in (b"", ev.UNSEEN, ev.ABSENT):
            self.begun[where] = digest
        if filled:
            self.constants.add(where)

    def place(self, tensor: Tensor, rank: int) -> Place:
        """Where a rank has it."""
        piece = tensor.held[rank].pieces[0]
        return rank, piece.model, piece.path

    def is_constant(self, tensor: Tensor, rank: int) -> bool:
        """Whether it began as one number, and nothing was drawn in its module."""
        where = self.place(tensor, rank)
        return where in self.constants and not self._drawn[where[:2], _module(where[2])]

    def beginning(self, tensor: Tensor, rank: int) -> tuple[bytes, ...] | None:
        """What a rank began with; of a constant also what was drawn in its module, which says whose it is."""
        where = self.place(tensor, rank)
        if where not in self.begun:
            return None
        beside = self._drawn[where[:2], _module(where[2])] if where in self.constants else ()
        return (self.begun[where], *(self.begun[one] for one in beside))

    def by_rate(self, tensor: Tensor, alike: Collection[int]) -> list[Collection[int]]:
        """These ranks, apart where they step by other rates at first: members of a search have one each."""
        each = by_key((rate, rank) for rank in alike if (rate := self.rates.get(self.place(tensor, rank))) is not None)
        return list(each.values()) if len(each) > 1 else [alike]

    def but_for_stages(self, alike: list[int]) -> Collection[int]:
        """None of them where one computes what another goes on with: stages may begin with the same."""
        has_stages = any(frozenset(pair) in self.stages for pair in combinations(alike, 2)) if self.stages else False
        return () if has_stages else alike

    @cached_property
    def _drawn(self) -> dict[tuple[tuple[int, int], str], list[Place]]:
        """By module, what was drawn at random in it."""
        drawn = sorted(one for one in self.begun if one not in self.constants and one not in self.shards)
        return by_key(((one[:2], _module(one[2])), one) for one in drawn)

    def _has_drawn_alike(self, tensor: Tensor, ranks: Collection[int]) -> bool:
        """Whether anything that was drawn at random in its model began alike on these ranks."""
        each = [self.place(tensor, rank) for rank in ranks]
        drawn = [self._drawn_in.get(one[:2], {}) for one in each]
        return any(all(one.get(path) == value for one in drawn) for path, value in drawn[0].items())

    @cached_property
    def _drawn_in(self) -> dict[tuple[int, int], dict[str, bytes]]:
        """By model, the digests of what was drawn in it, by name."""
        found: dict[tuple[int, int], dict[str, bytes]] = defaultdict(dict)
        for rank, model, path in self.begun.keys() - self.constants - self.shards:
            found[rank, model][path] = self.begun[rank, model, path]
        return found

    def computed_alike(self, tensor: Tensor, ranks: Collection[int]) -> bool:
        """Whether the module that has it read and made the same on these ranks before the first backward().

        Ranks that give each other nothing compute apart, whatever they read; and a
        constant is no copy where nothing that was drawn in its model is.
        """
        if not any(its.issuperset(ranks) for its in self.between):
            return False
        first_rank = min(ranks)
        if self.is_constant(tensor, first_rank) and not self._has_drawn_alike(tensor, ranks):
            return False
        each = []
        for rank in ranks:
            _, model, path = self.place(tensor, rank)
            each.append(self.values[rank].get((model, _module(path))))
        first = each[0]
        return first is not None and all(one == first for one in each)


def _module(path: str) -> str:
    return path.rpartition(".")[0]


def _module_values(rank: Rank) -> Mapping[tuple[int, str], list[tuple[bytes, bytes]]]:
    """By model and name of a module: what it read and made in the forwards before the first backward() of the model."""
    found: dict[tuple[int, str], list[tuple[bytes, bytes]]] = defaultdict(list)
    for model, records in by_key((one.model, one) for one in rank.of(ev.ModuleValues)).items():
        first = records[0]
        for turn, place in enumerate(first.places):
            value = tuple(side[turn * ev.WIDTH : (turn + 1) * ev.WIDTH] for side in (first.read, first.made))
            if not {ev.UNSEEN, ev.ABSENT}.isdisjoint(value):
                continue
            found[model, first.modules[place]].append((value[0], value[1]))
    return found
