"""Do the ranks step alike? Judge of optimizer-sync: state, learning rates, and the scaler's factor."""

from __future__ import annotations

import ast
import itertools
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import compress
from typing import Any

from msgspec.structs import replace

from ddpcheck import evidence as ev
from ddpcheck.checks.optimizer_sync import counters, scales_of_stages, shards, skipped
from ddpcheck.judging import program_text, step_alignment
from ddpcheck.judging.copies import Copies, copies
from ddpcheck.judging.differing_steps import states, wrapper_links
from ddpcheck.judging.replicated_parameters import why_none
from ddpcheck.judging.step_alignment import Aligned
from ddpcheck.judging.world import Judged, Rank, World
from ddpcheck.judging.zero_digests import covers
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import count

_FIX = "Compute learning rates and scales from numbers that all ranks share, and load optimizer state on all of them."


_NOTHING = "ddpcheck saw no learning rate, gradient scale or state, other than zero, on several ranks"
ONCE = "Step it once on every rank, unless its schedule counts all ranks' samples on purpose."


def judge(world: World) -> Judged:
    """Compare what decides the length and direction of each step."""
    windows: step_alignment.Windows = set()
    findings: list[Finding] = []
    behind: dict[str, Finding] = {}
    because = why_none(world, step_alignment.optimizers(world))
    for held in copies(world):
        optimizer, places = held.optimizer, held.parameters
        if not places:
            continue
        steps = list(optimizer.common())
        windows |= {(optimizer.number, number) for number, step in steps if _is_compared(held, step)}
        because = _NOTHING if steps else because
        findings += _apart(held, steps)
        behind |= {f"{one.subject} {one.links}": one for one in counters.findings(held)}
    findings += behind.values()
    # What copies show already is not shown of shards once more.
    others, of_shards = shards.judge(world)
    known = {link for finding in findings for link in finding.links}
    findings += [one for one in of_shards if not known.intersection(one.links)]
    findings += _schedulers(world)
    for part in (skipped, scales_of_stages):
        times, found = part.judge(world)
        others += times
        findings += found
    checked, made = step_alignment.coverage(world, windows, others)
    return Judged(checked=checked, of=made, findings=tuple(findings), skipped_because=because)


def _is_compared(held: Copies, step: list[ev.Step]) -> bool:
    """Whether a nonzero learning rate, gradient scale or state of this step is known on several ranks."""
    optimizer, places = held.optimizer, held.parameters
    groups = _groups(optimizer, places)
    read = [s for s in step if ev.UNREAD not in (*s.rates, s.scale)]
    numbers = len(read) > 1 and all(any(_rates(s, groups)) or s.scale for s in read)
    return numbers or any(covers(optimizer.described[0].parameters, each, places) for each in states(step).values())


Broken = tuple[int, list[Rank], list[ev.Step], str, list[Any], str, str]
"""A step, the ranks, what each has recorded of it, what differs, their values, these in words, and why they differ."""


def _apart(held: Copies, steps: list[tuple[int, list[ev.Step]]]) -> Iterable[Finding]:
    """Rates that differ are a mistake of their own; scale and state differ where gradients do."""
    optimizer, places = held.optimizer, held.parameters
    groups = _groups(optimizer, places)
    rates: list[Broken] = []
    others: list[Broken] = []
    for number, everywhere in steps:
        # A rank that has not asked for a number on its device has nothing to say in this step.
        read = [ev.UNREAD not in (*s.rates, s.scale) for s in everywhere]
        ranks, step = list(compress(optimizer.ranks, read)), list(compress(everywhere, read))
        if not step:
            continue
        each = [_rates(s, groups) for s in step]
        if len(set(each)) > 1:
            shown = "; ".join(f"{_shown(rate)} on rank {r.rank}" for r, rate in zip(ranks, each, strict=True))
            cause = "the learning rate is computed from what differs"
            rates.append((number, ranks, step, "learning rate", each, shown, cause))
        scales = [s.scale for s in step]
        if len(set(scales)) > 1:
            shown = "; ".join(f"{s.scale:g} on rank {r.rank}" for r, s in zip(ranks, step, strict=True) if s.scale)
            cause = "a scaler saw other gradients than its peers did"
            others.append((number, ranks, step, "gradient scale", scales, shown, cause))
        elif keys := _keys(optimizer, step, places):
            said = [b"".join(step_alignment.at(s.state[key], place) for key in keys for place in places) for s in step]
            # State that differs may come from gradients that did, in a step that nobody has looked at.
            unseen = "" if others else optimizer.blind_before(number)
            shown = f"{', '.join(keys)} to differ" + (f"; {unseen}" if unseen else "")
            cause = "" if unseen else "it was loaded or reset on some ranks alone"
            others.append((number, ranks, step, "state", said, shown, cause))
    if rates:
        yield _finding(optimizer, rates, (f"rates of optimizer {optimizer.number}",))
    if others:
        found = _finding(optimizer, others, (f"optimizer {optimizer.number}", *wrapper_links(optimizer)))
        yield replace(found, severity=held.severity) if others[0][3] == "state" else found


_RULES = {
    "learning rate": "unequal-learning-rates",
    "gradient scale": "unequal-gradient-scales",
    "state": "unequal-optimizer-states",
}
"""By what differs."""


def _finding(optimizer: Aligned, broken: list[Broken], links: tuple[str, ...]) -> Finding:
    number, ranks, step, what, values, shown, cause = broken[0]
    usual = max(values, key=lambda v: (values.count(v), -values.index(v)))
    odd = tuple(r.rank for r, v in zip(ranks, values, strict=True) if v != usual)
    return Finding(
        rule=_RULES[what],
        ranks=odd,
        subject=f"the {optimizer.kind}'s {what}",
        step=number,
        expected=f"the same {what} on all ranks in every step",
        found=shown,
        cause=cause,
        advice=_FIX
        if cause
        else "Find what one rank alone does in these steps, to gradients after backward() or to it.",
        where=next((r.where(s.site) for r, s in zip(ranks, step, strict=True) if r.rank in odd), None),
        count=len(broken),
        links=links,
    )


def _groups(optimizer: Aligned, places: Sequence[int]) -> list[int] | None:
    """The parameter groups that hold any of these places; None where the groups are not known."""
    ends = list(itertools.accumulate(optimizer.described[0].groups))
    return sorted({bisect_right(ends, place) for place in places}) if ends else None


def _rates(step: ev.Step, groups: Sequence[int] | None) -> tuple[float, ...]:
    """The learning rates of these groups."""
    return tuple(rate for place, rate in enumerate(step.rates) if groups is None or place in groups)


def _shown(rates: Sequence[float]) -> str:
    return ", ".join(f"{rate:.6g}" for rate in rates[:4])


def _keys(optimizer: Aligned, step: list[ev.Step], places: Sequence[int]) -> list[str]:
    """The keys of the state that differ between ranks which have state for the same parameter.

    State that one rank has alone is its share. What an optimizer of the user's
    own keeps may be each rank's affair, as long as the parameters come out the same.
    """
    described = optimizer.described[0]
    if described.sharded:
        return []
    wanted = set(places)
    if not described.torchs:
        wanted &= (
            set(step_alignment.differing([s.parameters for s in step])) if all(s.parameters for s in step) else set()
        )
    return [key for key, each in states(step).items() if any(_differ(each, place) for place in wanted)]


def _differ(each: Sequence[bytes], place: int) -> bool:
    return len({step_alignment.at(one, place) for one in each} - {ev.ABSENT, ev.UNSEEN}) > 1


def _schedulers(world: World) -> list[Finding]:
    """A scheduler that is stepped once for every rank, by every rank."""
    found: dict[str, Finding] = {}
    for rank in world:
        last: dict[CallSite | None, ev.Scheduled] = {}
        for one in rank.of(ev.Scheduled):
            last[rank.where(one.site)] = one
        for one in last.values():
            if one.times % world.world_size == 0 and one.bursts >= 2:
                found.setdefault(
                    str(rank.where(one.site)),
                    Finding(
                        rule="repeated-scheduler-steps",
                        severity="warning",
                        ranks=tuple(r.rank for r in world),
                        subject=f"the {one.kind}",
                        expected="one step of the scheduler at a time",
                        found=(
                            f"{count(one.times, 'step')} at a time, with no optimizer step between, on at least "
                            f"{count(one.bursts, 'occasion')}"
                        ),
                        cause=_cause(world, rank, one),
                        advice=ONCE,
                        where=rank.where(one.site),
                        count=one.bursts,
                        links=("scheduler",),
                    ),
                )
    return list(found.values())


def _cause(world: World, rank: Rank, scheduled: ev.Scheduled) -> str:
    if any(step.backwards == scheduled.times for step in rank.of(ev.Step)):
        return "it is stepped after every micro-batch, and the optimizer after the last one alone"
    loop = _loop(rank, scheduled)
    return f"every rank steps it once for each of {world.world_size} ranks{loop}"


def _loop(rank: Rank, scheduled: ev.Scheduled) -> str:
    """The loop around the step, and the call that gives it the number of ranks, where the text shows them."""
    where = rank.where(scheduled.site)
    around = [one for one in program_text.loops(rank.process) if where is not None and program_text.holds(one, where)]
    if not around or where is None:
        return ""
    loop = around[-1]
    assert isinstance(loop.node, (ast.For, ast.AsyncFor))
    told = f", in `for {ast.unparse(loop.node.target)} in {ast.unparse(loop.node.iter)}:` (line {loop.where.line})"
    names = {node.attr for node in ast.walk(loop.node.iter) if isinstance(node, ast.Attribute)}
    names |= {node.id for node in ast.walk(loop.node.iter) if isinstance(node, ast.Name)}
    for name in sorted(names):
        for call in program_text.calls_with(rank.process, name):
            value = ast.unparse(program_text.given(call.node, name) or ast.Constant(None))
            if "world_size" in value:
                return f"{told}, with {name}={value} ({call.where.file}:{call.where.line})"
    return told
