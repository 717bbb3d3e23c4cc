"""Schedulers that are stepped several times between two steps of the optimizer."""

from __future__ import annotations

import ast

from ddpcheck import evidence as ev
from ddpcheck.judging import program_text
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import count

ONCE = "Step it once on every rank, unless its schedule counts all ranks' samples on purpose."


def judge(world: World) -> list[Finding]:
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
    shown = f", in `for {ast.unparse(loop.node.target)} in {ast.unparse(loop.node.iter)}:` (line {loop.where.line})"
    names = {node.attr for node in ast.walk(loop.node.iter) if isinstance(node, ast.Attribute)}
    names |= {node.id for node in ast.walk(loop.node.iter) if isinstance(node, ast.Name)}
    for name in sorted(names):
        for call in program_text.calls_with(rank.process, name):
            value = ast.unparse(program_text.given(call.node, name) or ast.Constant(None))
            if "world_size" in value:
                return f"{shown}, with {name}={value} ({call.where.file}:{call.where.line})"
    return shown
