"""Why parameters differ between ranks after a step."""

from __future__ import annotations

from collections.abc import Collection

from ddpcheck.judging import step_alignment
from ddpcheck.judging.differing_steps import Broken, Compared, states
from ddpcheck.judging.differing_steps import broken as different
from ddpcheck.judging.step_alignment import Aligned

GRADIENTS = "their gradients differed"
RATES = "their learning rates differ"
STATES = "the optimizers' states differ"
NOT_TAKEN = "a rank does not take over what the owner of a parameter hands to all"
"""Of parameters that an optimizer has dealt out to the ranks: each rank's gradients are its own there."""


def why(optimizer: Aligned, steps: Compared, broken: Broken, unseen: bool, handed_out: Collection[int] = ()) -> str:
    """What has made parameters differ; empty where that may have happened in steps that nobody has looked at."""
    number, step, places = broken
    if set(places) <= set(handed_out):
        return NOT_TAKEN
    until = [(n, s) for n, s in steps if n <= number]
    if different(until, places, lambda s: s.gradients):
        return GRADIENTS
    if len({tuple(s.rates) for s in step}) > 1:
        return RATES
    if not unseen and any(set(step_alignment.differing(each)).intersection(places) for each in states(step).values()):
        return STATES
    if set(step_alignment.differing([d.values for d in optimizer.described])).intersection(places):
        return "they differed before the first step"
    return "" if unseen else "they were changed on one rank alone, outside of the optimizer"
