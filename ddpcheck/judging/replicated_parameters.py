"""On what ground must the ranks agree on a parameter? A wrapper, or what the program itself reduces at every step.

That parameters have the same shape and the same values at some moment is no
ground: so have the biases of two stages of a pipeline.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from ddpcheck import evidence as ev
from ddpcheck.judging import step_alignment
from ddpcheck.judging.handed_out import handed_out
from ddpcheck.judging.indirect_exchanges import kept_apart
from ddpcheck.judging.step_alignment import Aligned
from ddpcheck.judging.world import Rank, World


class Grounds(NamedTuple):
    """The places of an optimizer's parameters on which its ranks must agree."""

    gradients: list[int]
    """On entry to every step."""
    parameters: list[int]
    """On its exit, and so in what decides the step."""
    by_hand: list[int]
    """Whose gradients the program itself makes the same at every step."""
    moved: list[int]
    """Which the program itself makes the same between steps, now and then: until then each rank has its own."""
    handed_out: list[int]
    """Which an owner each steps, and hands to all ranks within the step."""
    exchanged: list[int]
    """Over which any collective of the program's own went, once training had begun."""


def grounds(world: World, optimizer: Aligned) -> Grounds:
    """What the ranks of an optimizer must agree on."""
    history = histories(optimizer)
    trained = [
        carried
        for one, records in zip(optimizer.described, history, strict=True)
        for record in records
        for carried in record.carried
        if carried.of == "gradient" or carried.inside or record.number > one.number
    ]
    # What has the size of all shards side by side may be anything that was gathered, such as moments for a checkpoint.
    sharded = {place for one in optimizer.described for place, p in enumerate(one.parameters) if _is_declared(p)}
    moved = {
        one.place
        for one in trained
        if one.of == "parameter" and not one.inside and one.alike and not (one.flat and one.place in sharded)
    }
    moved.update(*kept_apart(world, optimizer).values())
    by_hand = _by_hand(world, optimizer, history)
    # What is reduced during the step itself is not yet the same on entry.
    inside = {one.place for one in trained if one.of == "gradient" and one.inside}
    ground = (_wrapped(world, optimizer) | by_hand) - moved
    handed = handed_out(world, optimizer) - moved
    return Grounds(
        gradients=sorted(ground - inside - _evened(optimizer)),
        parameters=sorted(ground | handed),
        by_hand=sorted(by_hand),
        moved=sorted(moved),
        handed_out=sorted(handed),
        exchanged=sorted({one.place for one in trained}),
    )


def _is_declared(parameter: ev.Parameter) -> bool:
    return parameter.layout is not None and parameter.layout.ground in ("DTensor", "FSDP")


def why_none(world: World, optimizers: Sequence[Aligned]) -> str:
    """Why there may be nothing in these optimizers on which their ranks must agree."""
    stepped = {p.wrapper for _, one in world.of(ev.Optimizer) for p in one.parameters} - {None}
    held = [one for one in optimizers if any(p.wrapper is not None for p in one.described[0].parameters)]
    if not any(rank.of(ev.Optimizer) for rank in world):
        return "ddpcheck saw no optimizer step"
    if unseen := step_alignment.why_unseen(optimizers):
        return unseen
    if not held and any(grounds(world, one).parameters for one in optimizers):
        return "ddpcheck saw the program exchange gradients within the optimizer's step, and not before it"
    if not stepped:
        return declared_apart(world) or (
            "ddpcheck saw no wrapped parameter, and no gradient that the program itself reduces at every step"
        )
    if not held:
        return "ddpcheck could not match the optimizers of wrapped parameters between the ranks"
    if all(any(one.apart for one in optimizer.described) for optimizer in held):
        return "ddpcheck saw a communication hook leave each rank its own gradients"
    if any(kept_apart(world, optimizer) for optimizer in held):
        return "ddpcheck saw every forward run under no_sync(), and not what brings the ranks together"
    if all(len(dealt_out(optimizer)) == len(optimizer.described[0].parameters) for optimizer in held):
        return "ddpcheck saw the optimizer of each rank step other parameters"
    if any(grounds(world, optimizer).moved for optimizer in held):
        return "ddpcheck saw the program exchange wrapped parameters between steps, and compares none in between"
    if any(_evened(optimizer) for optimizer in held):
        return "ddpcheck saw gradients differ on entry to a step whose collectives leave the parameters equal"
    return "ddpcheck saw no parameter that is the same one on all ranks"


def dealt_out(optimizer: Aligned) -> set[int]:
    """The places at which each rank has a parameter of what was wrapped that no other rank's optimizer has."""
    each = [one.parameters for one in optimizer.described]
    times = Counter(name for its in each for name in {(p.wrapper, p.name) for p in its})
    return {
        place
        for place, same in enumerate(zip(*each, strict=False))
        if all(p.wrapper is not None and times[p.wrapper, p.name] == 1 for p in same)
    }


def declared_apart(world: World) -> str:
    """Why declared layouts leave nothing to agree on, where there are any; empty where nothing is declared."""
    layouts = [p.layout for _, one in world.of(ev.Optimizer) for p in one.parameters]
    declared = [one for one in layouts if one is not None and one.ground in ("DTensor", "FSDP")]
    if not declared:
        return ""
    if any(len(one.holders) > 1 for one in declared):
        return "ddpcheck did not see the copies of sharded parameters on all ranks that hold them"
    return "ddpcheck saw sharded parameters of which no two ranks hold the same part"


def _evened(optimizer: Aligned) -> set[int]:
    """Parameters that come out of every step the same, though gradients went into some of them that differ.

    An optimizer of the user's own that has collectives there may exchange what it makes of each rank's gradients,
    such as votes on their signs, and not the gradients.
    """
    steps = [step for _, step in optimizer.compared()]
    if any(one.torchs for one in optimizer.described) or not all(s.collectives for step in steps for s in step):
        return set()
    entered = {place for step in steps for place in step_alignment.differing([s.gradients for s in step])}
    return entered - {place for step in steps for place in step_alignment.differing([s.parameters for s in step])}


def histories(optimizer: Aligned) -> list[list[ev.Exchanged]]:
    """What was exchanged around its steps, rank by rank, as long as it had these parameters."""
    each = zip(optimizer.ranks, optimizer.described, optimizer.orders, strict=True)
    return [list(_exchanged(rank, one, order)) for rank, one, order in each]


def _exchanged(rank: Rank, described: ev.Optimizer, order: list[int] | None) -> Iterator[ev.Exchanged]:
    """What was exchanged as long as the optimizer had these parameters, in the places where all ranks have them."""
    places = {own: place for place, own in enumerate(order or ())}
    until = min(
        (one.n for one in rank.of(ev.Optimizer) if one.optimizer == described.optimizer and one.n > described.n),
        default=math.inf,
    )
    for one in rank.of(ev.Exchanged):
        if one.optimizer == described.optimizer and described.n < one.n < until:
            carried = [msgspec.structs.replace(c, place=places[c.place]) for c in one.carried if c.place in places]
            yield msgspec.structs.replace(one, carried=carried) if places else one


def _wrapped(world: World, optimizer: Aligned) -> set[int]:
    """The parameters that one wrapper holds on all ranks, under the same name."""
    if any(one.apart for one in optimizer.described):
        return set()
    known = step_alignment.common_wrappers(world)
    found = set()
    for place in range(len(optimizer.described[0].parameters)):
        each = [one.parameters[place] for one in optimizer.described]
        same = {
            (known[rank.rank].get(p.wrapper, p.wrapper) if p.wrapper is not None else None, p.name, p.kind)
            for rank, p in zip(optimizer.ranks, each, strict=True)
        }
        if len(same) == 1 and each[0].wrapper is not None and not any(p.ignored or p.unseen for p in each):
            found.add(place)
    return found


def _by_hand(world: World, optimizer: Aligned, history: list[list[ev.Exchanged]]) -> set[int]:
    """The parameters whose gradients went through one call on all these ranks before the first step, and ever since.

    That one rank has left it out later is a fault; that all have may be what the program means to do.
    """
    calls = first_calls(world, optimizer, history)
    return {p for p, call in calls.items() if call.alike and any(lasts(records, call) for records in history)}


def first_calls(world: World, optimizer: Aligned, history: list[list[ev.Exchanged]]) -> dict[int, ev.Carried]:
    """By place: the one call that a gradient went through on all these ranks before the first step.

    It brings the same to all of them, or to one of them what is made of all.
    """
    begun = [
        records[0] if records and records[0].number == one.number else None
        for one, records in zip(optimizer.described, history, strict=True)
    ]
    if not all(begun):
        return {}
    first = [
        {c.place: c for c in record.carried if c.of == "gradient" and (c.alike or c.to_one)}
        for record in begun
        if record
    ]
    numbers = {rank.rank for rank in optimizer.ranks}
    found = {}
    for place, carried in first[0].items():
        if any(one.get(place) != carried for one in first[1:]):
            continue
        if not numbers <= {rank.rank for rank in step_alignment.members(world, carried.group)}:
            continue
        if carried.flat and not _ever_equal(optimizer, place):
            continue
        found[place] = carried
    return found


def lasts(records: list[ev.Exchanged], carried: ev.Carried) -> bool:
    """Whether a gradient goes over the same group at every step of a rank."""
    return not any(record.lost for record in records) and all(like(carried, record.carried) for record in records)


def like(call: ev.Carried, carried: Sequence[ev.Carried]) -> bool:
    """Whether a gradient goes the same way again, in whichever of the group's calls."""
    way = (call.place, "gradient", call.inside, call.group, call.alike, call.to_one)
    return any((c.place, c.of, c.inside, c.group, c.alike, c.to_one) == way for c in carried)


def _ever_equal(optimizer: Aligned, place: int) -> bool:
    """Whether its gradients were the same on all ranks, and not by being nothing but zeros at first."""
    each = [
        {step_alignment.at(s.gradients, place) for s in step}
        for _, step in optimizer.compared()
        if all(s.gradients for s in step)
    ]
    equal = {value for values in each if len(values) == 1 for value in values}
    return len(equal) >= max(1, min(2, len(each) - 1))
