"""Is there a trainable parameter with gradients that nothing ever steps, in a model that is trained otherwise?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.judging import step_alignment
from ddpcheck.judging.values_by_key import by_key
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing

ENOUGH = 3
"""Steps before which it had a gradient, and that have left it as it was."""


class _Left(NamedTuple):
    rank: Rank
    described: ev.Optimizer
    names: list[str]
    elsewhere: set[str]
    """Of what this one leaves out, what the optimizers of other ranks step."""


def findings(world: World) -> Iterator[Finding]:
    """A few that are left out of the optimizer of all others.

    Who trains a part of a model, such as a head, may do so without a word to the
    rest: where as many are left out as are stepped, that is meant. What changes
    though it is in none is stepped by another rank, which sends it. A stage of a
    pipeline is sent gradients by the others for its own sake, and is left out
    as a whole where a rank has several.
    """
    met: dict[str, list[_Left]] = defaultdict(list)
    whole: dict[str, list[_Left]] = defaultdict(list)
    stepped = {rank.rank: {p.path for one in rank.of(ev.Optimizer) for p in one.parameters} for rank in world}
    for rank in world:
        stages = {one.module for one in rank.of(ev.Parallelised) if one.stage is not None}
        looked = by_key(((record.optimizer, record.model), record) for record in rank.of(ev.Unstepped))
        for (optimizer, model), records in looked.items():
            described = next((one for one in rank.of(ev.Optimizer) if one.optimizer == optimizer), None)
            if described is None or len(records) < ENOUGH:
                continue
            left = _left_alone(rank, model, records)
            elsewhere = {one for other in world if other is not rank for one in stepped[other.rank]}
            # What another rank steps may be its own, as the head of a task.
            names = [one for one in left if one not in elsewhere]
            elsewhere &= set(records[0].names)
            where = str(rank.where(described.site))
            if names and 2 * len(names) < records[0].among:
                met[where].append(_Left(rank, described, names, elsewhere))
            elif model in stages and len(left) == records[0].among:
                whole[where].append(_Left(rank, described, left, elsewhere))
    for each in met.values():
        yield _finding(each)
    for each in whole.values():
        yield _of_stage(each)


def _left_alone(rank: Rank, model: int, records: list[ev.Unstepped]) -> list[str]:
    """Those that are in no optimizer from first to last, and the same at each look."""
    ever = {p.path for one in rank.of(ev.Optimizer) for p in one.parameters if p.model == model}
    values = [
        {name: step_alignment.at(one.values, place) for place, name in enumerate(one.names)} for one in records
    ]  # fmt: skip
    return [
        name
        for name, value in values[0].items()
        if name not in ever and value != ev.UNSEEN and all(one.get(name) == value for one in values)
    ]


def _finding(each: list[_Left]) -> Finding:
    rank, described, names, _ = first = each[0]
    several = len(names) > 1
    if first.elsewhere:  # the other ranks step parameters that this one has, too, and does not step
        cause = "the parameters are dealt out to the optimizers of the ranks, and no rank has got "
        cause += "these" if several else "this one"
        advice = "Deal out all of them, also where their number is no multiple of the ranks; and send each from its "
        advice += "owner after the step."
    else:
        cause = "the groups of parameters that the optimizer was given leave "
        cause += f"{'these' if several else 'this one'} out, as by {'their names' if several else 'its name'}"
        advice = (
            "Give each parameter to one group; or set requires_grad=False for what is not to be trained: its "
            "gradients cost time, count in norms, and are never zeroed by the optimizer. Accept it where they are "
            "read, or it is set free later."
        )
    return Finding(
        rule="parameter-in-no-optimizer",
        severity="warning",
        ranks=tuple(sorted({one.rank.rank for one in each})),
        subject=names[0],
        step=0,
        expected="every trainable parameter of a model that gets gradients to be in an optimizer",
        found=f"{count(len(names), 'parameter')} that {'are' if several else 'is'} in none and "
        f"{'stay' if several else 'stays'} as before, while the {described.kind} steps the others: {listing(names)}",
        cause=cause,
        advice=advice,
        where=rank.where(described.site),
        links=(f"optimizer {described.optimizer}",),
    )


def _of_stage(each: list[_Left]) -> Finding:
    rank, described, names, _ = each[0]
    return Finding(
        rule="stage-in-no-optimizer",
        severity="warning",
        ranks=tuple(sorted({one.rank.rank for one in each})),
        subject=names[0],
        step=0,
        expected="the trainable parameters of every stage of a pipeline to be in an optimizer",
        found=f"a stage whose {count(len(names), 'parameter')} get gradients, are in none and stay as before, while "
        f"the {described.kind} steps another stage of the same rank: {listing(names)}",
        cause="the optimizer was given the parameters of one stage, and the rank has several",
        advice="Give the optimizer the parameters of all stages that the rank has; or set requires_grad=False for a "
        "stage that is not to be trained.",
        where=rank.where(described.site),
        links=(f"optimizer {described.optimizer}",),
    )
