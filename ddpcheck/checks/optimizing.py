"""Do the ranks step alike? Judge of optimizer-sync: state, learning rates, and the scaler's factor."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import compress
from typing import Any

from ddpcheck import evidence as ev
from ddpcheck.checks import aligned
from ddpcheck.checks.aligned import Aligned
from ddpcheck.checks.steps import replicated_places, wrapper_links
from ddpcheck.checks.world import Judged, Rank, World
from ddpcheck.model import Finding
from ddpcheck.wording import count

CHECK = "optimizer-sync"


def judge(world: World) -> Iterable[Judged]:
    """Compare what decides the length and direction of each step."""
    checked = 0
    findings: list[Finding] = []
    optimizers = aligned.optimizers(world)
    for optimizer in optimizers:
        if not replicated_places(optimizer):
            continue
        steps = list(optimizer.common())
        checked += len(steps)
        findings += _apart(optimizer, steps)
    findings += _schedulers(world)
    unseen = aligned.why_unseen(optimizers)
    yield Judged(check=CHECK, checked=checked, findings=tuple(findings), skipped_because=unseen)


Broken = tuple[int, list[Rank], list[ev.Step], str, str, str]
"""A step, the ranks and what each has recorded of it, what differs, how, and why."""


def _apart(optimizer: Aligned, steps: list[tuple[int, list[ev.Step]]]) -> Iterable[Finding]:
    """Rates that differ are a mistake of their own; scale and state differ where gradients do."""
    rates: list[Broken] = []
    others: list[Broken] = []
    for number, everywhere in steps:
        # A rank that has not asked for a number on its device has nothing to say in this step.
        read = [ev.UNREAD not in (*s.rates, s.scale) for s in everywhere]
        ranks, step = list(compress(optimizer.ranks, read)), list(compress(everywhere, read))
        if len({tuple(s.rates) for s in step}) > 1:
            shown = "; ".join(f"{_rates(s)} on rank {r.rank}" for r, s in zip(ranks, step, strict=True))
            rates.append(
                (number, ranks, step, "learning rate", shown, "the learning rate is computed from what differs")
            )
        if len({s.scale for s in step}) > 1:
            shown = "; ".join(f"{s.scale:g} on rank {r.rank}" for r, s in zip(ranks, step, strict=True) if s.scale)
            others.append(
                (number, ranks, step, "gradient scale", shown, "a scaler saw other gradients than its peers did")
            )
        elif not optimizer.described[0].sharded and len({s.state for s in step if s.state}) > 1:
            keys = _keys([s.state for s in step if s.state])
            others.append(
                (number, ranks, step, "state", f"{keys} to differ", "it was loaded or reset on some ranks alone")
            )
    if rates:
        yield _finding(optimizer, rates, (f"rates of optimizer {optimizer.number}",))
    if others:
        yield _finding(optimizer, others, (f"optimizer {optimizer.number}", *wrapper_links(optimizer)))


def _finding(optimizer: Aligned, broken: list[Broken], links: tuple[str, ...]) -> Finding:
    number, ranks, step, what, shown, cause = broken[0]
    values: list[Any] = [
        {"learning rate": tuple(s.rates), "gradient scale": s.scale, "state": s.state}[what] for s in step
    ]
    usual = max(values, key=lambda v: (values.count(v), -values.index(v)))
    odd = tuple(r.rank for r, v in zip(ranks, values, strict=True) if v != usual)
    return Finding(
        check=CHECK,
        severity="error",
        ranks=odd,
        subject=f"the {optimizer.kind}'s {what}",
        step=number,
        expected=f"the same {what} on all ranks in every step",
        found=shown,
        cause=cause,
        advice=(
            "Compute learning rates and scales from numbers that all ranks share, and load optimizer state on all of "
            "them."
        ),
        where=next((r.where(s.site) for r, s in zip(ranks, step, strict=True) if r.rank in odd), None),
        count=len(broken),
        links=links,
    )


def _rates(step: ev.Step) -> str:
    return ", ".join(f"{rate:.6g}" for rate in step.rates[:4])


def _keys(states: list[str]) -> str:
    """The keys of the state whose digests differ."""
    parsed = [dict(part.partition("=")[::2] for part in state.split()) for state in states]
    names = dict.fromkeys(key for one in parsed for key in one)
    return ", ".join(key for key in names if len({one.get(key) for one in parsed}) > 1) or "the state"


def _schedulers(world: World) -> list[Finding]:
    """A scheduler that is stepped once for every rank, by every rank."""
    found: dict[str, Finding] = {}
    for rank in world:
        last: dict[int, ev.Scheduled] = {}
        for one in rank.of(ev.Scheduled):
            last[one.site] = one
        for one in last.values():
            if one.times % world.world_size == 0 and one.bursts >= 2:
                found.setdefault(
                    str(rank.where(one.site)),
                    Finding(
                        check=CHECK,
                        severity="warning",
                        ranks=tuple(r.rank for r in world),
                        subject=f"the {one.kind}",
                        expected="one step of the scheduler at a time",
                        found=f"{count(one.times, 'step')} in a row, with no optimizer step between, again and again",
                        cause=f"it is stepped once for each of {world.world_size} ranks, by each of them",
                        advice=(
                            "Step it once on every rank, unless its schedule counts all ranks' samples on purpose."
                        ),
                        where=rank.where(one.site),
                        count=one.bursts,
                        links=("scheduler",),
                    ),
                )
    return list(found.values())
