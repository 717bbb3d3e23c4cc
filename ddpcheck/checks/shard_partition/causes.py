"""What is said of training data that the ranks have not shared out: the line, the cause, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.checks.shard_partition import sampler_causes
from ddpcheck.evidence.epochs import SamplerFacts
from ddpcheck.facts.datasets import Identity
from ddpcheck.facts.passes import Line, Pass
from ddpcheck.judging import program_text
from ddpcheck.judging.values_by_key import by_key
from ddpcheck.judging.world import World
from ddpcheck.relations.overlap import UNAWARE
from ddpcheck.vocabulary.model import CallSite
from ddpcheck.vocabulary.wording import listing, ranks_text

NEARLY_ALL = 0.9

Loaders = Mapping[int, ev.Loader | None]
"""By rank."""


def place(line: Line, loaders: Loaders, world: World | None = None) -> CallSite | None:
    """The line to fix: that of a dataset made too early, of a distributed sampler made wrongly, or of the loader."""
    known = {rank: one for rank, one in loaders.items() if one is not None}
    if world is not None and known and next(iter(known.values())).stream and _takes_itself_for_the_only_one(known):
        early = made_too_early(world, next(iter(known.values())))
        if early is not None:
            return early.dataset
    for rank, passes in sorted(line.passes.items()):
        loader = loaders.get(rank)
        if loader is not None:
            process = passes[0].rank
            made = process.where(loader.sampler_site) if loader.distributed else None
            return made or process.where(loader.site)
    return line.first.where


def loop_lines(line: Line, ranks: tuple[int, ...]) -> tuple[tuple[int, CallSite], ...]:
    """The loops over the loader, on the first ranks concerned."""
    found = [(rank, line.passes[rank][0].where) for rank in ranks if rank in line.passes]
    return tuple((rank, where) for rank, where in found[:2] if where is not None)


def cause(world: World, passes: Mapping[int, Pass], loaders: Loaders, identity: Identity, same_samples: bool) -> str:
    """The likely cause, by the pass of the worst overlap; ``same_samples``: in each, ranks have the same samples."""
    known = {rank: one for rank, one in loaders.items() if one is not None}
    if not known:
        return ""
    first = next(iter(known.values()))
    shards = [one.dataset_rank for one in known.values()]
    if None not in shards and len(set(shards)) < len(shards):
        return _wrong_shards(world, known)
    if first.stream:
        return f"{first.dataset} gives every rank the same samples" if same_samples else ""
    if not all(one.distributed for one in known.values()):
        kind = next(one.sampler for one in known.values() if not one.distributed)
        if _covers(passes, known):
            return sampler_causes.unaware(kind, identity.same)
        seeds = [(one.rank.where(one.begun.seeded), one.begun.seed) for one in passes.values()]
        lines = list(dict.fromkeys(where for where, _ in seeds))
        by = "by a seed of its own perhaps"
        if len(lines) == 1 and lines[0] is not None and len({seed for _, seed in seeds}) > 1:
            by = f"by the seed that is set at {lines[0].file}:{lines[0].line}, another one on each"
        return f"{kind} draws an order on each rank that does not fit the others', {by}"
    return sampler_cause(passes, known).cause


def is_one_set(passes: Mapping[int, Pass]) -> bool:
    """Whether every rank had the same samples in a pass, but for some at its end."""
    each = [{s.print_ for s in one.samples} - {None} for one in passes.values()]
    return len(set.intersection(*each)) >= NEARLY_ALL * max(map(len, each))


def _wrong_shards(world: World, loaders: Mapping[int, ev.Loader]) -> str:
    """Which shard each rank's dataset takes for its own, and why."""
    shards = {rank: one.dataset_rank for rank, one in loaders.items()}
    first = next(iter(loaders.values()))
    by_shard = by_key((shard, rank) for rank, shard in shards.items())
    shown = listing([f"{ranks_text(who)} shard {shard}" for shard, who in by_shard.items()], 8)
    assignment = f"{first.dataset} gives {shown}"
    if _takes_itself_for_the_only_one(loaders):
        early = made_too_early(world, first)
        if early is not None:
            return (
                f"{assignment}, as if there were one rank only: it is made ({early.dataset.file}:{early.dataset.line}) "
                f"before the process group ({early.group.file}:{early.group.line}), when it cannot know its rank"
            )
        return f"{assignment}, as if there were one rank only: it may have been made before the process group existed"
    local = {rank.rank: rank.joined.local_rank for rank in world if rank.rank in shards}
    word = "which is LOCAL_RANK" if shards == local else "a rank within the node perhaps"
    return f"{assignment}, {word} where RANK is needed"


def _covers(passes: Mapping[int, Pass], loaders: Mapping[int, ev.Loader]) -> bool:
    """Whether each rank goes through all of its dataset."""
    return any(
        loader.sampler in UNAWARE
        or (loader.size and len({s.place for s in passes[rank].samples}) >= NEARLY_ALL * loader.size)
        for rank, loader in loaders.items()
        if rank in passes
    )


def sampler_cause(passes: Mapping[int, Pass], loaders: Loaders) -> sampler_causes.Why:
    """What is wrong with distributed samplers, as these say of themselves."""
    known = {rank: one for rank, one in loaders.items() if one is not None}
    samplers = [
        SamplerFacts(
            kind=one.sampler,
            rank=one.rank,
            num_replicas=one.replicas,
            seed=one.seed,
            epoch=passes[rank].begun.epoch if rank in passes else None,
            shuffle=one.shuffle,
        )
        for rank, one in known.items()
    ]
    local_ranks = [passes[rank].rank.joined.local_rank if rank in passes else None for rank in known]
    places = [{s.place for s in one.samples} for one in passes.values()]
    known_places = not any(None in its for its in places)
    in_common = sum(map(len, places)) > len(set().union(*places)) if known_places else None
    return sampler_causes.why(samplers, local_ranks, in_common)


def advice(world: World, passes: Mapping[int, Pass], loaders: Loaders, same_samples: bool) -> str:
    known = {rank: one for rank, one in loaders.items() if one is not None}
    first = next(iter(known.values()), None)
    if first is not None and first.stream:
        made = made_too_early(world, first)
        if made is not None and _takes_itself_for_the_only_one(known):
            return (
                f"Make the {first.dataset} after init_process_group: move line {made.dataset.line} of "
                f"{made.dataset.file} behind line {made.group.line}."
            )
        if not same_samples:
            return (
                "Cut the ranks' shares from one order of the samples or files, the same on every rank: give what "
                "shuffles it the same seed and epoch everywhere, and cut it by dist.get_rank()."
            )
        return (
            "Let the dataset give each rank (and each worker) every world_size-th sample or file, by dist.get_rank() "
            "as it is when the process group exists."
        )
    if first is None or not all(one.distributed for one in known.values()):
        return sampler_causes.UNAWARE_ADVICE
    return sampler_cause(passes, known).fix


class TooEarly(NamedTuple):
    """Two lines of one function, in the wrong order."""

    dataset: CallSite
    group: CallSite


def made_too_early(world: World, loader: ev.Loader) -> TooEarly | None:
    """Where a dataset is made before the process group, by the program's text: it cannot know its rank then."""
    rank = world.ranks[0]
    joined = rank.where(rank.joined.site)
    made = program_text.calls(rank.process, loader.dataset)
    if joined is None or len(made) != 1:
        return None
    dataset = made[0].where
    for group in joined.chain:
        if (group.file, group.function) == (dataset.file, dataset.function) and dataset.line < group.line:
            called = CallSite(file=dataset.file, line=dataset.line, function=dataset.function, caller=group.caller)
            return TooEarly(called, group)
    return None


def _takes_itself_for_the_only_one(loaders: Mapping[int, ev.Loader]) -> bool:
    first = next(iter(loaders.values()))
    return {one.dataset_rank for one in loaders.values()} == {0} and first.dataset_replicas in (1, None)
