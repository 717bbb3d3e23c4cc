"""Do the ranks hold the same state? Judge of initial-broadcast, gradient-sync and parameter-sync over a run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from ddpcheck import evidence as ev
from ddpcheck.judging import step_alignment
from ddpcheck.judging.replicated_parameters import Grounds, grounds, why_none
from ddpcheck.judging.step_alignment import Aligned, Replicas
from ddpcheck.judging.world import Judged, Rank, World
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import count, listing, ranks_text


def judge(world: World) -> Iterable[Judged]:
    """Compare the digests of all ranks: at construction, on entry to steps, and on exit."""
    yield _initial(world)
    gradients, parameters = 0, 0
    gradient_findings: list[Finding] = []
    parameter_findings: list[Finding] = []
    optimizers = step_alignment.optimizers(world)
    for optimizer in optimizers:
        ground = grounds(world, optimizer)
        steps = list(optimizer.compared())
        parameters += sum(step_alignment.are_seen([one.parameters for one in s], ground.parameters) for _, s in steps)
        gradients += sum(
            all(one.gradients for one in s) and step_alignment.are_seen([one.gradients for one in s], ground.gradients)
            for _, s in steps
        )
        gradient_findings += _gradients(optimizer, steps, ground)
        parameter_findings += _parameters(optimizer, steps, ground.parameters)
    unseen = why_none(world, optimizers)
    yield Judged(check="gradient-sync", checked=gradients, findings=tuple(gradient_findings), skipped_because=unseen)
    yield Judged(check="parameter-sync", checked=parameters, findings=tuple(parameter_findings), skipped_because=unseen)


# --- initial-broadcast


def _initial(world: World) -> Judged:
    checked = 0
    findings: list[Finding] = []
    for replicas in step_alignment.wrappers(world):
        checked += _is_seen(replicas)
        finding = _constructed(replicas)
        if finding is not None:
            findings.append(finding)
    told = {link for finding in findings for link in finding.links}
    optimizers = step_alignment.optimizers(world)
    for optimizer in optimizers:
        parameters = grounds(world, optimizer).parameters
        places = [p for p in parameters if optimizer.described[0].parameters[p].wrapper is not None]
        checked += bool(places) and optimizer.first
        news = [p for p in places if f"wrapper {optimizer.described[0].parameters[p].wrapper}" not in told]
        finding = _entered(optimizer, news) if optimizer.first else None
        if finding is not None:
            findings.append(finding)
    unseen = step_alignment.why_unseen(optimizers)
    return Judged(check="initial-broadcast", checked=checked, findings=tuple(findings), skipped_because=unseen)


def _is_seen(replicas: Replicas) -> bool:
    """Whether the ranks have looked at anything of a wrapper's module, where it has anything."""
    digests = [w.parameters.digests + w.buffers.digests for w in replicas.wrapped]
    return not any(digests) or step_alignment.are_seen(digests)


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
        check="initial-broadcast",
        severity="error",
        ranks=tuple(sorted(odd)),
        subject=names[0],
        expected="all ranks to hold rank 0's parameters and buffers when DDP's constructor returns",
        found=f"{count(len(names), 'tensor')} to differ: {listing(names)}",
        advice="Let every rank build the same model, and ignore no parameter that must be the same.",
        where=replicas.ranks[0].where(wrapped[0].site),
        links=(f"wrapper {replicas.number}",),
    )


def _entered(optimizer: Aligned, places: Sequence[int]) -> Finding | None:
    """Parameters that were changed on some ranks between the wrap and the first step."""
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
    return Finding(
        check="initial-broadcast",
        severity="error",
        ranks=odd,
        subject=names[0],
        step=0,
        expected="all ranks to hold the same parameters until the first optimizer step",
        found=f"{count(len(names), 'parameter')} to differ on entry to the first step: {listing(names)}",
        cause="" if inner else changed,
        advice="Load and initialise before the model is wrapped, or do the same on every rank.",
        where=where,
        links=wrapper_links(optimizer, apart),
    )


def _first_step(optimizer: Aligned) -> CallSite | None:
    for rank, steps in zip(optimizer.ranks, optimizer.steps, strict=True):
        if steps:
            return rank.where(steps[min(steps)].site)
    return None


def wrapper_links(optimizer: Aligned, places: Iterable[int] | None = None) -> tuple[str, ...]:
    """The wrappers that hold some of the parameters that an optimizer updates, or all of them, as links."""
    parameters = optimizer.described[0].parameters
    chosen = parameters if places is None else [parameters[place] for place in places]
    return tuple(sorted({f"wrapper {p.wrapper}" for p in chosen if p.wrapper is not None}))


# --- gradient-sync


Compared = Sequence[tuple[int, list[ev.Step]]]
Broken = tuple[int, list[ev.Step], list[int]]
"""A step, what each rank has recorded of it, and the places that differ."""


def _broken(steps: Compared, wanted: Collection[int], part: Callable[[ev.Step], bytes]) -> list[Broken]:
    """The steps at which something differs at these places."""
    each = ((number, step, step_alignment.differing([part(s) for s in step])) for number, step in steps)
    return [(number, step, kept) for number, step, places in each if (kept := [p for p in places if p in wanted])]


def _gradients(optimizer: Aligned, steps: Compared, ground: Grounds) -> list[Finding]:
    """A finding for each wrapper, which may have a fault of its own, and for what the program reduces itself."""
    parts = optimizer.by_wrapper(ground.gradients).values()
    found = [(_broken(steps, places, lambda s: s.gradients), len(places)) for places in parts]
    return [_gradient_finding(optimizer, broken, wanted) for broken, wanted in found if broken]


def _gradient_finding(optimizer: Aligned, broken: Sequence[Broken], wanted: int) -> Finding:
    number, step, places = broken[0]
    parameters = optimizer.described[0].parameters
    names = [parameters[p].name for p in places]
    digests = [s.gradients for s in step]
    ranks = optimizer.ranks
    odd = step_alignment.odd_ranks(digests, places, [r.rank for r in ranks])
    absent = _absent(broken[0])
    moved = _moved(optimizer, broken[0])
    cause, advice = _why(optimizer, broken[0])
    shown = f"{len(names)} of {count(wanted, 'gradient')} to differ on entry to step {number}: {listing(names)}"
    if absent:
        missing = [r.rank for r, d in zip(ranks, digests, strict=True) if step_alignment.at(d, absent[0]) == ev.ABSENT]
        shown += f"; {parameters[absent[0]].name} has no gradient at all on {ranks_text(missing)}"
    # What treats all gradients alike, such as a clip by their norm, carries a difference on to other wrappers' too.
    shared = () if _unreduced(optimizer, broken[0]) else (f"optimizer {optimizer.number}",)
    return Finding(
        check="gradient-sync",
        severity="error",
        ranks=odd,
        subject=names[0],
        step=number,
        expected="all ranks to hold the same gradients on entry to the optimizer's step",
        found=shown,
        cause=cause,
        advice=advice,
        where=moved or _odd_site(ranks, odd, step),
        count=len(broken),
        links=(*shared, *wrapper_links(optimizer, places)),
        proof=tuple(
            (rank.rank, site) for rank, s in zip(ranks, step, strict=True) if (site := rank.where(s.site)) is not None
        ),
    )


def _absent(broken: Broken) -> list[int]:
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


def _unreduced(optimizer: Aligned, broken: Broken) -> bool:
    """Whether they were seen to differ when backward() had ended already."""
    return len(set(_ended_with(optimizer, broken))) > 1


def _odd_site(ranks: Sequence[Rank], odd: Sequence[int], step: Sequence[ev.Step]) -> CallSite | None:
    for rank, s in zip(ranks, step, strict=True):
        if rank.rank in odd:
            return rank.where(s.site)
    return ranks[0].where(step[0].site)


def _moved(optimizer: Aligned, broken: Broken) -> CallSite | None:
    """The line that converted a wrapped module: its gradients have new accumulators, which DDP does not know."""
    _, step, places = broken
    mine = {optimizer.described[0].parameters[p].wrapper for p in places}
    for rank, s in zip(optimizer.ranks, step, strict=True):
        for moved in rank.of(ev.Moved):
            if moved.wrapper in mine and moved.n < s.n:
                return rank.where(moved.site)
    return None


def _why(optimizer: Aligned, broken: Broken) -> tuple[str, str]:
    """The cause of gradients that differ, and what to do."""
    _, step, places = broken
    ranks = optimizer.ranks
    if _moved(optimizer, broken) is not None:
        return (
            "the module was converted (to(), cpu(), double() …) after it had been wrapped: DDP's hooks stay on what it "
            "had before",
            "Convert the module first, and wrap it then.",
        )
    least, most = min(s.backwards for s in step), max(s.backwards for s in step)
    ahead = [rank.rank for rank, s in zip(ranks, step, strict=True) if s.backwards == most]
    if 0 < least < most:
        return (
            f"{ranks_text(ahead)} made {most} backward() calls for this step, and the others {least}: a step was left "
            "out there, so that each rank's gradients are of another batch",
            "Let all ranks step, or none: agree on it by an all-reduce of the condition.",
        )
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
            "Treat gradients alike on every rank between backward() and step().",
        )
    wrapped = any(optimizer.described[0].parameters[p].wrapper is not None for p in places)
    if _absent(broken):
        unused = ", or train such a model with find_unused_parameters=True" if wrapped else ""
        return (
            "a rank has skipped its backward(), or a branch that depends on the rank or its data",
            f"Run the same forward and backward on every rank{unused}.",
        )
    if not wrapped:
        return (
            "the program reduces them itself, and what came between its collective and the step treated them "
            "differently (clipping, scaling or zeroing on one rank alone)",
            "Treat gradients alike on every rank between their reduction and step().",
        )
    return (
        "the reduction did not take place for them",
        "Compute the loss from the output of the wrapper itself; leave no_sync() before the last forward of a step.",
    )


# --- parameter-sync


def _parameters(optimizer: Aligned, steps: Compared, replicated: Sequence[int]) -> list[Finding]:
    parts = optimizer.by_wrapper(replicated).values()
    found = [(_broken(steps, places, lambda s: s.parameters), len(places)) for places in parts]
    return [_parameter_finding(optimizer, steps, broken, wanted) for broken, wanted in found if broken]


def _parameter_finding(optimizer: Aligned, steps: Compared, broken: Sequence[Broken], wanted: int) -> Finding:
    number, step, places = broken[0]
    names = [optimizer.described[0].parameters[p].name for p in places]
    odd = step_alignment.odd_ranks([s.parameters for s in step], places, [r.rank for r in optimizer.ranks])
    unseen = optimizer.blind_before(number)
    cause = _parted_by(optimizer, steps, broken[0], bool(unseen))
    shown = f"{len(names)} of {count(wanted, 'parameter')} to differ after step {number}: {listing(names)}"
    shown += f"; {unseen}" if not cause else ""
    links = (f"rates of optimizer {optimizer.number}",) if cause == RATES else wrapper_links(optimizer, places)
    return Finding(
        check="parameter-sync",
        severity="error",
        ranks=odd,
        subject=names[0],
        step=number,
        expected="all ranks to hold the same parameters after the optimizer's step",
        found=shown,
        cause=cause,
        advice="Find what changes parameters on one rank alone: to reduce gradients never repairs parameters."
        if cause
        else "Find what one rank alone does in these steps, to parameters or to gradients after backward().",
        where=_odd_site(optimizer.ranks, odd, step),
        count=len(broken),
        links=(*links, f"optimizer {optimizer.number}") if cause in (GRADIENTS, STATES) or not links else links,
    )


GRADIENTS = "their gradients differed"
RATES = "their learning rates differ"
STATES = "the optimizers' states differ"


def states(step: Sequence[ev.Step]) -> dict[str, list[bytes]]:
    """By key, the digests of the optimizer's state that every rank has told of, rank by rank."""
    keys = [key for key in step[0].state if all(key in s.state for s in step)]
    return {key: [s.state[key] for s in step] for key in keys}


def _parted_by(optimizer: Aligned, steps: Compared, broken: Broken, unseen: bool) -> str:
    """What has made parameters differ; empty where that may have happened in steps that nobody has looked at."""
    number, step, places = broken
    until = [(n, s) for n, s in steps if n <= number]
    if _broken(until, places, lambda s: s.gradients):
        return GRADIENTS
    if len({tuple(s.rates) for s in step}) > 1:
        return RATES
    if not unseen and any(set(step_alignment.differing(each)).intersection(places) for each in states(step).values()):
        return STATES
    if set(step_alignment.differing([d.values for d in optimizer.described])).intersection(places):
        return "they differed before the first step"
    return "" if unseen else "they were changed on one rank alone, outside of the optimizer"
