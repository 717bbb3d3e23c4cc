"""Wrappers over ranks that hold different parts of a model, which they make the same and average from then on."""

from __future__ import annotations

from collections.abc import Sequence

from ddpcheck import evidence as ev
from ddpcheck.judging import happens_before, step_alignment
from ddpcheck.judging.step_alignment import Replicas
from ddpcheck.judging.tensor_kinds import elements_in
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing, ranks_text

FEW = 4
"""Elements of a tensor that is a loss or a count."""


def judge(world: World, replicas: Replicas) -> Finding | None:
    """Parameters that differed before the wrap, while ranks beyond the wrapper have drawn the same ones.

    Ranks that draw everything for themselves mean to get rank 0's; and those that
    draw a part of the model alike and another one apart, as a new head, may so, too.
    """
    wrapped, ranks = replicas.wrapped, [rank.rank for rank in replicas.ranks]
    before = [one.before for one in wrapped]
    names = wrapped[0].parameters.names
    if not all(len(one) == ev.WIDTH * len(names) for one in before):
        return None
    apart = step_alignment.differing(before)
    ignored, filled = set(wrapped[0].ignored), set(wrapped[0].filled)
    lost = [names[place] for place in apart if names[place] not in ignored]
    alike = [place for place in range(len(names)) if place not in apart and place not in filled]
    if not lost or not alike or not _sends_activations(world, set(ranks)):
        return None
    beyond = _drawn_alike_beyond(world, replicas, [place for place in apart if place not in filled])
    return _across(replicas, lost, beyond) if beyond else None


def _drawn_alike_beyond(world: World, replicas: Replicas, apart: Sequence[int]) -> tuple[int, ...]:
    """The ranks beyond the wrapper of which each has drawn the same as one within, where those within are all unlike.

    Such a wrapper stands across the ranks that have copies: along the dimension in
    which a tensor-parallel model, or its experts, are dealt out.
    """
    names = replicas.wrapped[0].parameters.names
    mine = [_values(one, apart) for one in replicas.wrapped]
    numbers = {rank.rank for rank in replicas.ranks}
    others = {
        rank.rank: _values(one, apart)
        for rank in world
        for one in rank.of(ev.Wrapped)[:1]
        if rank.rank not in numbers
        and one.parameters.names == names
        and len(one.before) == len(replicas.wrapped[0].before)
    }
    alike = tuple(sorted(number for number, values in others.items() if values in mine))
    return alike if apart and len(set(mine)) == len(mine) and set(mine) <= set(others.values()) else ()


def _values(one: ev.Wrapped, places: Sequence[int]) -> bytes:
    return b"".join(step_alignment.at(one.before, place) for place in places)


def _across(replicas: Replicas, lost: Sequence[str], beyond: Sequence[int]) -> Finding:
    ranks = [rank.rank for rank in replicas.ranks]
    return Finding(
        rule="wrong-wrapper-group",
        severity="warning",
        ranks=tuple(ranks),
        subject=lost[0],
        expected="a wrapper to join the ranks with copies of what each of its ranks has drawn for itself",
        found=f"one that joins {ranks_text(ranks)}, which had drawn {count(len(lost), 'parameter')} otherwise than "
        f"each other and as {ranks_text(beyond)}, and makes rank {ranks[0]}'s of them: {listing(lost)}",
        cause="the group is that along which the model is dealt out (tensor or expert parallel), and not that of its "
        "copies",
        advice="Give DDP the data-parallel group: process_group=, or the other dimension of the mesh.",
        where=replicas.ranks[0].where(replicas.wrapped[0].site),
        links=(f"wrapper {replicas.number}",),
    )


def _sends_activations(world: World, ranks: set[int]) -> bool:
    """Whether the program itself exchanges tensors among some of these ranks and no others."""
    calls = [call for rank in world if rank.rank in ranks for call in rank.of(ev.Call)]
    groups = {call.group for call in calls if not call.op.startswith("ddp-") and elements_in(call.detail) > FEW}
    members = [set(happens_before.members(group, world.world_size)) for group in groups]
    return any(len(one) > 1 and one <= ranks for one in members)
