"""Do the ranks hold the same state? Judge of initial-broadcast, gradient-sync and parameter-sync over a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ddpcheck import evidence as ev
from ddpcheck.checks import aligned
from ddpcheck.checks.aligned import Aligned, Replicas
from ddpcheck.checks.world import Judged, Rank, World
from ddpcheck.model import CallSite, Finding
from ddpcheck.wording import count, listing, ranks_text


def judge(world: World) -> Iterable[Judged]:
    """Compare the digests of all ranks: at construction, on entry to steps, and on exit."""
    yield _initial(world)
    gradients, parameters = 0, 0
    gradient_findings: list[Finding] = []
    parameter_findings: list[Finding] = []
    for optimizer in aligned.optimizers(world):
        replicated = replicated_places(optimizer)
        if not replicated:
            continue
        steps = list(optimizer.compared())
        parameters += len(steps)
        gradients += sum(1 for _, s in steps if all(one.gradients for one in s))
        found = _gradients(optimizer, steps, replicated)
        gradient_findings += found
        parameter_findings += _parameters(optimizer, steps, replicated, bool(found))
    yield Judged(check="gradient-sync", checked=gradients, findings=tuple(gradient_findings))
    yield Judged(check="parameter-sync", checked=parameters, findings=tuple(parameter_findings))


def replicated_places(optimizer: Aligned) -> list[int]:
    """The parameters that are replicas of each other: in a wrapper, or equal when the first step began.

    Ranks that step apart on purpose, and average their parameters now and then, have none.
    """
    if any(d.apart for d in optimizer.described):
        return []
    apart = set(aligned.differing([d.values for d in optimizer.described]))
    return [
        place
        for place, parameter in enumerate(optimizer.described[0].parameters)
        if not parameter.ignored
        and len({d.parameters[place].kind for d in optimizer.described}) == 1
        and (parameter.wrapper is not None or place not in apart)
    ]


# --- initial-broadcast


def _initial(world: World) -> Judged:
    checked = 0
    findings: list[Finding] = []
    for replicas in aligned.wrappers(world):
        checked += 1
        finding = _constructed(replicas)
        if finding is not None:
            findings.append(finding)
    for optimizer in aligned.optimizers(world):
        places = [
            p for p, one in enumerate(optimizer.described[0].parameters) if one.wrapper is not None and not one.ignored
        ]
        checked += bool(places) and optimizer.first
        finding = _entered(optimizer, places) if optimizer.first else None
        if finding is not None and not findings:
            findings.append(finding)
    return Judged(check="initial-broadcast", checked=checked, findings=tuple(findings))


def _constructed(replicas: Replicas) -> Finding | None:
    wrapped, ranks = replicas.wrapped, [rank.rank for rank in replicas.ranks]
    names: list[str] = []
    odd: set[int] = set()
    for part in ("parameters", "buffers"):
        digests = [getattr(w, part).digests for w in wrapped]
        left_out = {*wrapped[0].ignored, *(wrapped[0].local_buffers if part == "buffers" else ())}
        places = [p for p in aligned.differing(digests) if getattr(wrapped[0], part).names[p] not in left_out]
        names += [getattr(wrapped[0], part).names[p] for p in places]
        if places:
            odd.update(aligned.odd_ranks(digests, places, ranks))
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
    apart = [p for p in aligned.differing(digests) if p in set(places)]
    if not apart:
        return None
    names = [optimizer.described[0].parameters[p].name for p in apart]
    odd = aligned.odd_ranks(digests, apart, [r.rank for r in optimizer.ranks])
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
        links=(f"optimizer {optimizer.number}", *wrapper_links(optimizer)),
    )


def _first_step(optimizer: Aligned) -> CallSite | None:
    for rank, steps in zip(optimizer.ranks, optimizer.steps, strict=True):
        if steps:
            return rank.where(steps[min(steps)].site)
    return None


def wrapper_links(optimizer: Aligned) -> tuple[str, ...]:
    """The wrappers whose parameters an optimizer updates, as links."""
    return tuple(sorted({f"wrapper {p.wrapper}" for p in optimizer.described[0].parameters if p.wrapper is not None}))


# --- gradient-sync


Compared = Sequence[tuple[int, list[ev.Step]]]


def _gradients(optimizer: Aligned, steps: Compared, replicated: Sequence[int]) -> list[Finding]:
    wanted = set(replicated)
    broken = [
        (number, step, places)
        for number, step in steps
        if (places := [p for p in aligned.differing([s.gradients for s in step]) if p in wanted])
    ]
    if not broken:
        return []
    number, step, places = broken[0]
    parameters = optimizer.described[0].parameters
    names = [parameters[p].name for p in places]
    digests = [s.gradients for s in step]
    ranks = optimizer.ranks
    odd = aligned.odd_ranks(digests, places, [r.rank for r in ranks])
    absent = [p for p in places if any(aligned.at(d, p) == ev.ABSENT for d in digests)]
    moved = _moved(optimizer, step)
    cause, advice = _why(ranks, step, places, bool(absent), moved is not None)
    shown = f"{len(names)} of {count(len(wanted), 'gradient')} to differ on entry to step {number}: {listing(names)}"
    if absent:
        missing = [r.rank for r, d in zip(ranks, digests, strict=True) if aligned.at(d, absent[0]) == ev.ABSENT]
        shown += f"; {parameters[absent[0]].name} has no gradient at all on {ranks_text(missing)}"
    return [
        Finding(
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
            links=(f"optimizer {optimizer.number}", *wrapper_links(optimizer)),
            proof=tuple(
                (rank.rank, site)
                for rank, s in zip(ranks, step, strict=True)
                if (site := rank.where(s.site)) is not None
            ),
        )
    ]


def _odd_site(ranks: Sequence[Rank], odd: Sequence[int], step: Sequence[ev.Step]) -> CallSite | None:
    for rank, s in zip(ranks, step, strict=True):
        if rank.rank in odd:
            return rank.where(s.site)
    return ranks[0].where(step[0].site)


def _moved(optimizer: Aligned, step: Sequence[ev.Step]) -> CallSite | None:
    """The line that converted a wrapped module: its gradients have new accumulators, which DDP does not know."""
    mine = {p.wrapper for p in optimizer.described[0].parameters}
    for rank, s in zip(optimizer.ranks, step, strict=True):
        for moved in rank.of(ev.Moved):
            if moved.wrapper in mine and moved.n < s.n:
                return rank.where(moved.site)
    return None


def _why(
    ranks: Sequence[Rank], step: Sequence[ev.Step], places: Sequence[int], absent: bool, moved: bool
) -> tuple[str, str]:
    if moved:
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
    usages = [{u.wrapper: u for u in s.usage} for s in step]
    after = [u.after for usage in usages for u in usage.values()]
    if after and all(after) and all(u.armed for usage in usages for u in usage.values()):
        same = all(len({usage[w].after for usage in usages if w in usage}) == 1 for w in usages[0])
        if same and len({s.scale for s in step}) > 1:
            scales = [f"{s.scale:g}" if s.scale else "none" for s in step]
            shown = ", ".join(f"{scale} on rank {r.rank}" for r, scale in zip(ranks, scales, strict=True))
            return (
                f"they were equal when backward() ended, and then divided by gradient scales that are not: {shown}",
                "Give every rank's GradScaler the same initial scale, load its state on all of them, and let them "
                "update alike.",
            )
        if same:
            return (
                "they were equal when backward() ended: what came between it and the step treated them differently "
                "(clipping, scaling or zeroing on one rank alone)",
                "Treat gradients alike on every rank between backward() and step().",
            )
    if absent:
        return (
            "a rank has skipped its backward(), or a branch that depends on the rank or its data",
            "Run the same forward and backward on every rank, or train such a model with find_unused_parameters=True.",
        )
    return (
        "the reduction did not take place for them",
        "Compute the loss from the output of the wrapper itself; leave no_sync() before the last forward of a step.",
    )


# --- parameter-sync


def _parameters(optimizer: Aligned, steps: Compared, replicated: Sequence[int], by_gradients: bool) -> list[Finding]:
    wanted = set(replicated)
    broken = [
        (number, step, places)
        for number, step in steps
        if (places := [p for p in aligned.differing([s.parameters for s in step]) if p in wanted])
    ]
    if not broken:
        return []
    number, step, places = broken[0]
    names = [optimizer.described[0].parameters[p].name for p in places]
    digests = [s.parameters for s in step]
    odd = aligned.odd_ranks(digests, places, [r.rank for r in optimizer.ranks])
    cause = "their gradients differed" if by_gradients else _without_gradients(optimizer, number, step)
    return [
        Finding(
            check="parameter-sync",
            severity="error",
            ranks=odd,
            subject=names[0],
            step=number,
            expected="all ranks to hold the same parameters after the optimizer's step",
            found=f"{len(names)} of {count(len(wanted), 'parameter')} to differ after step {number}: {listing(names)}",
            cause=cause,
            advice=(
                "Find what changes parameters on one rank alone: DDP averages gradients, and never repairs parameters."
            ),
            where=_odd_site(optimizer.ranks, odd, step),
            count=len(broken),
            links=(f"optimizer {optimizer.number}", *wrapper_links(optimizer)),
        )
    ]


def _without_gradients(optimizer: Aligned, number: int, step: Sequence[ev.Step]) -> str:
    if len({tuple(s.rates) for s in step}) > 1:
        return "their learning rates differ"
    if len({s.state for s in step if s.state}) > 1:
        return "the optimizers' states differ"
    if aligned.differing([d.values for d in optimizer.described]):
        return "they differed before the first step"
    return "they were changed on one rank alone, outside of the optimizer"
