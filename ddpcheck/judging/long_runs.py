"""What of a long run's evidence has been judged, and need be held no longer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ddpcheck import evidence as ev
from ddpcheck.judging import step_alignment
from ddpcheck.judging.world import Process, Rank, World

HELD = 200_000
"""Records of all processes together from which on the judged ones are let go: two ranks' for some 16,000 steps."""

FIRST = 64
"""Of each kind, the records of a process that always stay: many a mistake shows at the beginning, or not at all."""

LEAST = 64
"""Steps before the last that all ranks have made which stay with what was recorded since."""


class Cut(msgspec.Struct, frozen=True):
    """Up to where the passing records of a process may go."""

    before: float
    """The ``n`` of the first that stays."""
    taken: int
    """Records that it had been given when they were judged."""


def is_due(processes: Iterable[Process], held: int = HELD) -> bool:
    """Whether so much is held that what was judged should go."""
    return sum(len(process.records) for process in processes) > held


def cuts(worlds: Sequence[World], processes: Iterable[Process]) -> dict[str, Cut]:
    """By the name of a process: what of it may go.

    The ranks of a world are cut at one and the same step, which all of them have left behind them, so that no rank's
    record goes before that of another one which is to be compared with it.
    """
    found: dict[str, Cut] = {}
    by_time: dict[str, float] = {}
    for world in worlds:
        for rank, at in zip(world, _places(world), strict=True):
            if at is None:
                continue
            found[rank.process.name] = Cut(at.n, rank.process.taken)
            by_time |= {worker.name: at.at for worker in rank.workers}
    ranks = {rank.process.name for world in worlds for rank in world}
    for process in processes:
        if process.name in by_time:
            before = next((r.n for r in reversed(process.records) if r.at < by_time[process.name]), 0.0)
            found[process.name] = Cut(before, process.taken)
        elif process.name not in ranks and len(process.records) > FIRST + LEAST:
            found[process.name] = Cut(process.records[-LEAST].n, process.taken)
    return found


def let_go(processes: Mapping[str, Process], cut: Mapping[str, Cut]) -> None:
    """Hold no longer what may go."""
    for name, upto in cut.items():
        process = processes.get(name)
        if process is None:
            continue
        gone = [one for one in process.let_go(upto.before, upto.taken, FIRST) if isinstance(one, ev.Step)]
        whole, looked = process.compared_before
        seen = [s for s in gone if step_alignment.are_seen([s.gradients]) or step_alignment.are_seen([s.parameters])]
        process.compared_before = whole + sum(step.whole for step in seen), looked + len(seen)


def _places(world: World) -> list[ev.Record | None]:
    """On each rank, the record before which everything that passes may go; None where nothing may."""
    nothing: list[ev.Record | None] = [None] * len(world)
    if not world.complete:
        return nothing
    return _common([_steps(rank) for rank in world]) or _common([_calls(rank) for rank in world]) or nothing


def _steps(rank: Rank) -> dict[tuple[int, int], ev.Record]:
    """The steps of the optimizer that has most of them, by how they are known on other ranks."""
    steps = rank.of(ev.Step)
    most = Counter(step.optimizer for step in steps).most_common(1)
    return {(one.region, one.place): one for one in steps if one.optimizer == most[0][0]}


def _calls(rank: Rank) -> dict[tuple[int, int], ev.Record]:
    """Where there are no steps: the calls of the whole group."""
    return {(0, call.number): call for call in rank.of(ev.Call) if call.group == "world" and not call.joined}


def _common(by_rank: Sequence[Mapping[tuple[int, int], ev.Record]]) -> list[ev.Record | None]:
    """What all ranks have, a quarter of it before the last: on each rank; nothing where that is too little."""
    common = sorted(set(by_rank[0]).intersection(*by_rank[1:]))
    kept = max(LEAST, len(common) // 4)
    if len(common) <= kept:
        return []
    return [records[common[-kept]] for records in by_rank]
