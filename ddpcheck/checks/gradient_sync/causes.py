"""Why gradients differ between ranks, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence

from ddpcheck import evidence as ev
from ddpcheck.checks.gradient_sync import clipping
from ddpcheck.judging import step_alignment
from ddpcheck.judging.copies import Copies
from ddpcheck.judging.differing_steps import Broken
from ddpcheck.judging.step_alignment import Aligned
from ddpcheck.judging.world import Rank
from ddpcheck.vocabulary.model import CallSite
from ddpcheck.vocabulary.wording import ranks_text

CLIP_ALIKE = "clip them on all ranks or on none, by the same bound"


def why(optimizer: Aligned, broken: Broken) -> tuple[str, str]:
    """The cause of gradients that differ, and what to do."""
    _, step, places = broken
    ranks = optimizer.ranks
    ended = _ended_with(optimizer, broken)
    known = all(optimizer.described[0].parameters[p].reduced for p in places)
    armed = all(u.armed for usages in _usages(optimizer, broken) for u in usages)
    if ended and known and armed and len(set(ended)) == 1:
        if len(factors := {s.scale for s in step}) > 1 and ev.UNREAD not in factors:
            scales = [f"{s.scale:g}" if s.scale else "none" for s in step]
            shown = ", ".join(f"{scale} on rank {r.rank}" for r, scale in zip(ranks, scales, strict=True))
            return (
                f"they were equal when backward() ended, and then divided by gradient scales that are not: {shown}",
                "Give every rank's GradScaler the same initial scale, load its state on all of them, and let them "
                "update alike.",
            )
        return (
            "they were equal when backward() ended: what came between it and the step treated them differently "
            "(clipping, scaling or zeroing on one rank alone)",
            f"Treat gradients alike on every rank between backward() and step(){_clipping(ranks, step)}.",
        )
    if converted_at(optimizer, broken) is not None:
        return (
            "the module was converted (to(), cpu(), double() …) after it had been wrapped: DDP's hooks stay on what it "
            "had before",
            "Convert the module first, and wrap it then.",
        )
    times = _backwards(optimizer, broken)
    least, most = min(times), max(times)
    ahead = [rank.rank for rank, own in zip(ranks, times, strict=True) if own == most]
    if 0 < least < most:
        return (
            f"{ranks_text(ahead)} made {most} backward() calls for this step, and the others {least}: a step was left "
            "out there, so that each rank's gradients are of another batch",
            "Let all ranks step, or none: agree on it by an all-reduce of the condition.",
        )
    wrapped = any(optimizer.described[0].parameters[p].wrapper is not None for p in places)
    if absent(broken):
        unused = ", or train such a model with find_unused_parameters=True" if wrapped else ""
        return (
            "a rank has skipped its backward(), or a branch that depends on the rank or its data",
            f"Run the same forward and backward on every rank{unused}.",
        )
    if not wrapped:
        return (
            "the program reduces them itself, and what came between its collective and the step treated them "
            "differently (clipping, scaling or zeroing on one rank alone)",
            f"Treat gradients alike on every rank between their reduction and step(){_clipping(ranks, step)}.",
        )
    if known and armed and not ended:  # nobody saw whether they were equal when backward() ended
        return (
            "",
            "Compute the loss from the output of the wrapper itself, leave no_sync() before the last forward of a "
            "step, and treat gradients alike on every rank between backward() and step().",
        )
    return (
        "the reduction did not take place for them",
        "Compute the loss from the output of the wrapper itself; leave no_sync() before the last forward of a step.",
    )


ROUNDED = "; or a kernel has rounded otherwise on one of the devices, which adds up from step to step"


def why_declared(held: Copies, broken: Broken) -> tuple[str, str]:
    """The same of gradients whose parameters are declared copies along a dimension of a mesh."""
    _, step, _ = broken
    if absent(broken):
        return (
            "a rank has skipped its backward(), or a branch that depends on the rank or its data",
            "Run the same forward and backward on every rank that holds copies.",
        )
    ranks = held.optimizer.ranks
    if _clipping(ranks, step):
        return (
            "",
            f"Sum them up {held.along} before the step, and treat them alike afterwards{_clipping(ranks, step)}.",
        )
    return (
        f"each rank has computed them from its own part of the activations, and nothing sums them up {held.along}; or "
        "these ranks have read different samples" + (ROUNDED if held.computed_apart else ""),
        "Say where a local tensor is taken that its gradient is part of a sum (to_local(grad_placements=[Partial()])), "
        f"or all-reduce these gradients {held.along} before the step.",
    )


def _clipping(ranks: Sequence[Rank], step: Sequence[ev.Step]) -> str:
    """Where the function of some rank's step clips before that line: what to do about it, as the end of a sentence."""
    for rank, s in zip(ranks, step, strict=True):
        line = clipping.before(rank, s.site, s.backward_site)
        if line is not None:
            return f": {CLIP_ALIKE} ({line.file}:{line.line})"
    return ""


def _backwards(optimizer: Aligned, broken: Broken) -> list[int]:
    """Rank by rank, the backward() calls for this step; of a wrapper's, as far as they can be told from others."""
    usages = _usages(optimizer, broken)
    own = [max((u.backwards for u in one), default=0) for one in usages]
    return [s.backwards for s in broken[1]] if 0 in own else own


def absent(broken: Broken) -> list[int]:
    """The places of gradients that some rank does not have."""
    _, step, places = broken
    return [p for p in places if any(step_alignment.at(s.gradients, p) == ev.ABSENT for s in step)]


def _usages(optimizer: Aligned, broken: Broken) -> list[list[ev.Usage]]:
    """What became of the wrappers that hold these parameters, rank by rank."""
    _, step, places = broken
    mine = {optimizer.described[0].parameters[p].wrapper for p in places}
    return [[u for u in s.usage if u.wrapper in mine] for s in step]


def _ended_with(optimizer: Aligned, broken: Broken) -> list[tuple[bytes, ...]]:
    """The wrappers' gradients when backward() had ended, rank by rank; none where some rank did not look."""
    after = [tuple(u.after for u in usages) for usages in _usages(optimizer, broken)]
    return after if all(after) and all(all(one) for one in after) else []


def was_not_reduced(optimizer: Aligned, broken: Broken) -> bool:
    """Whether they were seen to differ when backward() had ended already."""
    return len(set(_ended_with(optimizer, broken))) > 1


def converted_at(optimizer: Aligned, broken: Broken) -> CallSite | None:
    """The line that converted a wrapped module: its gradients have new accumulators, which DDP does not know."""
    number, step, places = broken
    mine = {optimizer.described[0].parameters[p].wrapper for p in places}
    # What was reduced after it has its hooks, as after a `to()` that changes nothing.
    reduced = [s for n, s in optimizer.compared() if n < number and _are_equal(s, places)]
    for place, (rank, s) in enumerate(zip(optimizer.ranks, step, strict=True)):
        since = reduced[-1][place].n if reduced else -1
        for moved in rank.of(ev.Moved):
            if moved.wrapper in mine and since < moved.n < s.n:
                return rank.where(moved.site)
    return None


def _are_equal(step: Sequence[ev.Step], places: Sequence[int]) -> bool:
    """Whether all ranks have some of these gradients, and the same ones: where there are none, nothing was reduced."""
    each = [s.gradients for s in step]
    there = [p for p in places if all(step_alignment.at(one, p) not in (b"", ev.ABSENT, ev.UNSEEN) for one in each)]
    return bool(there) and not set(step_alignment.differing(each)).intersection(places)
