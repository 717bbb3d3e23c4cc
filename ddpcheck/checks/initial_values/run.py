"""Is what models begin with what a program means them to begin with? Judge over their first forwards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from ddpcheck import evidence as ev
from ddpcheck.checks.initial_values import compared
from ddpcheck.judging import first_forwards
from ddpcheck.judging.first_forwards import Everywhere
from ddpcheck.judging.world import Judged, Rank, World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing, ranks_text

SMALL = 8
"""Elements below which equal numbers may be a coincidence, or a constant that was not seen to be one."""


def judge(world: World) -> Judged:
    """Look at every model when it is called for the first time with gradients."""
    models = [*world.of(ev.Model)]
    findings = [*_unwritten(world)]
    for everywhere in first_forwards.everywhere(world):
        findings += _cut_from_several(everywhere)
        findings += _equal_shards(everywhere)
    stages = _stages(world)
    findings += _equal_stages(stages)
    because = "ddpcheck saw no module called with gradients"
    if any(model.unread for _, model in models):
        because = "ddpcheck could not read memory that to_empty() had handed out"
    elif models:
        because = "ddpcheck saw no model of which it could compare all that was drawn at random between the ranks"
    checked = compared.models(world, _alike(stages))
    return Judged(checked=checked, of=len(models), findings=tuple(findings), skipped_because=because)


# --- memory that nobody has written to


def _unwritten(world: World) -> Iterator[Finding]:
    """Tensors that to_empty() has handed out, which are as they were."""
    ranks: dict[tuple[str, str], list[tuple[Rank, ev.Model, list[ev.Held]]]] = defaultdict(list)
    for rank, model in world.of(ev.Model):
        left = [one for one in model.held if not one.written]
        if left:
            ranks[model.kind, left[0].name].append((rank, model, left))
    for (kind, name), each in ranks.items():
        rank, model, left = each[0]
        # Fresh memory is zeros more often than not, and zeros may have been meant.
        certain = any(not one.filled for _, _, held in each for one in held)
        buffers = all(one.buffer for one in left)
        what = "buffer" if buffers else "tensor"
        lost = "load_state_dict() restores none of them" if all(not one.persistent for one in left) else ""
        yield Finding(
            rule="unwritten-memory",
            severity="error" if certain else "warning",
            ranks=tuple(sorted(one.rank for one, _, _ in each)),
            subject=name,
            expected=f"every parameter and buffer of the {kind} to be written before its first forward",
            found=f"{count(len(left), what)} as to_empty() had left it, whatever was in that memory: "
            f"{listing([one.name for one in left])}" + (f"; {lost}" if lost else ""),
            advice="Fill them after to_empty(): by the module's own reset_parameters() or init function, which has to "
            "set buffers, too, or by copying them from a module that was built on a real device.",
            where=rank.where(model.site),
            links=(f"model {model.model}",),
        )


# --- shards


def _cut_from_several(everywhere: Everywhere) -> Iterator[Finding]:
    """Shards that were cut from tensors which were not the same on all ranks, and were not written to since."""
    apart: list[str] = []
    odd: set[int] = set()
    for name, held in everywhere.held.items():
        by_ranks: dict[tuple[int, ...], dict[int, bytes]] = defaultdict(dict)
        empty = {rank.rank for rank, one in held.items() if one.layout is not None and 0 in one.layout.local}
        for rank, one in held.items():
            # A part without elements is of every model.
            if one.cut_from not in (b"", ev.UNSEEN) and rank.rank not in empty:
                by_ranks[one.cut_by][rank.rank] = one.cut_from
        for cut_by, wholes in by_ranks.items():
            ranks = set(cut_by) - empty
            # With other dimensions of the mesh, each of them has wholes of its own: those of one group are compared.
            if len(wholes) == len(ranks) > 1 and len(set(wholes.values())) > 1:
                apart.append(name)
                first = wholes[min(wholes)]
                odd.update(rank for rank, whole in wholes.items() if whole != first)
    if apart:
        rank, model = everywhere.first
        sharded = first_forwards.sharded_at(rank, model)
        yield Finding(
            rule="shards-of-different-models",
            ranks=tuple(sorted(odd)),
            subject=apart[0],
            expected="all ranks to cut their shards from the same parameters",
            found=f"{count(len(set(apart)), 'parameter')} that differed between the ranks when the model was sharded: "
            f"{listing(list(dict.fromkeys(apart)))}; each whole one is now put together from several models",
            cause="sharding broadcasts nothing, and each rank has drawn or loaded its own",
            advice="Seed all ranks alike before the model is built, load the same state on all of them, or broadcast "
            "rank 0's parameters before they are sharded.",
            where=sharded or rank.where(model.site),
            links=(f"model {model.model}",),
        )


def _equal_shards(everywhere: Everywhere) -> Iterator[Finding]:
    """Shards of one tensor that are the same numbers, though they are no constant."""
    equal: list[str] = []
    compared = 0
    where: set[int] = set()
    for name, held in everywhere.held.items():
        by_digest: dict[bytes, list[Rank]] = defaultdict(list)
        parts = [(rank, one) for rank, one in held.items() if _is_drawn_shard(one)]
        if len({one.layout.holders for _, one in parts if one.layout is not None}) < 2:
            continue
        compared += 1
        for rank, one in parts:
            by_digest[one.digest].append(rank)
        same = [ranks for ranks in by_digest.values() if _hold_other_parts(ranks, held)]
        if same:
            equal.append(name)
            where.update(rank.rank for rank in same[0])
    if not equal:
        return
    rank, model = everywhere.first
    all_of_them = len(equal) == compared > 1
    on_cpu = any(mesh.device == "cpu" for mesh in rank.of(ev.Mesh))
    yield Finding(
        rule="identical-shards",
        # On the CPU torch itself draws every shard alike, which it does not do on GPUs: the program may be right there.
        severity="error" if all_of_them and not on_cpu else "warning",
        ranks=tuple(sorted(where)),
        subject=equal[0],
        expected="the shards of a parameter that is filled at random to be different numbers",
        found=f"{len(equal)} of {count(compared, 'sharded parameter')} to be the same numbers in the shards of "
        f"{ranks_text(sorted(where))}: {listing(equal)}",
        cause="each rank has drawn its own shard from a generator in the same state"
        + (", as torch does itself for DTensors on a CPU mesh" if on_cpu else ""),
        advice="Draw the whole parameter from one seed and shard it then; ranks that draw local shards need seeds of "
        "their own. On GPUs torch's own functions, called with DTensors, draw other numbers for each shard.",
        where=rank.where(first_forwards.held(model)[equal[0]].site) or rank.where(model.site),
        links=(f"model {model.model}",),
    )


def _is_drawn_shard(one: ev.Held) -> bool:
    """Whether it is a shard of numbers that are not all the same, and enough of them."""
    layout = one.layout
    if layout is None or layout.ground != "DTensor" or not layout.sharded or "?" in layout.placements:
        return False
    elements = 1
    for size in layout.local:
        elements *= size
    return (
        one.written
        and not one.filled
        and not one.buffer
        and elements >= SMALL
        and one.digest not in (b"", ev.ABSENT, ev.UNSEEN)
    )


def _hold_other_parts(ranks: Sequence[Rank], held: dict[Rank, ev.Held]) -> bool:
    """Whether some of these ranks hold other elements than others of one mesh, as is declared.

    Of what lies on another mesh nobody says whether it is a copy.
    """
    by_mesh: dict[tuple[int, ...], set[tuple[int, ...]]] = defaultdict(set)
    for rank in ranks:
        layout = held[rank].layout
        mesh = next((one for one in rank.of(ev.Mesh) if layout is not None and one.mesh == layout.mesh), None)
        if mesh is not None and layout is not None:
            by_mesh[mesh.ranks].add(layout.holders)
    return any(len(holders) > 1 for holders in by_mesh.values())


# --- stages


def _stages(world: World) -> dict[int, tuple[Rank, ev.Model]]:
    """By number, the stages of a pipeline, each on the first of its ranks."""
    stages: dict[int, tuple[Rank, ev.Model]] = {}
    for rank in world:
        declared = [one.stage for one in rank.of(ev.Parallelised) if one.stage is not None]
        of_rank = rank.of(ev.Model)
        if len(declared) == len(of_rank) == 1:
            stages.setdefault(declared[0], (rank, of_rank[0]))
    return stages


def _alike(stages: dict[int, tuple[Rank, ev.Model]]) -> Iterator[tuple[Rank, ev.Model]]:
    """The stages that have weights of the same shapes as another one: what is compared."""
    shapes = {stage: {kind for kind, _ in _drawn(model)} for stage, (_, model) in stages.items()}
    for stage, mine in shapes.items():
        if any(mine & others for other, others in shapes.items() if other != stage):
            yield stages[stage]


def _equal_stages(stages: dict[int, tuple[Rank, ev.Model]]) -> Iterator[Finding]:
    """Stages of a pipeline whose weights of the same shape are all the same numbers."""
    digests = {stage: _drawn(model) for stage, (_, model) in stages.items()}
    for first, mine in digests.items():
        for other, theirs in digests.items():
            shapes = {kind for kind, _ in mine} & {kind for kind, _ in theirs}
            own = [one for one in mine if one[0] in shapes]
            if first >= other or len(own) < 2 or not theirs.keys() >= set(own):
                continue
            rank, model = stages[other]
            names = [mine[one] for one in own]
            yield Finding(
                rule="identical-stages",
                severity="warning",
                ranks=(stages[first][0].rank, rank.rank),
                subject=names[0],
                expected="the stages of a pipeline to begin with weights of their own",
                found=f"all {count(len(own), 'weight')} of shapes that stages {first} and {other} have in common to be "
                f"the same numbers: {listing(sorted(names))}",
                cause="each rank has built its stage from a generator in the same state",
                advice="Build the whole model from one seed and take each stage out of it, or seed each stage by its "
                "number.",
                where=rank.where(model.site),
                links=("stages",),
            )
            return


def _drawn(model: ev.Model) -> dict[tuple[str, bytes], str]:
    """The names of the parameters that are no constants, by kind and digest."""
    seen = [one for one in model.held if not (one.buffer or one.filled or one.same_as)]
    return {(one.kind, one.digest): one.name for one in seen if one.digest not in (b"", ev.ABSENT, ev.UNSEEN)}
