"""Parameters that every rank trains for itself: those outside of what is reduced, and whole models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ddpcheck import evidence as ev
from ddpcheck.judging import step_alignment
from ddpcheck.judging.brought_together import written_between
from ddpcheck.judging.indirect_exchanges import by_files, is_seen_together, kept_apart, nothing_else
from ddpcheck.judging.loader_passes import Line, loops
from ddpcheck.judging.replicated_parameters import Grounds, grounds
from ddpcheck.judging.step_alignment import Aligned
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import count, listing

Steps = Sequence[tuple[int, list[ev.Step]]]


def with_gradient(optimizer: Aligned, looked: Steps) -> set[int]:
    """The places that have a gradient in some step on some rank."""
    places: set[int] = set()
    total = len(optimizer.described[0].parameters)
    for _, step in looked:
        for s in step:
            places.update(p for p in range(total) if step_alignment.at(s.gradients, p) != ev.ABSENT)
    return places


def outside(world: World, optimizer: Aligned, looked: Steps, ground: Grounds) -> Finding | None:
    """Parameters that are updated, lie in no wrapper, and that nothing brings together.

    Where anything else went between the ranks they may be parts of a model
    that is spread over them: that is no fault.
    """
    described = optimizer.described[0].parameters
    apart = {place for _, step in looked for place in step_alignment.differing([s.gradients for s in step])}
    places = [
        p
        for p in sorted(with_gradient(optimizer, looked) & apart - {*ground.exchanged, *written_between(optimizer)})
        if described[p].wrapper is None and not described[p].ignored
    ]
    if not places or not nothing_else(world) or not _alike(optimizer, places):
        return None
    dealt = shards(world) is not None
    reduced = [p for p, one in enumerate(described) if one.wrapper is not None or p in ground.by_hand]
    by_hand = bool(ground.by_hand) and all(described[p].wrapper is None for p in reduced)
    forgotten = _begun_equal(optimizer, places)
    names = [described[p].name for p in forgotten or places]
    where = optimizer.ranks[0].where(optimizer.described[0].site)
    stepped = optimizer.ranks[0].where(looked[0][1][0].site)
    if by_hand:
        expected = "the program, which reduces gradients itself, to reduce those of every parameter that is updated"
        cause = f"the {optimizer.kind} holds parameters that the loop over gradients leaves out"
        advice = "Reduce the gradients of all parameters of the optimizer."
    else:
        expected = "DDP to reduce every parameter that the optimizer updates"
        cause = f"the {optimizer.kind} holds parameters of a module that was not wrapped"
        advice = "Put these parameters into the module before it is wrapped, or wrap their module, too."
    found = f"{len(names)} of {count(len(described), 'parameter')} " + (
        f"not reduced: {listing(names)}" if by_hand else f"outside of every wrapper: {listing(names)}"
    )
    if not forgotten:
        found += "; each rank has trained its own"
        cause += ", by mistake, or because each rank is to own them"
        advice = f"If all ranks are to hold the same: {advice[0].lower()}{advice[1:]}"
    return Finding(
        rule="left-out-of-reduction" if by_hand else "outside-every-wrapper",
        # One optimizer for both, or shards of one dataset: that is one model. Otherwise it may be each rank's own, and
        # a loop over gradients may leave out modules that are to differ.
        severity="error" if forgotten and (reduced or dealt) and not by_hand else "warning",
        ranks=tuple(r.rank for r in optimizer.ranks),
        subject=names[0],
        expected=expected,
        found=found,
        cause=cause,
        advice=advice,
        where=where or stepped,
        links=(f"optimizer {optimizer.number}", *optimizer.wrapper_links()),
        proof=tuple((optimizer.ranks[0].rank, s) for s in [stepped] if s is not None),
    )


def _begun_equal(optimizer: Aligned, places: Sequence[int]) -> list[int]:
    """Of these parameters, those that began as copies of each other: one model's, and not each rank's own.

    What is filled with one number is equal without being a copy; it counts
    where others of them do.
    """
    described = optimizer.described
    seen = [p for p in places if all(step_alignment.at(one.values, p) not in (ev.UNSEEN, b"") for one in described)]
    equal = [p for p in seen if len({step_alignment.at(one.values, p) for one in described}) == 1]
    copies = any(not described[0].parameters[p].filled for p in equal)
    return equal if copies else []


def alone(world: World, optimizer: Aligned) -> Iterator[Finding]:
    """Wrappers that are never let reduce, where it was not seen that anything else makes the ranks the same again."""
    met = {*written_between(optimizer), *grounds(world, optimizer).exchanged}
    for wrapper, places in kept_apart(world, optimizer).items():
        if places <= met or is_seen_together(world, wrapper):
            continue
        rank, usage = next(
            (rank, usage)
            for rank, steps in zip(optimizer.ranks, optimizer.steps, strict=True)
            for step in steps.values()
            for usage in step.usage
            if usage.wrapper == wrapper
        )
        kind = next((w.kind for w in rank.of(ev.Wrapped) if w.wrapper == wrapper), "module")
        yield Finding(
            rule="forwards-without-sync",
            severity="warning",
            ranks=tuple(r.rank for r in optimizer.ranks),
            subject=f"the wrapper of {kind}",
            expected="before every optimizer step a forward through the wrapper that prepares the reduction",
            found="every forward ran under no_sync(), and ddpcheck saw nothing bring these parameters together",
            cause="the program brings the ranks together by other means, or does not leave no_sync()",
            advice="If DDP is to reduce, leave no_sync() before the last forward of a step.",
            where=rank.where(usage.no_sync_site),
            links=(f"optimizer {optimizer.number}", f"wrapper {wrapper}"),
        )


def separate(world: World) -> Iterator[Finding]:
    """Ranks that train on shards of one dataset, with nothing that makes one model of theirs."""
    line = shards(world)
    if line is None or not world.complete or not nothing_else(world) or by_files(world):
        return
    optimizers = [one for one in step_alignment.optimizers(world) if len(one.ranks) == world.world_size]
    # An outer optimizer that all ranks step alike, or a write between the steps, may bring them together in any way.
    apart = [
        one
        for one in optimizers
        if not grounds(world, one).exchanged
        and not written_between(one)
        and _alike(one, range(len(one.described[0].parameters)))
        and _differ_at_last(one)
    ]
    if not apart or len(apart) < len(optimizers):
        return
    first = apart[0]
    dataset = line.loader.dataset if line.loader is not None else "dataset"
    made = line.first.rank.where(line.loader.site) if line.loader is not None else None
    proof: list[CallSite | None] = [made, line.first.where]
    yield Finding(
        rule="separate-model-per-rank",
        ranks=tuple(rank.rank for rank in world),
        subject=f"the {first.kind}",
        expected=f"ranks that train on shards of one {dataset} to train one model",
        found=f"{world.world_size} models that differ after the last step, each trained on the shard of its rank: "
        "ddpcheck saw no module in DistributedDataParallel, and nothing bring parameters or gradients together",
        advice="Wrap the model in DistributedDataParallel, or average its gradients over the ranks before each step.",
        where=first.ranks[0].where(first.described[0].site),
        links=(f"optimizer {first.number}", line.link),
        proof=tuple((line.first.rank.rank, site) for site in proof if site is not None),
    )


def _alike(optimizer: Aligned, places: Sequence[int]) -> bool:
    """Whether these are ordinary parameters of the same kind on all ranks, in nobody's shared memory."""
    each = [[one.parameters[p] for one in optimizer.described] for p in places]
    return all(
        len({p.kind for p in same}) == 1 and all(not p.unseen and p.layout is None and not p.shared for p in same)
        for same in each
    )


def shards(world: World) -> Line | None:
    """A training loop in which every rank goes through its shard of one dataset."""
    for line in loops(world):
        loaders = [ones[0].loader for ones in line.passes.values()]
        sharded = all(one is not None and one.distributed and one.replicas == world.world_size for one in loaders)
        if line.training and len(line.passes) == len(world) and sharded:
            return line
    return None


def _differ_at_last(optimizer: Aligned) -> bool:
    last = [step for _, step in optimizer.compared()][-1:]
    return any(step_alignment.differing([s.parameters for s in step]) for step in last)
