"""A run as far as it has come: what is certain of it, and what of its evidence need be held no longer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from ddpcheck import evidence as ev
from ddpcheck.checks.registry import every_check, those
from ddpcheck.judging import long_runs
from ddpcheck.judging.membership import worlds
from ddpcheck.judging.step_alignment import steps_made
from ddpcheck.judging.world import Judged, Moment, Process, Rank, World
from ddpcheck.verdict.grouping import grouped
from ddpcheck.verdict.judges import judge_world
from ddpcheck.verdict.left_out_rules import without_rules
from ddpcheck.verdict.named_lines import folder_of, lines_named
from ddpcheck.verdict.settled import Settled
from ddpcheck.vocabulary.model import Finding, Struct

Said = Mapping[str, Judged]

BETWEEN = 0.5
"""Seconds, at the least, between two batches that tell how fast a rank is."""


class Interim(Struct, frozen=True, kw_only=True):
    """What can be said of a run while it goes on."""

    world_size: int = 0
    """Ranks of the group that was made last; 0 before there is any."""
    steps: int = 0
    samples: float | None = None
    """Samples per second of all ranks together; None where no loader tells."""
    held: int = 0
    """Checks that have been made, and have found nothing."""
    findings: tuple[Finding, ...] = ()
    """What stays so, whatever follows."""
    lines: dict[str, str] = msgspec.field(default_factory=dict)
    """The text of the lines that they name, by ``file:line``."""
    folder: str = ""
    full: bool = False
    """So much is held that some of it should go."""
    cut: dict[str, long_runs.Cut] = msgspec.field(default_factory=dict)
    """What may go of each process's record, by its name; empty where all of it stays."""
    past: tuple[tuple[str, dict[str, Judged], dict[str, Judged]], ...] = ()
    """By world's token: what the judges say with what may go, and without."""
    defects: tuple[str, ...] = ()


def interim(
    processes: Sequence[Process],
    now: Moment,
    settled: Settled,
    chosen: Collection[str] | None = None,
    held: int = long_runs.HELD,
    left_out: Collection[str] = (),
) -> Interim:
    """Judge what is on record now; ``processes`` are snapshots, from which what may go is taken away here."""
    found = worlds(processes, now)
    complete = [world for world in found if world.complete]
    defects: list[str] = []
    said = {world.token: judge_world(world, defects, ends=True) for world in complete}
    whole, _ = without_rules([settled.with_past(token, judged) for token, judged in said.items()], left_out)
    findings = grouped(_certain(whole, chosen))
    last = found[-1] if found else None
    told = Interim(
        world_size=last.world_size if last is not None else 0,
        steps=sum(steps_made(world) for world in found),
        samples=_samples_per_second(last) if last is not None else None,
        held=sum(_holds(check, whole) for check in every_check()),
        findings=findings,
        lines=lines_named(processes, findings),
        folder=folder_of(processes),
        defects=tuple(defects),
    )
    if defects or not long_runs.is_due(processes, held):
        _forget(found)
        return told
    cut = long_runs.cuts(found, processes)
    long_runs.let_go({process.name: process for process in processes}, cut)
    _forget(found)
    rest = worlds(processes, now)
    after = {world.token: judge_world(world, defects, ends=True) for world in rest}
    _forget(rest)
    if defects:
        return told
    past = tuple((token, dict(judged), after.get(token, {})) for token, judged in said.items())
    return replace(told, full=True, cut=cut, past=past)


def _forget(found: Iterable[World]) -> None:
    """Let go of what was worked out at once: it refers to its world, and is more than the world itself."""
    for world in found:
        world.worked_out.clear()


def _certain(judged: Iterable[Said], chosen: Collection[str] | None) -> Iterator[Finding]:
    late = {*those("of_endings"), *those("told_at_end")}
    for said in judged:
        for check, one in said.items():
            if check not in late and (chosen is None or check in chosen):
                yield from one.findings


def _holds(check: str, judged: Iterable[Said]) -> bool:
    of_it = [said[check] for said in judged if check in said]
    return (
        check not in those("of_endings")
        and any(one.checked for one in of_it)
        and not any(one.findings for one in of_it)
    )


def _samples_per_second(world: World) -> float | None:
    rates = [rate for rank in world if (rate := _rate(rank)) is not None]
    return sum(rates) if rates else None


def _rate(rank: Rank) -> float | None:
    """By the last batch that the rank has taken, and an earlier one of the same pass."""
    batches = rank.of(ev.Batch)
    if not batches:
        return None
    last = batches[-1]
    for first in reversed(batches):
        if (first.loader, first.pass_) != (last.loader, last.pass_):
            return None
        if last.at - first.at >= BETWEEN:
            return (last.number - first.number) * last.samples / (last.at - first.at)
    return None
