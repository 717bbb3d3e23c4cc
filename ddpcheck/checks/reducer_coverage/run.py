"""Is every parameter that is updated also reduced, through the wrapper, once a step? Judge of reducer-coverage."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ddpcheck import evidence as ev
from ddpcheck.checks.reducer_coverage import (
    left_behind,
    reduced_twice,
    round_the_wrapper,
)
from ddpcheck.checks.reducer_coverage.shares import ROWS
from ddpcheck.checks.share_rows import read_shares
from ddpcheck.facts import mixing
from ddpcheck.facts.passes import AVERAGING
from ddpcheck.judging import step_alignment
from ddpcheck.judging.replicated_parameters import grounds, why_none
from ddpcheck.judging.step_alignment import Aligned
from ddpcheck.judging.world import Judged, Rank, World
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import count, listing

_NOTHING = "ddpcheck saw no module in DistributedDataParallel, and no gradient that the program reduces at every step"

Steps = Sequence[tuple[int, list[ev.Step]]]

NOT_PREPARED = "reduction-not-prepared"
WITHOUT_FORWARD = "no-sync-without-forward"
NEVER_REDUCED = "copies-never-reduced"
"""The rule of what may as well be meant: an advisory, whose steps are neither right nor wrong."""
PER_MICRO_BATCH = "reduction-per-micro-batch"
"""The rule of what is right and slow: an advisory, which keeps no other rule from speaking."""


def judge(world: World) -> Judged:
    """Look at which parameters the reducers know, how each step was armed, and who has a share in it."""
    wrapped = any(rank.of(ev.Wrapped) for rank in world)
    windows: step_alignment.Windows = set()
    findings: list[Finding] = []
    advised: list[Finding] = []
    optimizers = step_alignment.optimizers(world)
    for optimizer in optimizers:
        ground = grounds(world, optimizer)
        if not wrapped and not ground.by_hand:
            continue
        steps = list(optimizer.common())
        windows |= {(optimizer.number, number) for number, _ in steps if ground.parameters}
        looked = [(number, step) for number, step in steps if all(s.gradients for s in step)]
        orphaned = _orphaned(optimizer, looked)
        findings += [orphaned] if orphaned is not None else []
        findings += reduced_twice.judge(world, optimizer)
        for wrapper, places in optimizer.by_wrapper().items():
            if wrapper is None:
                continue
            places -= {*ground.by_hand, *ground.moved}
            found = _unreduced(optimizer, looked, wrapper, places) or _unarmed(
                optimizer, looked, wrapper, places.intersection(ground.gradients)
            )
            if found:
                findings += found
            elif orphaned is None:
                wasted = _wasted(optimizer, steps, wrapper)
                (advised if wasted and wasted[0].rule == PER_MICRO_BATCH else findings).extend(wasted)
    findings += reduced_twice.of_declared(world)
    shares = read_shares(mixing.of(world), ROWS)
    findings += [one for one in shares.findings if one.rule != NOT_PREPARED or not findings]
    if not findings:
        advised += left_behind.judge(world)
    own = max((finding.count for finding in findings if finding.rule != NEVER_REDUCED), default=0)
    checked, made = step_alignment.coverage(world, windows | shares.windows, own)
    because = why_none(world, optimizers) if wrapped else _why_none(world)
    return Judged(checked=checked, of=made, findings=(*findings, *advised), skipped_because=because or _NOTHING)


def _why_none(world: World) -> str:
    """Why there was nothing to see, of a program that shards or splits models; empty of any other."""
    how = {one.how for _, one in world.of(ev.Parallelised)}
    if how & {*AVERAGING}:
        return "ddpcheck saw no reduction by FSDP before a step, over the ranks that it was given"
    return "ddpcheck saw layers or stages that are split, and no copies of them" if how else ""


def _with_gradient(optimizer: Aligned, looked: Steps) -> set[int]:
    """The places that have a gradient in some step on some rank."""
    places: set[int] = set()
    total = len(optimizer.described[0].parameters)
    for _, step in looked:
        for s in step:
            places.update(p for p in range(total) if step_alignment.at(s.gradients, p) != ev.ABSENT)
    return places


# --- which parameters


def _averaged_by_hand(looked: Steps, places: Sequence[int]) -> bool:
    """The ranks' gradients are the same, by way of collectives of the user's own."""
    wanted = set(places)
    return all(
        not wanted.intersection(step_alignment.differing([s.gradients for s in step]))
        and all(s.collectives for s in step)
        for _, step in looked
    )


def _unreduced(optimizer: Aligned, looked: Steps, wrapper: int, mine: Collection[int]) -> list[Finding]:
    """Parameters of a wrapped module that its reducer has never heard of: those that came late, and the others."""
    described = optimizer.described[0].parameters
    used = _with_gradient(optimizer, looked)
    unknown = [
        p
        for p in sorted(used.intersection(mine))
        if not (described[p].reduced or described[p].ignored or described[p].unseen)
    ]
    if not unknown or _averaged_by_hand(looked, unknown):
        return []
    parts = [[p for p in unknown if described[p].late is late] for late in (True, False)]
    return [_unknown(optimizer, wrapper, places) for places in parts if places]


def _unknown(optimizer: Aligned, wrapper: int, places: Sequence[int]) -> Finding:
    described = optimizer.described[0].parameters
    names = [described[p].name for p in places]
    replaced = next(
        (
            (rank, r)
            for rank in optimizer.ranks
            for r in rank.of(ev.Replaced)
            if r.name.split(".")[-1] == names[0].split(".")[-1]
        ),
        None,
    )
    if replaced is not None:
        where = replaced[0].where(replaced[1].site)
        cause = "the module got a new parameter after it had been wrapped; the reducer's hooks stay on what was there"
        advice = "Change the module first, and wrap it then (or wrap it anew)."
    elif described[places[0]].late:
        where = _wrapped_at(optimizer.ranks, wrapper)
        cause = "they came into the module after it had been wrapped; the reducer knows what was there then"
        advice = "Finish the module first, and wrap it then (or wrap it anew)."
    else:
        where = _wrapped_at(optimizer.ranks, wrapper)
        cause = "they did not require gradients when the module was wrapped, and do now"
        advice = "Wrap the module anew after unfreezing its layers, or freeze them after the wrap."
    return Finding(
        rule="unknown-to-reducer",
        ranks=tuple(r.rank for r in optimizer.ranks),
        subject=names[0],
        expected="DDP to reduce every parameter that the optimizer updates",
        found=f"{count(len(names), 'parameter')} of the wrapped module unknown to its reducer: {listing(names)}",
        cause=cause,
        advice=advice,
        where=where,
        links=_links(optimizer, wrapper),
    )


def _links(optimizer: Aligned, wrapper: int) -> tuple[str, ...]:
    return f"optimizer {optimizer.number}", f"wrapper {wrapper}"


def _wrapped_at(ranks: Sequence[Rank], number: int | None) -> CallSite | None:
    for rank in ranks:
        for wrapped in rank.of(ev.Wrapped):
            if wrapped.wrapper == number:
                return rank.where(wrapped.site)
    return None


def _orphaned(optimizer: Aligned, looked: Steps) -> Finding | None:
    """An optimizer whose parameters no module has any more."""
    described = optimizer.described[0].parameters
    used = _with_gradient(optimizer, looked)
    # A tensor that was never in a module is nobody's lost parameter.
    lost = [p for p, one in enumerate(described) if not one.in_module and not one.unnamed and p not in used]
    if not lost or not looked or not any(s.backwards for _, step in looked for s in step):
        return None
    names = [described[p].name for p in lost]
    built = optimizer.ranks[0].where(optimizer.described[0].site)
    replaced = next((rank.where(r.site) for rank in optimizer.ranks for r in rank.of(ev.Replaced)), None)
    return Finding(
        rule="optimizer-of-replaced-parameters",
        ranks=tuple(r.rank for r in optimizer.ranks),
        subject=f"the {optimizer.kind}",
        expected="the optimizer to update the parameters of the model",
        found=f"{len(lost)} of its {count(len(described), 'parameter')} in no module, and never with a gradient: "
        f"{listing(names)}",
        cause="it was built before the model's parameters were replaced, and still holds the old ones",
        advice="Build the optimizer from the parameters of the finished (wrapped) model.",
        where=built,
        links=(f"optimizer {optimizer.number}", *optimizer.wrapper_links()),
        proof=tuple((optimizer.ranks[0].rank, site) for site in [replaced] if site is not None),
    )


# --- how each step was armed


def _unarmed(optimizer: Aligned, looked: Steps, wrapper: int, places: Collection[int]) -> list[Finding]:
    """Steps on gradients of a wrapper that no forward through it has prepared for."""
    described = optimizer.described[0].parameters
    broken: list[tuple[int, int, ev.Step, ev.Usage]] = []
    mine = sorted(p for p in places if not described[p].ignored)
    for number, step in looked:
        apart = set(step_alignment.differing([s.gradients for s in step]))
        for place, s in enumerate(step):
            for usage in (u for u in s.usage if u.wrapper == wrapper):
                if all(step_alignment.at(s.gradients, p) == ev.ABSENT for p in mine):
                    continue
                wrong = usage.armed == 0 or not usage.last_armed or bool(usage.sync_flag_site)
                if wrong and apart.intersection(mine):
                    broken.append((number, place, s, usage))
    if not broken or _averaged_by_hand(looked, mine):
        return []
    number, place, s, usage = broken[0]
    rank = optimizer.ranks[place]
    because = round_the_wrapper.why(rank, s, usage, optimizer.described[place].inner)
    kind = next((w.kind for w in rank.of(ev.Wrapped) if w.wrapper == usage.wrapper), "module")
    bad = {n for n, *_ in broken}
    good = {
        n for n, step in looked if n not in bad and any(u.wrapper == wrapper and u.armed for u in step[place].usage)
    }
    lines = [*because.proof, rank.where(usage.backward_site), rank.where(s.site)]
    return [
        Finding(
            rule="reduction-not-prepared",
            ranks=tuple(sorted({optimizer.ranks[p].rank for _, p, *_ in broken})),
            subject=f"the wrapper of {kind}",
            step=number,
            expected="before every optimizer step a forward through the wrapper that prepares the reduction",
            found=round_the_wrapper.found(rank, usage, bad, good),
            cause=because.cause,
            advice=because.advice,
            where=because.where or rank.where(s.site),
            count=len(bad),
            links=_links(optimizer, wrapper),
            proof=tuple(dict.fromkeys((rank.rank, line) for line in lines if line is not None)),
        )
    ]


def _wasted(optimizer: Aligned, steps: Steps, wrapper: int) -> list[Finding]:
    """Reductions that the script meant to leave out: one finding, of no_sync() without effect if there is one."""
    first: dict[str, Finding] = {}
    for number, step in steps:
        for rank, s in zip(optimizer.ranks, step, strict=True):
            for usage in (u for u in s.usage if u.wrapper == wrapper):
                empty = usage.no_sync > 0 and usage.no_sync_forwards == 0 and usage.armed > 1
                repeated = usage.no_sync == 0 and usage.same_line > 1
                if not (empty or repeated):
                    continue
                if empty:
                    found = f"no_sync() entered {usage.no_sync} times before step {number}, with no forward inside"
                    cause = (
                        "DDP decides in the forward whether the backward is reduced: around backward() it does nothing"
                    )
                    advice = "Put forward and backward of a micro-step inside of `with model.no_sync():`."
                    site = usage.no_sync_site
                else:
                    found = f"{usage.same_line} reductions by the same backward() before step {number}"
                    cause = "gradients are accumulated, and reduced at every micro-step: right, and so much slower"
                    advice = (
                        "Put forward and backward of all micro-steps but the last inside of `with model.no_sync():`."
                    )
                    site = usage.backward_site
                rule = WITHOUT_FORWARD if empty else PER_MICRO_BATCH
                first.setdefault(
                    rule,
                    Finding(
                        rule=rule,
                        severity="warning",
                        ranks=tuple(r.rank for r in optimizer.ranks),
                        subject="gradient accumulation",
                        step=number,
                        expected="one reduction for each optimizer step",
                        found=found,
                        cause=cause,
                        advice=advice,
                        where=rank.where(site),
                        links=_links(optimizer, wrapper),
                    ),
                )
    return [first[rule] for rule in (WITHOUT_FORWARD, PER_MICRO_BATCH) if rule in first][:1]
