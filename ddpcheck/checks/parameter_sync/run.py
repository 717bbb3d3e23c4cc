"""Do all ranks hold the same parameters after every optimizer step, and wherever they evaluate them?"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ddpcheck.checks.parameter_sync import (
    averaged,
    causes,
    evaluated_copies,
    left_over,
    never_averaged,
    not_taken,
    sent_by_owners,
)
from ddpcheck.judging import step_alignment
from ddpcheck.judging.compared_windows import compared_windows
from ddpcheck.judging.copies import Copies, copies
from ddpcheck.judging.differing_steps import Broken, Compared, odd_site, parts, wrapper_links
from ddpcheck.judging.handed_out import handed_out
from ddpcheck.judging.replicated_parameters import why_none
from ddpcheck.judging.step_alignment import Aligned
from ddpcheck.judging.world import Judged, World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing

_REPAIRS = "Find what changes parameters on one rank alone: to reduce gradients never repairs parameters."
_FIND = "Find what one rank alone does in these steps, to parameters or to gradients after backward()."
_NOTHING = "ddpcheck saw no step change a parameter that several ranks hold, and leave it finite"
_ADVICE = {causes.NOT_TAKEN: left_over.COPY_BACK}


def judge(world: World) -> Judged:
    """Compare the digests of all ranks on exit from steps, and of the models that several ranks evaluate."""
    others = 0
    windows: step_alignment.Windows = set()
    findings: list[Finding] = []
    because = why_none(world, step_alignment.optimizers(world))
    for held in copies(world):
        optimizer, places = held.optimizer, held.parameters
        steps = list(optimizer.compared())
        moved = _moved(optimizer, steps).intersection(places)
        windows |= compared_windows(optimizer, steps, moved, lambda step: step.parameters)
        because = _NOTHING if steps and places else because
        handed = handed_out(world, optimizer).difference(held.gradients)
        for broken, wanted in parts(optimizer, steps, places, lambda step: step.parameters):
            findings.append(_finding(held, steps, broken, wanted, handed))
        if (finding := left_over.judge(held, steps, handed)) is not None:
            findings.append(finding)
    for times, found in (
        evaluated_copies.judge(world),
        averaged.judge(world),
        never_averaged.judge(world),
        sent_by_owners.judge(world),
        not_taken.judge(world),
    ):
        others += times
        findings += found
    checked, made = step_alignment.coverage(world, windows, others)
    return Judged(checked=checked, of=made, findings=tuple(findings), skipped_because=because)


def _moved(optimizer: Aligned, steps: Compared) -> set[int]:
    """The places that steps were seen to change: what stays as it began is equal without any step's doing."""
    ended = [step for _, step in steps if step[0].whole]
    pairs = zip(optimizer.described * 2, [*ended[0], *ended[-1]], strict=True) if ended else ()
    return {place for one, step in pairs for place in step_alignment.differing([one.values, step.parameters])}


def _finding(held: Copies, steps: Compared, broken: Sequence[Broken], wanted: int, handed: Collection[int]) -> Finding:
    optimizer = held.optimizer
    number, step, places = broken[0]
    names = [optimizer.described[0].parameters[p].name for p in places]
    odd = step_alignment.odd_ranks([s.parameters for s in step], places, [r.rank for r in optimizer.ranks])
    unseen = optimizer.blind_before(number)
    cause = causes.why(optimizer, steps, broken[0], bool(unseen), handed)
    shown = f"{len(names)} of {count(wanted, 'parameter')} to differ after step {number}: {listing(names)}"
    shown += f"; {unseen}" if not cause else ""
    links = (f"rates of optimizer {optimizer.number}",) if cause == causes.RATES else wrapper_links(optimizer, places)
    return Finding(
        rule="different-parameters",
        severity=held.severity if cause in (causes.GRADIENTS, causes.STATES, "") else "error",
        ranks=odd,
        subject=names[0],
        step=number,
        expected=f"{held.where} to hold the same parameters after the optimizer's step",
        found=shown,
        cause=cause,
        advice=_ADVICE.get(cause, _REPAIRS) if cause else _FIND,
        where=odd_site(optimizer.ranks, odd, step),
        count=len(broken),
        links=(*links, *held.links, f"optimizer {optimizer.number}")
        if cause in (causes.GRADIENTS, causes.STATES) or not links
        else (*links, *held.links),
    )
