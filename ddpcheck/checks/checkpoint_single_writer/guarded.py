"""Where the condition on the rank belongs: around the write alone, and around nothing in which the ranks meet."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ddpcheck import evidence as ev
from ddpcheck.judging.file_history import Files, Touch
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.world import Rank, World

_A_CALL_ALONE = re.compile(r"[A-Za-z_][\w.]*\(.*\)\s*(#.*)?")
"""A line that is a call, whose result nobody takes."""

Line = tuple[str, int, str, int]


def place(files: Files, writes: Sequence[Touch]) -> str:
    """The line of the script to put under the condition, as a sentence; empty where no line is one call alone.

    The outermost such call of those that have led all ranks to the write, in which the rank neither meets the others
    nor reads.
    """
    ways = [list(reversed(t.rank.process.calls_to(t.record.site))) for t in writes]
    rank = writes[0].rank
    reads = [one.site for one in rank.of(ev.File) if one.op == "read"]
    busy = meetings(files.world)[rank] | _lines(rank, [*reads, *(one.site for one in rank.of(ev.StateLoaded))])
    chosen = None
    for site, *others in zip(*ways, strict=False):
        alike = all(_line(one)[:3] == _line(site)[:3] for one in others)
        if not alike or _line(site) in busy or _A_CALL_ALONE.fullmatch(site.text.strip()) is None:
            break
        chosen = site
    if chosen is None or len(ways[0]) == 1:
        return ""
    return f" The condition belongs around line {chosen.line} of {chosen.file}, `{chosen.text.strip()}`."


@once_per_world
def meetings(world: World) -> dict[Rank, set[Line]]:
    """The lines within whose calls each rank meets the others, or trains."""
    found = {}
    for rank in world:
        calls, steps = [one.site for one in rank.of(ev.Call)], [one.site for one in rank.of(ev.Step)]
        found[rank] = _lines(rank, [*calls, *steps, *(one.site for one in rank.of(ev.Wrapped))])
    return found


def within_meetings(files: Files, write: Touch) -> bool:
    """Whether an installed library writes within a call in which the rank also trains: no condition fits around it."""
    sites = write.rank.process.calls_to(write.record.site)
    return write.record.library and bool(sites) and _line(sites[-1]) in meetings(files.world)[write.rank]


def _lines(rank: Rank, sites: Sequence[int]) -> set[Line]:
    return {_line(site) for one in set(sites) for site in rank.process.calls_to(one)}


def _line(site: ev.Site) -> Line:
    """A line called in one way, whichever libraries its call went on in."""
    return site.file, site.line, site.function, site.caller


def wait(files: Files, write: Touch) -> str:
    """What keeps the other ranks from reading too soon, where they read it, as a sentence."""
    rank = write.rank
    reads = [t for t in files.reads.get(write.path, ()) if t.rank is rank and t.start > write.start]
    if not reads:
        return ""
    between = [c for c in rank.of(ev.Call) if write.start < c.n < reads[0].start]
    where = rank.where(between[0].site) if between else None
    if where is None:
        return " Then call dist.barrier(), before the others read it."
    return f" The others wait for it at {where.file}:{where.line}, as they do now."
