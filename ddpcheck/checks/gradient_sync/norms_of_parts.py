"""Norms in models whose layers lie in parts on the ranks: are their gradients summed up over those?

Nobody declares what a plain tensor is. Norms are shared by all parts more often
than not: what begins alike, in a model of which other tensors do not, and gets
other gradients on each rank, is worth a warning, and no more.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ddpcheck import evidence as ev
from ddpcheck.facts import tensors
from ddpcheck.judging import step_alignment
from ddpcheck.judging.replicated_parameters import histories
from ddpcheck.judging.step_alignment import Aligned
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing


def judge(world: World) -> Iterator[Finding]:
    """Look at the ranks of each group that something else than gradients goes over, from step to step."""
    described = (one for _, one in world.of(ev.Optimizer))
    if not any(_is_of_norm(parameter) for one in described for parameter in one.parameters):
        return
    told: set[tuple[int, ...]] = set()
    for group in _groups(world):
        for optimizer in tensors.aligned([one for one in world if one.rank in group], partial(_of_group, group)):
            finding = _finding(world, optimizer)
            if finding is not None and finding.ranks not in told:
                told.add(finding.ranks)
                yield finding


def _groups(world: World) -> list[tuple[int, ...]]:
    """The ranks of every group that has collectives, the smallest first; what lies within another is its part."""
    names = {call.group for _, call in world.of(ev.Call) if not call.op.startswith("ddp-")}
    groups = {tuple(rank.rank for rank in step_alignment.members(world, name)) for name in names}
    calls = world.of(ev.Call)
    sends = {(rank.rank, one.peer) for rank, one in calls if one.op in ev.PAIRWISE and one.peer is not None}
    # Ranks of a group that send to each other are stages of a pipeline, whose norms are not the same ones.
    apart = [g for g in groups if len(g) > 1 and not any(a in g and b in g for a, b in sends)]
    return sorted(apart, key=lambda group: (len(group), group))


def _is_of_norm(parameter: ev.Parameter) -> bool:
    return "norm" in parameter.name.partition(".")[0].lower()


def _of_group(group: tuple[int, ...], rank: Rank, parameter: ev.Parameter) -> tuple[int, ...]:
    """The group, where a rank of it has the parameter as a plain tensor, which no wrapper has."""
    bare = parameter.wrapper is None and parameter.layout is None and not parameter.unseen
    return group if bare and rank.rank in group else ()


def _exchanged(world: World, optimizer: Aligned) -> set[int]:
    """The places over which collectives went that reach all of these ranks; a size alone says nothing."""
    mine = {rank.rank for rank in optimizer.ranks}
    every = [c for records in histories(optimizer) for record in records for c in record.carried if not c.flat]
    reach = {name: {rank.rank for rank in step_alignment.members(world, name)} for name in {c.group for c in every}}
    return {c.place for c in every if mine <= reach[c.group]}


def _finding(world: World, optimizer: Aligned) -> Finding | None:
    parameters = optimizer.described[0].parameters
    begun = set(step_alignment.differing([one.values for one in optimizer.described]))
    norms = [p for p, one in enumerate(parameters) if p not in begun and _is_of_norm(one)]
    looked = [(n, step) for n, step in optimizer.compared() if all(s.gradients for s in step)]
    exchanged = _exchanged(world, optimizer)
    if not norms or not begun or len(looked) < 2:
        return None
    each = [set(step_alignment.differing([s.gradients for s in step])) for _, step in looked]
    places = [p for p in norms if p not in exchanged and all(p in apart for apart in each)]
    if not places:
        return None
    names = [parameters[p].path or parameters[p].name for p in places]
    others = len(set(norms) & exchanged)
    rank, (number, step) = optimizer.ranks[0], looked[0]
    return Finding(
        rule="unreduced-norm-gradients",
        severity="warning",
        ranks=tuple(one.rank for one in optimizer.ranks),
        subject=names[0],
        step=number,
        expected="norms that all parts of a layer share to have the same gradients on the ranks that hold these parts",
        found=f"{count(len(places), 'parameter')} of norms that began alike to have other gradients on each rank in "
        f"every step, and no collective over them: {listing(names)}"
        + (f"; {count(others, 'other parameter')} of norms {'is' if others == 1 else 'are'} reduced" if others else ""),
        cause="their gradients are computed from each rank's own part of the sequence or of the heads, and nothing "
        "sums them up",
        advice="All-reduce these gradients over the ranks that share the layer before each step; where each rank "
        "normalises channels of its own, accept this.",
        where=rank.where(step[0].site),
        links=(f"optimizer {optimizer.number}",),
    )
