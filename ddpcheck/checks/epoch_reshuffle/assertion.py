"""Does a shuffled sampler give another order in another epoch? Judge of epoch-reshuffle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ddpcheck.checks.epoch_reshuffle import causes
from ddpcheck.evidence.epochs import EpochFacts
from ddpcheck.vocabulary.model import Finding


def judge(said: Sequence[Any], rounds: Sequence[Sequence[Any]]) -> tuple[Finding, ...]:
    """Compare the orders of a rank's passes with each other."""
    facts = [msgspec.convert(one, EpochFacts) for one in said]
    everyone = tuple(range(len(facts)))
    if not all(f.followed or f.passes for f in facts):
        found = f"a {facts[0].kind} with an order of its own, which is not recorded: nothing was checked"
        advice = "Hold list(sampler) of two epochs against each other in the test instead."
        return (_finding(everyone, found, advice, rule="nothing-to-compare"),)
    steady = [f.kind for f in facts if not f.shuffle]
    if steady:
        found = f"a {steady[0]} with shuffle=False: nothing was checked"
        advice = "Shuffle the training data, or drop this assertion for data that is not."
        return (_finding(everyone, found, advice, rule="nothing-to-compare"),)
    if min(len(f.passes) for f in facts) < 2:
        shown = ", ".join(f"{len(f.passes)} on rank {r}" for r, f in enumerate(facts))
        found = f"fewer than two passes through the sampler ({shown}): nothing was checked"
        advice = "Train two epochs or more before this assertion."
        return (_finding(everyone, found, advice, rule="nothing-to-compare"),)
    same = {r: pair for r, f in enumerate(facts) if (pair := causes.repetition(f.passes)) is not None}
    if not same:
        return ()
    rank, (a, b) = next(iter(same.items()))
    passes, kind = facts[rank].passes, facts[rank].kind
    cause, advice = causes.why(passes[a], passes[b])
    found = f"passes {a + 1} and {b + 1} through the {kind} in the same order"
    return (_finding(tuple(same), found, advice, cause, rule="same-order-each-epoch"),)


def _finding(ranks: tuple[int, ...], found: str, advice: str, cause: str = "", *, rule: str) -> Finding:
    return Finding(
        rule=rule,
        ranks=ranks,
        subject="the sampler",
        expected="another order of the samples in every epoch",
        found=found,
        cause=cause,
        advice=advice,
    )
