"""Files that a save leaves behind, and that nobody was seen to write: who does, as copies of the ranks have shown.

A library in C, another program or a memory map writes without a word to the
interpreter. So each rank is copied, each copy saves alone into a folder of its
own, and what is in there then was written by that rank.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from ddpcheck.catalogue import NOT_EXERCISED
from ddpcheck.checks.touched import CLAIMS, Files
from ddpcheck.model import Finding, Struct
from ddpcheck.wording import listing, ranks_text

ASK = "what it writes alone"


class Alone(Struct, frozen=True, kw_only=True):
    """What a copy of one rank has left in an empty folder."""

    names: tuple[str, ...] = ()
    why_not: str = ""
    """Why this is not known."""


def unseen(files: Files, folders: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """The names of files in the ranks' folders (each with the names in it) that no rank was seen to write."""
    return sorted(
        {
            name
            for folder, names in folders
            for name in names
            if not any(t.record.how not in CLAIMS for t in files.written_to(os.path.join(folder, name)))
        }
    )


def judge(names: Sequence[str], alone: Mapping[int, Alone]) -> tuple[Finding, ...]:
    """One finding for all such files that several ranks write; a warning where it is not known who does."""
    writers = {name: [rank for rank, one in alone.items() if name in one.names] for name in names}
    several = {name: ranks for name, ranks in writers.items() if len(ranks) > 1}
    if several:
        return (_several(several),)
    unknown = [name for name, ranks in writers.items() if not ranks]
    reasons = {rank: one.why_not for rank, one in alone.items() if one.why_not}
    if unknown or reasons:
        return (_not_known(unknown or list(names), reasons, len(alone)),)
    return ()


def _several(several: Mapping[str, list[int]]) -> Finding:
    name, ranks = next(iter(several.items()))
    return Finding(
        check="checkpoint-single-writer",
        severity="error",
        ranks=tuple(ranks),
        subject=f"file {name}",
        expected="one rank to write a file",
        found=f"{ranks_text(ranks)} writing {listing(several)}, in a way that the interpreter is not told of; "
        "copies of these ranks, each saving into a folder of its own, have all left it there",
        advice="Write on one rank only: if dist.get_rank() == 0; or give each rank a file of its own.",
        count=len(several),
    )


def _not_known(names: Sequence[str], reasons: Mapping[int, str], world_size: int) -> Finding:
    why = next((f": on rank {rank}, {why}" for rank, why in reasons.items()), "")
    return Finding(
        check="checkpoint-single-writer",
        severity="warning",
        ranks=tuple(reasons) or tuple(range(world_size)),
        subject=f"file {names[0]}",
        expected="each file that save() writes to be written in sight",
        found=f"no rank seen writing {listing(names)}, and no copy of one that leaves it in a folder of its own{why}",
        advice="Nothing is known of who writes it: see that one rank does.",
        links=(NOT_EXERCISED,),
    )
