"""Parameters of a model that one optimizer steps on each rank's own gradients, beside others that all ranks share.

A program without a wrapper that reduces inside one optimizer (Muon), or in a
loop over some of the parameters, and gives the rest to another optimizer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddpcheck import evidence as ev
from ddpcheck.checks.reducer_coverage.separate_models import shards, with_gradient
from ddpcheck.judging import step_alignment
from ddpcheck.judging.brought_together import is_trained_apart
from ddpcheck.judging.replicated_parameters import grounds
from ddpcheck.judging.step_alignment import Aligned
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing

ENOUGH = 2
"""Steps that were looked at, at all of which they differed."""

Shared = dict[int, list[str]]
"""By model, on the first rank: parameters on which the program makes all ranks agree at every step."""


def judge(world: World) -> Iterator[Finding]:
    """Look at optimizers of which the program reduces nothing, where it does so for another one's of the same model.

    Equal beginnings are no ground: heads of each rank's own may begin alike, and
    so may class centres or experts that are dealt out, where all ranks have one
    seed; these send each other activations, and get gradients back for them.
    So it is a warning, unless the ranks train on shards of one dataset and a
    module of which the program reduces a part has some of them, too.
    """
    optimizers = [one for one in step_alignment.optimizers(world) if len(one.ranks) == world.world_size]
    if len(optimizers) < 2 or is_trained_apart(world) or _is_spread(world):
        return
    shared: Shared = {}
    for optimizer in optimizers:
        ground = grounds(world, optimizer)
        for place in {*ground.by_hand, *ground.handed_out}:
            described = optimizer.described[0].parameters[place]
            if described.model is not None and described.wrapper is None:
                shared.setdefault(described.model, []).append(described.path)
    for optimizer in optimizers if shared else ():
        found = _apart(world, optimizer, shared)
        if found is not None:
            yield found


def _is_spread(world: World) -> bool:
    """Whether a program's own collectives go between ranks within backward(): a part of the model may lie on each."""
    return any(norm.joint for rank in world for norm in rank.of(ev.Norm))


def _apart(world: World, optimizer: Aligned, shared: Shared) -> Finding | None:
    ground = grounds(world, optimizer)
    looked = [(n, s) for n, s in optimizer.compared() if all(one.gradients for one in s)]
    if ground.exchanged or ground.parameters or len(looked) < ENOUGH:
        return None
    described = optimizer.described[0].parameters
    values = [one.values for one in optimizer.described]
    begun_equal = set(range(len(described))) - set(step_alignment.differing(values))
    places = sorted(begun_equal & with_gradient(optimizer, looked))
    for _, step in looked:
        gradients = set(step_alignment.differing([s.gradients for s in step]))
        after = set(step_alignment.differing([s.parameters for s in step]))
        places = [p for p in places if p in gradients & after]
    places = [p for p in places if _is_plain(optimizer, p) and described[p].model in shared]
    if not places or all(described[p].filled for p in places):
        return None
    beside = shared[described[places[0]].model or 0]
    names = [described[p].path for p in places]
    rank = optimizer.ranks[0]
    stepped = rank.where(looked[0][1][0].site)
    built = rank.where(optimizer.described[0].site)
    return Finding(
        rule="optimizer-without-reduction",
        severity="error" if shards(world) is not None and _are_mixed(names, beside) else "warning",
        ranks=tuple(one.rank for one in optimizer.ranks),
        subject=names[0],
        expected="a program that makes the ranks agree on parameters of a model to do so for all that began alike",
        found=f"{count(len(names), 'parameter')} of the {optimizer.kind} that began as copies, with gradients that "
        f"differ between ranks at every step, over which no collective went: {listing(names)}; beside "
        f"{listing(beside)} of the same model, on which all ranks agree",
        cause="what reduces gradients is a part of another optimizer, or a loop over its parameters alone",
        advice="Average the gradients of these over the ranks before each step, too.",
        where=stepped,
        links=(f"optimizer {optimizer.number}",),
        proof=((rank.rank, built),) if built is not None and built != stepped else (),
    )


def _are_mixed(names: Iterable[str], beside: Iterable[str]) -> bool:
    """Whether some of both are parameters of one and the same module: no head, then, that a rank has for itself."""
    return not {n.rpartition(".")[0] for n in names}.isdisjoint(n.rpartition(".")[0] for n in beside)


def _is_plain(optimizer: Aligned, place: int) -> bool:
    """Whether it is an ordinary parameter of one kind on all ranks, in no wrapper, and nobody's part of another."""
    same = [one.parameters[place] for one in optimizer.described]
    return len({(p.kind, p.path) for p in same}) == 1 and all(
        p.wrapper is None and not p.unseen and p.layout is None and not p.shared and p.path for p in same
    )
