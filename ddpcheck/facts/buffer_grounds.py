"""Which buffers of models in no wrapper several ranks must hold alike, and why.

A placement says so of DTensors. Plain buffers that were equal at the first forward
follow the parameters around them: of what the program reduces, of models whose
ranks read parts of one dataset, and of ranks that share one copy of a model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.facts.holdings import Ground
from ddpcheck.facts.readers import are_peers, models_of, readers
from ddpcheck.judging import first_forwards, mesh_names, step_alignment
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.replicated_parameters import grounds
from ddpcheck.judging.step_alignment import Aligned
from ddpcheck.judging.tensor_kinds import shape_of
from ddpcheck.judging.world import Rank, World

NORMS = frozenset({
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d",
})  # fmt: skip
"""torch's modules whose buffers are statistics of batches."""

DECLARED = Ground("declared", whom="the ranks that hold copies of a buffer, by its placements,")
PEERS = Ground("peers", "warning", "ranks that share one copy of the model, and read the same data,")
DEALT = Ground("dealt", "warning", "the ranks of one model")
REDUCED = Ground(
    "reduced",
    "warning",
    "ranks that make gradients of a module the same, with a number for each of its rows in a buffer,",
)


class Models(NamedTuple):
    """One model, on ranks that must hold some of its buffers alike."""

    models: dict[Rank, ev.Model]
    names: frozenset[str]
    ground: Ground

    @property
    def link(self) -> str:
        return f"model {next(iter(self.models.values())).model}"

    @property
    def is_sharded(self) -> bool:
        return _is_sharded(self.models)

    def owner(self, name: str) -> str:
        """The class of the module that has a buffer."""
        held = next(iter(self.models.values())).held
        return next((one.owner for one in held if one.name == name), "")


@once_per_world
def of(world: World) -> list[Models]:
    """By placement, by what the program reduces, and by which ranks read what."""
    found = [*_declared(world), *_peers(world)]
    for group in readers(world):
        for models in _of_ranks(group.ranks):
            ours = group.models is None or all(
                not group.apart and one.model in group.models[rank] for rank, one in models.items()
            )
            if ours and (group.models is not None or _is_sharded(models)):
                found += _with(models, _equal(models), DEALT)
    return [*found, *_reduced(world)]


def _of_ranks(ranks: Sequence[Rank]) -> Iterator[dict[Rank, ev.Model]]:
    """The models that all of these ranks have, in no wrapper: the same of a class, in their order."""
    by_name = [{name: number for number, name in first_forwards.numbered(rank).items()} for rank in ranks]
    for name in sorted(set(by_name[0]).intersection(*by_name[1:])):
        numbers = [one[name] for one in by_name]
        models = {
            rank: next(one for one in rank.of(ev.Model) if one.model == number)
            for rank, number in zip(ranks, numbers, strict=True)
        }
        if not any(w.module == one.model for rank, one in models.items() for w in rank.of(ev.Wrapped)):
            yield models


def _is_sharded(models: dict[Rank, ev.Model]) -> bool:
    return all(any(h.layout is not None and h.layout.sharded for h in one.held) for one in models.values())


def _with(models: dict[Rank, ev.Model], names: set[str], ground: Ground) -> list[Models]:
    return [Models(models, frozenset(names), ground)] if names else []


def _equal(models: dict[Rank, ev.Model], filled: bool = True) -> set[str]:
    """Plain buffers that are part of the state, and were equal on these ranks at the first forward."""
    held = [
        {h.name: h for h in one.held if h.buffer and h.persistent and not h.same_as and _is_plain(h)}
        for one in models.values()
    ]
    return {
        name
        for name in set(held[0]).intersection(*held[1:])
        if len({(one[name].kind, one[name].digest) for one in held}) == 1
        and held[0][name].digest not in (ev.UNSEEN, ev.ABSENT)
        and (filled or not held[0][name].filled)
    }


def _is_plain(held: ev.Held) -> bool:
    return held.layout is None or held.layout.ground in ("beside", "ignored")


def _declared(world: World) -> Iterator[Models]:
    """Buffers that are declared to be copies: by the ranks that hold the same."""
    by_holders: dict[tuple[int, ...], set[str]] = {}
    for _, model in world.of(ev.Model):
        for held in model.held:
            if held.buffer and held.persistent and not _is_plain(held) and held.layout is not None:
                by_holders.setdefault(held.layout.holders, set()).add(held.name)
    for holders, names in sorted(by_holders.items()):
        ranks = [rank for rank in world if rank.rank in holders]
        if len(ranks) > 1 and len(ranks) == len(holders):
            for models in _of_ranks(ranks):
                alike = [
                    {h.name for h in one.held if h.layout is not None and h.layout.holders == holders}
                    for one in models.values()
                ]
                yield from _with(models, names.intersection(*alike), DECLARED)


def _peers(world: World) -> Iterator[Models]:
    """Plain buffers of ranks that share one copy: what is filled with one number may become a part's own scale."""
    split = {one.ranks for _, one in world.of(ev.Parallelised) if one.how == "parallelize_module"}
    groups = {tuple(group) for group in mesh_names.peers(world)} or {tuple(sorted(one)) for one in split}
    for group in sorted(groups):
        ranks = [rank for rank in world if rank.rank in group]
        if len(ranks) > 1 and len(ranks) == len(group) and are_peers(world, set(group)):
            for models in _of_ranks(ranks):
                if any(h.layout is not None for one in models.values() for h in one.held):
                    yield from _with(models, _equal(models, filled=False), PEERS)


# --- models of which the program reduces a part, while each rank has the rest for its own, such as experts


def _reduced(world: World) -> Iterator[Models]:
    """Buffers with a number for each row or column of a parameter of their module that the program reduces.

    So has what counts or weighs all experts; what a rank keeps of its own ones
    has a number for each of these alone.
    """
    peers = mesh_names.peers(world)
    for optimizer in step_alignment.optimizers(world):
        ground = grounds(world, optimizer)
        rest = set(range(len(optimizer.described[0].parameters))) - {*ground.by_hand}
        # Along tensors or sequences, ranks compute each with its part of what one model makes of the same data.
        split = any({rank.rank for rank in optimizer.ranks} <= set(group) for group in peers)
        if not ground.by_hand or not rest or ground.moved or split or not _are_own(optimizer, rest):
            continue
        reduced = [optimizer.described[0].parameters[place] for place in ground.by_hand]
        stepped = models_of(optimizer)
        for models in _of_ranks(optimizer.ranks):
            if all(one.model in stepped[rank] for rank, one in models.items()):
                held = next(iter(models.values())).held
                names = _equal(models) & {h.name for h in held if _has_number_for_each(h, reduced)}
                yield from _with(models, names, REDUCED)


def _has_number_for_each(buffer: ev.Held, reduced: Sequence[ev.Parameter]) -> bool:
    module, _, _ = buffer.name.rpartition(".")
    shape = shape_of(buffer.kind)
    within = [p for p in reduced if not module or p.path.startswith(f"{module}.")]
    return len(shape) == 1 and shape[0] > 1 and any(shape[0] in shape_of(p.kind) for p in within)


def _are_own(optimizer: Aligned, places: set[int]) -> bool:
    """Whether each rank began with its own numbers there, but for what is filled with one."""
    drawn = [place for place in places if not all(one.parameters[place].filled for one in optimizer.described)]
    begun = [{step_alignment.at(one.values, place) for one in optimizer.described} for place in drawn]
    return bool(drawn) and all(len(values) == len(optimizer.described) for values in begun)
