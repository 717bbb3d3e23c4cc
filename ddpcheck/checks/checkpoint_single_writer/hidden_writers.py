"""Files that ranks write out of the interpreter's sight: who does, as copies of the ranks have shown.

A library in C, another program or a memory map writes without a word to the
interpreter. So each rank is copied, each copy saves alone into a folder of its
own, and what is there at some time without a word was written by that rank.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence

from ddpcheck.evidence.recorded_save import Alone
from ddpcheck.judging.file_history import CLAIMS, Files, is_lock
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import NOT_CHECKED, listing, ranks_text


def judge(
    files: Files, folders: Sequence[str], there: Sequence[Sequence[str]], alone: Sequence[Alone]
) -> tuple[Finding, ...] | None:
    """What is to be told of such files, by each rank's folder and the names in it after the save; None without any."""
    hidden: dict[str, set[int]] = defaultdict(set)
    for rank, one in enumerate(alone):
        for name in one.names:
            if not is_lock(name):
                hidden[name].add(rank)
    writers = {name: ranks | _seen(files, folders, name) for name, ranks in hidden.items()}
    several = {name: sorted(ranks) for name, ranks in writers.items() if len(ranks) > 1}
    if several:
        return (_several(several),)
    reasons = {rank: one.why_not for rank, one in enumerate(alone) if one.why_not}
    unknown = sorted({n for names in there for n in names if n not in hidden and not _seen(files, folders, n, True)})
    # What a copy has written may have another name each time; where it has written nothing, somebody else did.
    if (reasons and hidden) or (unknown and (reasons or not hidden)):
        return (_not_known(unknown or sorted(hidden), reasons, len(alone)),)
    return () if hidden else None


def _seen(files: Files, folders: Sequence[str], name: str, markers: bool = False) -> set[int]:
    """The ranks that were seen to write a file of this name, or also to make a marker of it."""
    touches = [t for folder in set(folders) for t in files.written_to(os.path.join(folder, name))]
    return {t.number for t in touches if markers or t.record.how not in CLAIMS}


def _several(several: Mapping[str, list[int]]) -> Finding:
    name, ranks = next(iter(several.items()))
    return Finding(
        rule="several-writers",
        ranks=tuple(ranks),
        subject=f"file {name}",
        expected="one rank to write a file",
        found=f"{ranks_text(ranks)} writing {listing(several)}, out of the interpreter's sight: copies of these ranks, "
        "each saving into a folder of its own, have put it there",
        advice="Write on one rank only: if dist.get_rank() == 0; or give each rank a file of its own.",
        count=len(several),
    )


def _not_known(names: Sequence[str], reasons: Mapping[int, str], world_size: int) -> Finding:
    why = "no copy of a rank that has left it in a folder of its own"
    if reasons:
        rank, reason = next(iter(reasons.items()))
        why = f"no copy of {ranks_text(reasons)} that could save: on rank {rank}, {reason}"
    return Finding(
        rule="unknown-writer",
        severity="warning",
        ranks=tuple(reasons) or tuple(range(world_size)),
        subject=f"file {names[0]}",
        expected="each file that save() writes to be written in sight, or by a copy of the rank that does",
        found=f"{listing(names)} written out of sight, and {why}",
        advice="Nothing is known of who writes it: see that one rank does.",
        links=(NOT_CHECKED,),
    )
