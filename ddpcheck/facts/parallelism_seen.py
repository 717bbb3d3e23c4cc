"""How a program has spread its model over the ranks, as far as that was declared, or seen to be done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.evidence import SENDS
from ddpcheck.facts.mixing import brought_together, mixed, never_together
from ddpcheck.judging import mesh_names, step_alignment
from ddpcheck.judging.indirect_exchanges import kept_apart
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.replicated_parameters import dealt_out, grounds
from ddpcheck.judging.sent_by_owners import sent
from ddpcheck.judging.step_alignment import Aligned
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.wording import count, listing

TENSOR = "tensor parallelism"
EXPERT = "expert parallelism"
_KINDS = {
    "fully_shard": "FSDP2",
    "FullyShardedDataParallel": "FSDP",
    "parallelize_module": TENSOR,
    "PipelineStage": "pipeline stages",
}


@once_per_world
def understood(world: World) -> tuple[str, ...]:
    """What was understood, a phrase for each; empty where nobody has said, or shown, what the ranks hold."""
    if not world.ranks:
        return ()
    found = [
        *_wrappers(world),
        *_on_meshes(world),
        *_flat(world),
        *_by_hand(world),
        *_sent_by_owners(world),
        *_stages(world),
    ]
    return tuple(dict.fromkeys([*found, *_told_by_its_name_alone(world, found)]))


def paragraph(world: World) -> str:
    """The same as a paragraph, with what of it is not checked, and why."""
    seen = understood(world)
    absent = [name for name in ("DDP", "FSDP2", "tensor parallelism", "pipeline") if not _is_named(name, world, seen)]
    if not seen:
        used = list(dict.fromkeys(_KINDS[one.how] for _, one in world.of(ev.Parallelised)))
        told = (
            f"{f'{listing(used)}, and yet' if used else 'nothing:'} no parameter that an optimizer steps was wrapped, "
            "declared to lie on a mesh, or reduced by the program itself. The ranks' models were not compared."
        )
        return " ".join([told, *_sent(world)])
    told = f"{'; '.join(seen)}. Not seen: {', '.join(absent)}." if absent else f"{'; '.join(seen)}."
    return " ".join([told, *_left_out(world), *_sent(world)])


def _is_named(name: str, world: World, seen: tuple[str, ...]) -> bool:
    how = {_KINDS[one.how].partition(" stages")[0] for _, one in world.of(ev.Parallelised)}
    if any(EXPERT in one for one in seen):
        how.discard(TENSOR)
    return name in how or any(name in one for one in seen)


# --- what there is


def _wrappers(world: World) -> Iterator[str]:
    by_group: Counter[int] = Counter()
    first: dict[int, int] = {}
    for replicas in step_alignment.wrappers(world):
        size = len(replicas.ranks)
        if first.setdefault(size, replicas.ranks[0].rank) == replicas.ranks[0].rank:
            by_group[size] += len(replicas.wrapped[0].parameters.names)
    for size, parameters in by_group.items():
        yield f"DDP over {count(size, 'rank')}, {count(parameters, 'parameter')}"


def described(rank: Rank) -> list[ev.Parameter]:
    """The parameters of a rank's optimizers, as they were described last."""
    last = {one.optimizer: one for one in rank.of(ev.Optimizer)}
    return [parameter for one in last.values() for parameter in one.parameters]


def _on_meshes(world: World) -> Iterator[str]:
    """What DTensors say, mesh by mesh; of stages that differ, those of the first rank of each."""
    for rank in world:
        meshes = {one.mesh: one for one in rank.of(ev.Mesh)}
        kinds = list(dict.fromkeys(_KINDS[one.how] for one in rank.of(ev.Parallelised) if one.stage is None))
        layouts = Counter(
            (one.layout.mesh, one.layout.placements)
            for one in described(rank)
            if one.layout is not None and one.layout.ground == "DTensor"
        )
        for number in dict.fromkeys(mesh for mesh, _ in layouts):
            mesh = meshes.get(number if number is not None else -1)
            if mesh is None or rank.rank != mesh.ranks[0]:
                continue
            ways: Counter[str] = Counter()
            for (its, placements), times in layouts.items():
                ways[_placed(mesh, placements)] += times if its == number else 0
            parts = [f"{count(times, 'parameter')} {way}" for way, times in ways.most_common() if times]
            yield f"{' and '.join(_on(mesh, kinds)) or 'DTensors'} over {_mesh(mesh)}: {', '.join(parts)}"


def _on(mesh: ev.Mesh, kinds: Sequence[str]) -> Iterator[str]:
    """What of this has spread tensors over a mesh, as far as the names of its dimensions tell."""
    names = {name.lower() for name in mesh.names}
    for kind in kinds:
        if kind != TENSOR:
            if not names or not names <= mesh_names.SPLIT | mesh_names.EXPERTS or kinds == [kind]:
                yield kind
        elif names & mesh_names.EXPERTS and not names & mesh_names.SPLIT:
            yield EXPERT
        elif not mesh_names.of_other_data(mesh):
            yield kind


def _mesh(mesh: ev.Mesh) -> str:
    if len(mesh.shape) == 1:
        return f"{count(mesh.shape[0], 'rank')}" + (f" ({mesh.names[0]})" if mesh.names else "")
    dims = [f"{_dim(mesh, place)} {size}" for place, size in enumerate(mesh.shape)]
    return f"{count(len(mesh.ranks), 'rank')} ({' x '.join(dims)})"


def _dim(mesh: ev.Mesh, place: int) -> str:
    return mesh.names[place] if place < len(mesh.names) else f"dimension {place}"


def _placed(mesh: ev.Mesh, placements: tuple[str, ...]) -> str:
    by_way: dict[str, list[str]] = {}
    for place, one in enumerate(placements):
        way = {"R": "replicated", "S": "sharded", "P": "a partial sum"}.get(
            one[:1], "placed in a way that is not known"
        )
        by_way.setdefault(way, []).append(_dim(mesh, place))
    if len(placements) == 1 or len(by_way) == 1:
        return next(iter(by_way), "")
    return " and ".join(f"{way} along {' and '.join(dims)}" for way, dims in by_way.items())


def _flat(world: World) -> Iterator[str]:
    for rank in world:
        every = [one for one in described(rank) if one.layout is not None and one.layout.ground == "FSDP"]
        ranks = next((one.ranks for one in rank.of(ev.Parallelised) if one.how == "FullyShardedDataParallel"), ())
        if every:
            flat = sum(one.path.endswith("_flat_param") for one in every)
            what = count(flat, "flat parameter") if flat else f"{count(len(every), 'parameter')} in flat parameters"
            yield f"FSDP over {count(len(ranks), 'rank')}, {what}" if ranks else f"FSDP, {what}"
            return


def _by_hand(world: World) -> Iterator[str]:
    for optimizer in step_alignment.optimizers(world):
        ground = grounds(world, optimizer)
        over = f"over {count(len(optimizer.ranks), 'rank')}"
        # No wrapper has them, and no placement is declared.
        free = [(p, one) for p, one in enumerate(optimizer.described[0].parameters) if one.wrapper is None]
        bare = [p for p, one in free if one.layout is None or one.layout.ground == "beside"]
        dealt = dealt_out(optimizer)
        # What goes through an exchange may not be taken: that it was the same afterwards is another matter.
        reduced = set(ground.by_hand).intersection(bare)
        moved = set(ground.moved) - dealt - never_together(world, *_first(optimizer))
        # What brings these together, if anything does, is no collective over them.
        kept = moved.intersection(set[int]().union(*kept_apart(world, optimizer).values())) - set(ground.exchanged)
        moved -= kept
        handed = set(ground.handed_out)
        together = brought_together(world, *_first(optimizer)) - moved - kept
        mingled = mixed(world, *_first(optimizer)) - moved - kept - handed - together
        others = set(ground.exchanged).intersection(bare) - reduced - moved - handed - together - mingled
        if any(one.apart for one in optimizer.described):
            yield f"a communication hook that leaves each rank its own gradients, {over}"
        if all(one.sharded for one in optimizer.described):
            parameters = count(len(optimizer.described[0].parameters), "parameter")
            yield f"{parameters} stepped by one rank each ({optimizer.kind}), {over}"
        if dealt:
            names = {one.parameters[place].name for one in optimizer.described for place in dealt}
            yield f"{count(len(names), 'parameter')} dealt out {over}, each stepped by the optimizer of one"
        if handed:
            yield f"{count(len(handed), 'parameter')} stepped by one rank each and handed to all, {over}"
        if reduced:
            yield f"gradients of {count(len(reduced), 'parameter')} reduced by the program itself {over}"
        if together:
            yield (
                f"{count(len(together), 'parameter')} that each rank steps for itself, brought together by the program "
                f"itself now and then, as in local SGD, {over}"
            )
        if mingled:
            yield (
                f"{count(len(mingled), 'parameter')} that each rank steps for itself, mixed with those of others by "
                f"the program itself now and then, as in gossip, {over}"
            )
        if kept:
            yield f"{count(len(kept), 'parameter')} that DDP is never let reduce (no_sync), {over}"
        if moved:
            yield f"{count(len(moved), 'parameter')} made the same by the program itself between steps, {over}"
        if others:
            yield f"{count(len(others), 'parameter')} exchanged by the program itself {over}"


def _sent_by_owners(world: World) -> Iterator[str]:
    each = sent(world)
    if each:
        ranks = {one.owner.rank for one in each}.union(taken.rank.rank for one in each for taken in one.taken)
        over = f"over {count(len(ranks), 'rank')}"
        yield f"{count(len(each), 'parameter')} dealt out {over}, each stepped by one rank and sent to the others"


def _told_by_its_name_alone(world: World, found: Sequence[str]) -> Iterator[str]:
    """What has spread a model whose parameters are seen to lie on no mesh: DDP makes plain tensors of DTensors."""
    for rank in world if found else ():
        for one in rank.of(ev.Parallelised):
            kind = _KINDS[one.how]
            if kind == TENSOR and any(EXPERT in phrase for phrase in found):
                continue
            if one.stage is None and len(one.ranks) > 1 and not any(kind in phrase for phrase in found):
                yield f"{kind} over {count(len(one.ranks), 'rank')}"


def _stages(world: World) -> Iterator[str]:
    stages = {one.stages for _, one in world.of(ev.Parallelised) if one.stages is not None}
    for number in sorted(stages):
        yield f"a pipeline of {count(number, 'stage')}"


# --- what of it is not checked


class _Kept(NamedTuple):
    """How many parameters of a rank are not compared, by why."""

    plain: int
    flat: int
    single: int
    beside: int
    ignored: int


def _left_out(world: World) -> Iterator[str]:
    each = [_kept(world, rank) for rank in world]
    plain, were = _number([one.plain for one in each])
    if plain and understood(world):
        yield f"{plain} in no wrapper {were} not compared: nothing was seen to make {_copies(were)}."
    if any(one.flat for one in each):
        yield "Parts of flat parameters were not compared: each rank has its own."
    single, were = _number([one.single for one in each])
    if single:
        yield f"{single} that one rank alone holds the shards of {were} not compared."
    beside, were = _number([one.beside for one in each], "plain parameter")
    if beside:
        yield f"{beside} beside sharded ones {were} not compared: nobody says whether they are copies."
    ignored, were = _number([one.ignored for one in each])
    if ignored:
        yield f"{ignored} that {were} given to a wrapper to ignore {were} left alone."


def _sent(world: World) -> Iterator[str]:
    """Which ranks send tensors to each other, where nobody saw that they are of models: stages by hand do."""
    told = [rank.last(ev.Transfers) for rank in world]
    if any(one is not None and one.of_models for one in told) or any(rank.of(ev.Parallelised) for rank in world):
        return
    pairs = {(rank.rank, one.peer) for rank, one in world.of(ev.Call) if one.op in SENDS and one.peer is not None}
    if pairs:
        shown = listing([f"{a} to {b}" for a, b in sorted(pairs)])
        yield (
            f"The program itself sends tensors from rank to rank ({shown}): whether stages hand them on, or they are "
            "parts of models, was not seen, and they were not compared."
        )


def _kept(world: World, rank: Rank) -> _Kept:
    every = described(rank)
    by_ground: dict[str, list[ev.Layout]] = {"FSDP": [], "DTensor": [], "beside": [], "ignored": []}
    for one in every:
        if one.layout is not None:
            by_ground[one.layout.ground].append(one.layout)
    # What one optimizer has may be another one's as well, whose steps the ranks make together.
    bare = {_named(one) for one in every if one.wrapper is None and one.layout is None}
    return _Kept(
        plain=len(bare - _exchanged(world, rank)) if bare else 0,
        flat=sum(len(one.holders) < 2 for one in by_ground["FSDP"]),
        single=sum(len(one.holders) == 1 for one in by_ground["DTensor"]),
        beside=len(by_ground["beside"]),
        ignored=len(by_ground["ignored"]),
    )


def _number(each: Sequence[int], what: str = "parameter") -> tuple[str, str]:
    """How many the ranks have that have any, with the verb; empty where none has."""
    some = sorted({number for number in each if number})
    if len(some) > 1:
        return f"{some[0]} to {some[-1]} {what}s of a rank", "were"
    return (count(some[0], what), "was" if some == [1] else "were") if some else ("", "")


def _first(optimizer: Aligned) -> tuple[int, int]:
    """Its number on the first of its ranks."""
    return optimizer.ranks[0].rank, optimizer.number


def _named(parameter: ev.Parameter) -> tuple[int | None, str, str]:
    return parameter.model, parameter.path or parameter.name, parameter.kind


def _exchanged(world: World, rank: Rank) -> set[tuple[int | None, str, str]]:
    """Plain parameters of a rank that the program itself exchanges."""
    found: set[tuple[int | None, str, str]] = set()
    for optimizer in step_alignment.optimizers(world):
        if rank in optimizer.ranks:
            parameters = optimizer.described[optimizer.ranks.index(rank)].parameters
            ground = grounds(world, optimizer)
            places = {
                *ground.exchanged,
                *ground.by_hand,
                *ground.moved,
                *ground.handed_out,
                *brought_together(world, *_first(optimizer)),
            }
            found.update(_named(parameters[place]) for place in places)
    return found


def _copies(were: str) -> str:
    return "it a copy" if were == "was" else "them copies"
