"""Does a shuffled sampler give another order in another epoch? Judge of epoch-reshuffle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ddpcheck.evidence.epochs import EpochFacts, SamplerPass
from ddpcheck.vocabulary.model import Finding

CHECK = "epoch-reshuffle"


def judge(said: Sequence[Any], rounds: Sequence[Sequence[Any]]) -> tuple[Finding, ...]:
    """Compare the orders of a rank's passes with each other."""
    facts = [msgspec.convert(one, EpochFacts) for one in said]
    everyone = tuple(range(len(facts)))
    if not all(f.followed or f.passes for f in facts):
        found = f"a {facts[0].kind} with an order of its own, which is not recorded: nothing was checked"
        advice = "Hold list(sampler) of two epochs against each other in the test instead."
        return (_finding(everyone, found, advice),)
    steady = [f.kind for f in facts if not f.shuffle]
    if steady:
        found = f"a {steady[0]} with shuffle=False: nothing was checked"
        return (_finding(everyone, found, "Shuffle the training data, or drop this assertion for data that is not."),)
    if min(len(f.passes) for f in facts) < 2:
        shown = ", ".join(f"{len(f.passes)} on rank {r}" for r, f in enumerate(facts))
        found = f"fewer than two passes through the sampler ({shown}): nothing was checked"
        return (_finding(everyone, found, "Train two epochs or more before this assertion."),)
    same = {r: pair for r, f in enumerate(facts) if (pair := _repetition(f.passes)) is not None}
    if not same:
        return ()
    rank, (a, b) = next(iter(same.items()))
    passes = facts[rank].passes
    if passes[a].epoch == passes[b].epoch:
        epoch = passes[a].epoch
        cause = f"set_epoch was not called between them, or with the same number: the epoch was {epoch} both times"
    else:
        cause = f"the sampler's order does not depend on its epoch ({passes[a].epoch}, then {passes[b].epoch})"
    found = f"passes {a + 1} and {b + 1} through the {facts[rank].kind} to have the same order"
    return (_finding(tuple(same), found, "Call loader.sampler.set_epoch(epoch) at the start of every epoch.", cause),)


NO_CHANCE = 10
"""Samples whose order does not come twice by chance: ten have 3.6 million orders."""


def _repetition(passes: Sequence[SamplerPass]) -> tuple[int, int] | None:
    """The first two passes with one order, where that is no chance.

    A second look at an epoch (to evaluate, say) is no fault as long as there is another epoch.
    """
    earlier: dict[str, list[int]] = {}
    never_set = len({one.epoch for one in passes}) == 1
    for number, one in enumerate(passes):
        for before in earlier.get(one.order, ()):
            another_epoch = passes[before].epoch != one.epoch
            if (another_epoch and one.length >= NO_CHANCE) or (never_set and one.length > 1):
                return before, number
        earlier.setdefault(one.order, []).append(number)
    return None


def _finding(ranks: tuple[int, ...], found: str, advice: str, cause: str = "") -> Finding:
    return Finding(
        check=CHECK,
        severity="error",
        ranks=ranks,
        subject="the sampler",
        expected="another order of the samples in every epoch",
        found=found,
        cause=cause,
        advice=advice,
    )
