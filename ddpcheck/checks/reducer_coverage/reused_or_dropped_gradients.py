"""Is each reduction stepped on once? Gradients that are stepped on again, or thrown away. Part of reducer-coverage."""

from __future__ import annotations

from collections.abc import Callable

from ddpcheck import evidence as ev
from ddpcheck.judging.step_alignment import Aligned
from ddpcheck.vocabulary.model import Finding

AGAIN, NOT_AT_ALL = 0.8, 0.9
"""The part of the steps of which something has to be true to be the way in which a program steps."""


def judge(optimizer: Aligned) -> list[Finding]:
    """What is wrong with all steps of an optimizer on all ranks: once in a while, there may be a reason for it."""
    told = [steps[max(steps)].spent for steps in optimizer.steps if steps]
    if len(told) < len(optimizer.ranks) or not any(p.wrapper is not None for p in optimizer.described[0].parameters):
        return []
    spent = [one for one in told if one is not None]
    if len(spent) < len(told):
        return []
    if all(one.followed >= 2 and one.again >= AGAIN * one.followed and not one.other for one in spent):
        return [_again(optimizer, spent[0])]
    if all(one.reduced >= 2 and one.emptied >= NOT_AT_ALL * one.reduced for one in spent) and not _learns(optimizer):
        return [_emptied(optimizer, spent[0])]
    return []


def _learns(optimizer: Aligned) -> bool:
    """Whether the gradients may have been taken elsewhere, to be stepped on there: as an optimizer of the user's may.

    A hook may bring them back for a step, too: then the parameters are seen to move.
    """
    moved = any(
        len({s.parameters for s in steps.values() if s.whole and s.parameters}) > 1 for steps in optimizer.steps
    )
    return moved or not all(one.torchs for one in optimizer.described)


def _again(optimizer: Aligned, spent: ev.Spent) -> Finding:
    return _finding(
        optimizer,
        lambda step: not step.backwards,
        rule="repeated-step",
        expected="one optimizer step for each reduction of gradients",
        found=f"{spent.again} of the {spent.followed} steps looked at to be made once more, with no backward() between "
        "and on the same gradients (but for a factor, as of a clip)",
        cause="step() is called twice in a turn of the loop: scaler.step(optimizer) calls optimizer.step(), too",
        advice="Call scaler.step(optimizer), or optimizer.step() without a scaler, once after each backward(); clip "
        "before it, and after scaler.unscale_(optimizer).",
        count=spent.again,
    )


def _emptied(optimizer: Aligned, spent: ev.Spent) -> Finding:
    return _finding(
        optimizer,
        lambda step: bool(step.backwards),
        rule="gradients-zeroed-before-step",
        expected="the gradients that were reduced to be there when the optimizer steps",
        found=f"none of them at {spent.emptied} of the {spent.reduced} steps looked at: the model does not learn from "
        "them",
        cause="zero_grad() is called between backward() and step()",
        advice="Call zero_grad() before backward(), or after step().",
        count=spent.emptied,
    )


def _finding(
    optimizer: Aligned,
    shows: Callable[[ev.Step], bool],
    rule: str,
    expected: str,
    found: str,
    cause: str,
    advice: str,
    count: int,
) -> Finding:
    """``shows`` tells a step at which it can be seen."""
    rank, steps = optimizer.ranks[0], [step for _, step in sorted(optimizer.steps[0].items())]
    step = next((one for one in steps if shows(one)), steps[0])
    where = rank.where(step.site)
    others = dict.fromkeys(rank.where(site) for site in (steps[0].site, step.backward_site))
    return Finding(
        rule=rule,
        ranks=tuple(rank.rank for rank in optimizer.ranks),
        subject=f"the {optimizer.kind}",
        step=step.number,
        expected=expected,
        found=found,
        cause=cause,
        advice=advice,
        where=where,
        count=count,
        proof=tuple((rank.rank, other) for other in others if other is not None and other != where),
        links=(f"steps of optimizer {optimizer.number}",),
    )
