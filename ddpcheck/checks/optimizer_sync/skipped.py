"""Ranks that hold parts of one model: do their optimizers skip the same steps, as after an overflow?

Copies are compared with each other elsewhere. Shards hold other numbers, and have to step together all the same. The
ranks' common clock is their collectives: how often each calls backward() before a step may be its own affair.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from ddpcheck import evidence as ev
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import Finding, Severity
from ddpcheck.vocabulary.wording import ranks_text

Stepped = dict[int, ev.Step]
"""By the backward() calls so far: the step after them."""
Clock = dict[int, int]
"""By the same: the collectives so far."""


def judge(world: World) -> tuple[int, list[Finding]]:
    """How many backwards were compared, and for each model the first after which a part of its ranks has stepped."""
    groups: list[tuple[Severity, list[Rank]]] = [("error", ranks) for ranks in _by_shards(world)]
    # That activations are exchanged says that it is one model, and nobody has declared it.
    groups = groups or [("warning", _by_what_is_exchanged(world))]
    checked = 0
    findings = []
    for severity, ranks in groups:
        each = [_stepped(rank, severity == "error") for rank in ranks]
        stepped, clocks = [one for one, _ in each], [clock for _, clock in each]
        # Ranks that split a loss otherwise, and call backward() more often for each step, skip nothing.
        if len(ranks) < 2 or not all(stepped) or len({_usual(one) for one in stepped}) > 1:
            continue
        last = min(max(one) for one in stepped)
        every = sorted({number for one in stepped for number in one if number <= last})
        apart = [number for number in every if any(number not in one for one in stepped)]
        apart = [number for number in apart if _left_out(number, clocks)] if _is_one(stepped, clocks) else []
        checked += len(every)
        if apart:
            findings.append(_finding(ranks, stepped, apart, severity))
    return checked, findings


def _by_shards(world: World) -> list[list[Rank]]:
    """The ranks among which a wrapper or a mesh has dealt out what they step, model by model."""
    groups: dict[frozenset[int], list[Rank]] = defaultdict(list)
    for rank in world:
        meshes = {mesh.mesh: mesh.ranks for mesh in rank.of(ev.Mesh)}
        layouts = [p.layout for one in rank.of(ev.Optimizer) for p in one.parameters if p.layout is not None]
        among = {
            one
            for of in layouts
            if of.sharded
            for one in (*of.among, *meshes.get(-1 if of.mesh is None else of.mesh, ()))
        }
        groups[frozenset(among)].append(rank)
    return [ranks for among, ranks in groups.items() if among and among == {rank.rank for rank in ranks}]


def _by_what_is_exchanged(world: World) -> list[Rank]:
    """All ranks, if they exchange something else than parameters and gradients at every step: activations."""
    names = {tuple(p.name for one in rank.of(ev.Optimizer)[:1] for p in one.parameters) for rank in world}
    if len(names) > 1 or _hold_anything_alike(world):
        return []
    for rank in world:
        steps = rank.of(ev.Step)
        if not steps or any(step.collectives < step.backwards or not step.backwards for step in steps):
            return []
        # What has the size of all parameters by chance is told by that alone.
        carried = any(not carried.flat for one in rank.of(ev.Exchanged) for carried in one.carried)
        # Parts of a layer are added up; models that learn from each other's answers gather them.
        if not any("reduce" in call.op for call in rank.of(ev.Call)):
            return []
        exchanged = any(one.others for one in rank.of(ev.Transfers))
        if carried or not exchanged or rank.of(ev.Wrapped):
            return []
    return list(world)


def _hold_anything_alike(world: World) -> bool:
    """Whether any parameter was the same on several ranks after a step: these may be copies, which others compare."""
    each = [{one.number: one.parameters for one in rank.of(ev.Step) if one.parameters} for rank in world]
    for number in set(each[0]).intersection(*each[1:]) if each else ():
        for place in range(0, min(len(one[number]) for one in each), ev.WIDTH):
            seen = [one[number][place : place + ev.WIDTH] for one in each]
            if len({*seen, ev.ABSENT, ev.UNSEEN}) < len(seen) + 2:
                return True
    return False


def _stepped(rank: Rank, of_shards: bool) -> tuple[Stepped, Clock]:
    """As far as every step is on record; those of optimizers that hold shards, or of all."""
    found: Stepped = {}
    clock: Clock = {}
    backwards = collectives = 0
    following: dict[int, int] = {}
    sharded = {
        one.optimizer
        for one in rank.of(ev.Optimizer)
        if any(p.layout is not None and p.layout.sharded for p in one.parameters)
    }
    for step in rank.of(ev.Step):
        if step.number != following.get(step.optimizer, 0) or step.region:
            break
        following[step.optimizer] = step.number + 1
        backwards += step.backwards
        collectives += step.collectives
        if not of_shards or step.optimizer in sharded:
            found.setdefault(backwards, step)
            clock.setdefault(backwards, collectives)
    return found, clock


def _is_one(stepped: Sequence[Stepped], clocks: Sequence[Clock]) -> bool:
    """Whether ranks that have stepped after the same backwards have made the same number of collectives by then."""
    common = set(stepped[0]).intersection(*stepped[1:])
    return all(len({clock[number] for clock in clocks}) == 1 for number in common)


def _left_out(number: int, clocks: Sequence[Clock]) -> bool:
    """Whether some rank has made no step after the collectives that another one has stepped after.

    Ranks that accumulate other numbers of micro-batches step after the same collectives all the same.
    """
    return any(clock[number] not in one.values() for clock in clocks if number in clock for one in clocks)


def _usual(stepped: Stepped) -> int:
    """The backward() calls that most steps are made after."""
    often = Counter(step.backwards for step in stepped.values())
    return max(often, key=lambda number: (often[number], number))


def _finding(ranks: Sequence[Rank], stepped: Sequence[Stepped], apart: Sequence[int], severity: Severity) -> Finding:
    first = apart[0]
    made = [rank for rank, one in zip(ranks, stepped, strict=True) if first in one]
    left = tuple(rank.rank for rank in ranks if rank not in made)
    step = stepped[ranks.index(made[0])][first]
    scaled = any(one.scale is not None for each in stepped for one in each.values())
    return Finding(
        rule="unequal-skipped-steps",
        severity=severity,
        ranks=left,
        subject="the steps of one model's parts",
        step=step.number,
        expected="all ranks that hold parts of one model to step after the same backwards",
        found=f"a step on {ranks_text([rank.rank for rank in made])} after {first} backward() calls, and none on "
        f"{ranks_text(left)}: what the parts make together is no step of the model",
        cause="each rank's scaler looks for an overflow in its own part of the gradients"
        if scaled
        else "each rank decides on its own part of the gradients whether to step",
        advice="Decide it together: all-reduce the flag of an overflow (with MAX) over the ranks that share the model, "
        "and wait for it, before a rank steps or changes its scale; ShardedGradScaler does so.",
        where=made[0].where(step.site),
        count=len(apart),
        links=("skipped steps",),
    )
