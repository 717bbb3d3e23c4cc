"""Experts of each rank that a wrapper makes those of one rank, and averages from then on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ddpcheck import evidence as ev
from ddpcheck.judging import happens_before, step_alignment
from ddpcheck.judging.step_alignment import Replicas
from ddpcheck.judging.tensor_kinds import elements_in
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing, ranks_text

_EXPERT = "expert"
"""In the names of parameters: what else is drawn by each rank for itself may be a new head."""
FEW = 4
"""Elements of a tensor that is a loss or a count."""


def judge(world: World, replicas: Replicas) -> Finding | None:
    """Parameters that differed before the wrap, beside others that were drawn alike, where tokens are dealt out.

    Ranks that draw everything for themselves mean to get rank 0's; and those that
    draw a part of the model alike and another one apart, as a new head, may so, too.
    Where an all-to-all goes among ranks of the wrapper, and that part has its name, it is experts.
    """
    wrapped, ranks = replicas.wrapped, [rank.rank for rank in replicas.ranks]
    before = [one.before for one in wrapped]
    names = wrapped[0].parameters.names
    if not all(len(one) == ev.WIDTH * len(names) for one in before):
        return None
    apart = step_alignment.differing(before)
    ignored, filled = set(wrapped[0].ignored), set(wrapped[0].filled)
    lost = [names[place] for place in apart if names[place] not in ignored]
    experts = [name for name in lost if _EXPERT in name.lower()]
    alike = [place for place in range(len(names)) if place not in apart and place not in filled]
    if not lost or not alike:
        return None
    if not experts or not _sends(world, set(ranks), lambda call: "all_to_all" in call.op):
        if not _sends(world, set(ranks), _is_of_activations):
            return None
        beyond = _drawn_alike_beyond(world, replicas, [place for place in apart if place not in filled])
        return _across(replicas, lost, beyond) if beyond else None
    return Finding(
        rule="overwritten-experts",
        severity="warning",
        ranks=tuple(ranks),
        subject=experts[0],
        expected="what each rank has drawn for itself in a model whose other parameters are the same, and that deals "
        "tokens out by an all-to-all, to be left to it by the wrapper",
        found=f"{count(len(experts), 'parameter')} that differed between the ranks, and that DDP has made rank "
        f"{ranks[0]}'s on all of them: {listing(experts)}",
        cause="experts of each rank are inside of the wrapper, which takes them for copies and averages them",
        advice="Leave experts out of the wrapper (DDP._set_params_and_buffers_to_ignore_for_model before it is built), "
        "and divide their gradients by the ranks whose tokens they get; or draw these alike, if they are copies.",
        where=replicas.ranks[0].where(wrapped[0].site),
        links=(f"wrapper {replicas.number}",),
    )


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


def _is_of_activations(call: ev.Call) -> bool:
    return not call.op.startswith("ddp-") and elements_in(call.detail) > FEW


def _sends(world: World, ranks: set[int], so: Callable[[ev.Call], bool]) -> bool:
    """Whether the program itself makes such a call among some of these ranks and no others."""
    groups = {call.group for rank in world if rank.rank in ranks for call in rank.of(ev.Call) if so(call)}
    members = [set(happens_before.members(group, world.world_size)) for group in groups]
    return any(len(one) > 1 and one <= ranks for one in members)
