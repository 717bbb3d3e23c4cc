"""Weights that never get a gradient, while others of their module do at every step.

A module that is not used at all has none for any of them. One that computes with a copy of a weight, which was made
where no gradients are computed, trains the rest of itself. What is sharded gets zeros then; any other parameter would
have no gradient, and one of zeros was computed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.judging import step_alignment
from ddpcheck.judging.values_by_key import by_key
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing

AT_LEAST = 6
"""Steps that were looked at: behind a factor that begins with zero, gradients are zero for the first one or two."""


class _Part(NamedTuple):
    """What a rank has of a parameter, over all of an optimizer's steps."""

    name: str
    rank: Rank
    steps: Sequence[ev.Step]
    stands: bool
    """Its gradient was the same at each step, and it was never changed by it."""
    moves: bool
    """Its gradient was another one at each step."""


def judge(world: World) -> list[Finding]:
    """A finding for each optimizer with such weights."""
    by_optimizer: dict[int, list[tuple[Rank, ev.Optimizer]]] = defaultdict(list)
    for rank in world:
        described = rank.of(ev.Optimizer)
        for one in described:
            if sum(other.optimizer == one.optimizer for other in described) == 1:
                by_optimizer[one.optimizer].append((rank, one))
    # Of nearly all programs, two steps show that there is nothing to look for in the others.
    doubted = [each for each in by_optimizer.values() if any(_may_stand(rank, one) for rank, one in each)]
    judged = [_judged([part for rank, one in each for part in _parts(rank, one)]) for each in doubted]
    return [finding for finding in judged if finding is not None]


def _looked_at(rank: Rank, described: ev.Optimizer) -> list[ev.Step]:
    """The optimizer's steps that were looked at; none of them where they are few."""
    steps = [s for s in rank.of(ev.Step) if s.optimizer == described.optimizer and s.gradients and s.parameters]
    return steps if len(steps) >= AT_LEAST else []


def _may_stand(rank: Rank, described: ev.Optimizer) -> bool:
    """Whether a gradient was the same at the first step and at the last."""
    steps = _looked_at(rank, described)
    first, last = (memoryview(s.gradients).cast("Q") for s in (steps[0], steps[-1])) if steps else ((), ())
    return any(a == b != 0 for a, b in zip(first, last, strict=False))


def _parts(rank: Rank, described: ev.Optimizer) -> list[_Part]:
    steps = _looked_at(rank, described)
    found = []
    for place, parameter in enumerate(described.parameters if steps else ()):
        gradients = [step_alignment.at(s.gradients, place) for s in steps]
        values = {step_alignment.at(s.parameters, place) for s in steps}
        if {ev.ABSENT, ev.UNSEEN}.isdisjoint(gradients) and {ev.ABSENT, ev.UNSEEN}.isdisjoint(values):
            sharded = parameter.layout is not None and parameter.layout.sharded
            stands = sharded and len(set(gradients)) == len(values) == 1
            name = parameter.path or parameter.name
            found.append(_Part(name, rank, steps, stands, len(set(gradients)) == len(gradients)))
    return found


def _judged(parts: Sequence[_Part]) -> Finding | None:
    by_name = by_key((part.name, part) for part in parts)
    moving = {name.rpartition(".")[0] for name, each in by_name.items() if all(part.moves for part in each)}
    left = [
        name
        for name, each in by_name.items()
        # A loss may be no function of a bias, as of a critic's last one: its gradients are zero by right.
        if "." in name and not name.endswith("bias")
        if all(part.stands for part in each) and name.rpartition(".")[0] in moving
    ]
    if not left:
        return None
    first = by_name[left[0]][0]
    return Finding(
        rule="weights-never-trained",
        severity="warning",
        ranks=tuple(sorted({part.rank.rank for name in left for part in by_name[name]})),
        subject=left[0],
        expected="a module that trains to have gradients for all of its weights",
        found=f"{count(len(left), 'parameter')} never to be changed, in {len(first.steps)} steps that were looked at, "
        f"beside others of the same module that get a new gradient at every step: {listing(left)}",
        cause="the forward has computed with a copy of the weight that was made where no gradients are computed, as a "
        "copy in half precision that is kept between two calls; or what it is multiplied with was zero at every step",
        advice="Make such a copy anew for each forward with gradients, or outside of torch.no_grad(). Freeze the "
        "weight (requires_grad_(False)) if it is not meant to train.",
        where=first.rank.where(first.steps[0].site),
        links=("left behind",),
    )
