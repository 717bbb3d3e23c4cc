"""Do all ranks hold rank 0's state from the wrap to the first step?"""

from __future__ import annotations

from collections.abc import Sequence

from ddpcheck import evidence as ev
from ddpcheck.checks.initial_broadcast import wrapper_group
from ddpcheck.judging import step_alignment
from ddpcheck.judging.copies import Copies, copies
from ddpcheck.judging.differing_steps import wrapper_links
from ddpcheck.judging.first_forwards import named
from ddpcheck.judging.replicated_parameters import declared_apart
from ddpcheck.judging.step_alignment import Aligned, Replicas
from ddpcheck.judging.world import Judged, World
from ddpcheck.judging.zero_digests import covers
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import count, listing

_NOTHING = "ddpcheck saw no parameters or buffers, other than zeros, that a wrapper or a mesh makes copies of"


def judge(world: World) -> Judged:
    """Compare the digests of all ranks at construction, and on entry to the first step."""
    checked = 0
    findings: list[Finding] = []
    for replicas in step_alignment.wrappers(world):
        checked += _is_seen(replicas)
        both = (_constructed(replicas), wrapper_group.judge(world, replicas))
        findings += [finding for finding in both if finding is not None]
    told = {link for finding in findings for link in finding.links}
    for held in copies(world):
        optimizer = held.optimizer
        described = optimizer.described[0].parameters
        places = [p for p in held.parameters if held.along or described[p].wrapper is not None]
        checked += optimizer.first and covers(described, [one.values for one in optimizer.described], places)
        news = [p for p in places if f"wrapper {described[p].wrapper}" not in told]
        finding = _entered(held, news) if optimizer.first else None
        if finding is not None:
            findings.append(finding)
    unseen = step_alignment.why_unseen(step_alignment.optimizers(world)) or declared_apart(world)
    return Judged(checked=checked, findings=tuple(findings), skipped_because=unseen or _NOTHING)


def _is_seen(replicas: Replicas) -> bool:
    """Whether anything that a wrapper's module holds was compared."""
    first = replicas.wrapped[0]
    tensors = named(replicas.ranks[0], first.module, [*first.parameters.names, *first.buffers.names])
    return covers(tensors, [w.parameters.digests + w.buffers.digests for w in replicas.wrapped])


def _constructed(replicas: Replicas) -> Finding | None:
    wrapped, ranks = replicas.wrapped, [rank.rank for rank in replicas.ranks]
    names: list[str] = []
    odd: set[int] = set()
    for part in ("parameters", "buffers"):
        digests = [getattr(w, part).digests for w in wrapped]
        left_out = {*wrapped[0].ignored, *(wrapped[0].local_buffers if part == "buffers" else ())}
        places = [p for p in step_alignment.differing(digests) if getattr(wrapped[0], part).names[p] not in left_out]
        names += [getattr(wrapped[0], part).names[p] for p in places]
        if places:
            odd.update(step_alignment.odd_ranks(digests, places, ranks))
    if not names:
        return None
    return Finding(
        rule="different-state-after-wrap",
        ranks=tuple(sorted(odd)),
        subject=names[0],
        expected="all ranks to hold rank 0's parameters and buffers when DDP's constructor returns",
        found=f"{count(len(names), 'tensor')} to differ: {listing(names)}",
        advice="Let every rank build the same model, and ignore no parameter that must be the same.",
        where=replicas.ranks[0].where(wrapped[0].site),
        links=(f"wrapper {replicas.number}",),
    )


def _entered(held: Copies, places: Sequence[int]) -> Finding | None:
    """Parameters that differ on entry to the first step: changed on some ranks after a wrap, or never made the same."""
    optimizer = held.optimizer
    digests = [d.values for d in optimizer.described]
    apart = [p for p in step_alignment.differing(digests) if p in set(places)]
    if not apart:
        return None
    names = [optimizer.described[0].parameters[p].name for p in apart]
    odd = step_alignment.odd_ranks(digests, apart, [r.rank for r in optimizer.ranks])
    first = optimizer.described[0]
    inner = first.inner
    where = _first_step(optimizer)
    changed = "changed on some ranks between the wrap and the first step: a load, a reset, or an initialisation there"
    if first.optimizer == ev.NOBODYS:  # at a line of a test: there may have been steps that nobody has seen
        changed = "changed on some ranks after the wrap, outside of any optimizer step that was seen"
    if held.along:
        changed = f"nothing has made them the same {held.along}: no wrapper broadcasts what is sharded"
    return Finding(
        rule="different-initial-state",
        ranks=odd,
        subject=names[0],
        step=0,
        expected=f"{held.where} to hold the same parameters until the first optimizer step",
        found=f"{count(len(names), 'parameter')} to differ on entry to the first step: {listing(names)}",
        cause="" if inner else changed,
        advice=f"Draw or load them alike {held.along}, or broadcast them along it before the first step."
        if held.along
        else "Load and initialise before the model is wrapped, or do the same on every rank.",
        where=where,
        links=(*wrapper_links(optimizer, apart), *held.links),
    )


def _first_step(optimizer: Aligned) -> CallSite | None:
    for rank, steps in zip(optimizer.ranks, optimizer.steps, strict=True):
        if steps:
            return rank.where(steps[min(steps)].site)
    return None
