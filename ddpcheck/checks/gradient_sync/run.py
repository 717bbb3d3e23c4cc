"""Do all ranks hold the same gradients on entry to every optimizer step?"""

from __future__ import annotations

from collections.abc import Sequence

from ddpcheck import evidence as ev
from ddpcheck.checks.gradient_sync import causes, norms_of_parts, program_reductions
from ddpcheck.judging import step_alignment
from ddpcheck.judging.compared_windows import compared_windows
from ddpcheck.judging.copies import Copies, copies
from ddpcheck.judging.differing_steps import Broken, odd_site, parts, wrapper_links
from ddpcheck.judging.replicated_parameters import why_none
from ddpcheck.judging.world import Judged, World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing, ranks_text

_NOTHING = "ddpcheck saw no step on which all ranks have gradients to compare: finite ones, other than zeros"


def judge(world: World) -> Judged:
    """Compare the digests of all ranks on entry to steps, and look at whether what the program reduces reaches all."""
    others, findings = program_reductions.judge(world)
    windows: step_alignment.Windows = set()
    because = why_none(world, step_alignment.optimizers(world))
    own: list[Finding] = []
    for held in copies(world):
        optimizer, places = held.optimizer, held.gradients
        steps = list(optimizer.compared())
        windows |= compared_windows(optimizer, steps, places, lambda step: step.gradients)
        because = _NOTHING if steps and places else because
        for broken, wanted in parts(optimizer, steps, places, lambda step: step.gradients):
            own.append(_finding(held, broken, wanted))
    own += norms_of_parts.judge(world)
    checked, made = step_alignment.coverage(world, windows, others)
    return Judged(checked=checked, of=made, findings=(*own, *findings), skipped_because=because)


def _finding(held: Copies, broken: Sequence[Broken], wanted: int) -> Finding:
    optimizer = held.optimizer
    number, step, places = broken[0]
    parameters = optimizer.described[0].parameters
    names = [parameters[p].name for p in places]
    digests = [s.gradients for s in step]
    ranks = optimizer.ranks
    odd = step_alignment.odd_ranks(digests, places, [r.rank for r in ranks])
    absent = causes.absent(broken[0])
    moved = causes.converted_at(optimizer, broken[0])
    cause, advice = causes.why_declared(held, broken[0]) if held.along else causes.why(optimizer, broken[0])
    shown = f"{len(names)} of {count(wanted, 'gradient')} to differ on entry to step {number}: {listing(names)}"
    if absent:
        missing = [r.rank for r, d in zip(ranks, digests, strict=True) if step_alignment.at(d, absent[0]) == ev.ABSENT]
        shown += f"; {parameters[absent[0]].name} has no gradient at all on {ranks_text(missing)}"
    # What treats all gradients alike, such as a clip by their norm, carries a difference on to other wrappers' too.
    shared = () if causes.was_not_reduced(optimizer, broken[0]) else (f"optimizer {optimizer.number}",)
    return Finding(
        rule="different-gradients",
        severity="error" if absent else held.severity,
        ranks=odd,
        subject=names[0],
        step=number,
        expected=f"{held.where} to hold the same gradients on entry to the optimizer's step",
        found=shown,
        cause=cause,
        advice=advice,
        where=moved or odd_site(ranks, odd, step),
        count=len(broken),
        links=(*shared, *wrapper_links(optimizer, places), *held.links),
        proof=tuple(line for rank, s in zip(ranks, step, strict=True) for line in rank.proof(s.site)),
    )
