"""Where the condition on the rank belongs: around the write alone, and around nothing in which the ranks meet."""

from __future__ import annotations

import re

from ddpcheck import evidence as ev
from ddpcheck.judging.file_history import Files, Touch

_A_CALL_ALONE = re.compile(r"[A-Za-z_][\w.]*\(.*\)\s*(#.*)?")
"""A line that is a call, whose result nobody takes."""


def place(write: Touch) -> str:
    """The line of the script to put under the condition, as a sentence; empty where no line is one call alone.

    The outermost such call of those that have led to the write, in which the rank neither meets the others nor reads.
    """
    process = write.rank.process
    sites = process.calls_to(write.record.site)
    others = [*write.rank.of(ev.Call), *write.rank.of(ev.Wrapped), *write.rank.of(ev.StateLoaded)]
    others += [one for one in write.rank.of(ev.File) if one.op == "read"]
    busy = {site.id for other in others for site in process.calls_to(getattr(other, "site", 0))}
    chosen = None
    for site in reversed(sites):
        if site.id in busy or _A_CALL_ALONE.fullmatch(site.text.strip()) is None:
            break
        chosen = site
    if chosen is None or len(sites) == 1:
        return ""
    return f" The condition belongs around line {chosen.line} of {chosen.file}, `{chosen.text.strip()}`."


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
