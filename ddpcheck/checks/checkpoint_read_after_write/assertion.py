"""Does no rank read what a test saves before it is whole?"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ddpcheck.checks.checkpoint_read_after_write.run import judge_races
from ddpcheck.evidence.recorded_save import Recorded
from ddpcheck.judging.file_history import Files
from ddpcheck.judging.file_races import races
from ddpcheck.judging.recorded_section import Recordings
from ddpcheck.judging.several_writers import written_by_several
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import NOT_CHECKED, listing


def judge(facts: Sequence[Any], rounds: Sequence[Sequence[Any]] = ()) -> tuple[Finding, ...]:
    """The races between the ranks; that a load failed may well come of one."""
    recorded = Recordings(facts)
    files = recorded.files
    found = judge_races(races(files, set(written_by_several(files, saves=True)))).findings
    if found or recorded.raised:
        return found or recorded.raised
    unread = _unread(files, recorded.said)
    return () if files.reads and not unread else (_nothing_read(len(facts), unread),)


def _unread(files: Files, said: Sequence[Recorded | None]) -> list[str]:
    """Files that were there after the save, and that nobody was seen to write or to read."""
    paths = {os.path.join(one.folder, name) for one in said if one is not None for name in one.there}
    return sorted(p for p in paths if not files.reads.get(p) and not _written_in_sight(files, p))


def _written_in_sight(files: Files, path: str) -> bool:
    """Whether its content was put there so, or where it was renamed from."""
    return any(t.record.op == "write" or files.writes.get(t.record.path) for t in files.written_to(path))


def _nothing_read(world_size: int, unread: Sequence[str]) -> Finding:
    which = f"{listing([os.path.basename(p) for p in unread])}" if unread else "a file"
    return Finding(
        rule="no-read-observed",
        severity="warning",
        ranks=tuple(range(world_size)),
        subject="load()",
        expected=f"load() to read {which} in sight",
        found="no rank reading it (what another program or a library in C reads, or a memory map, is not seen)",
        advice="Nothing is known of what the load waits for: see that it cannot begin before the save has ended.",
        links=(NOT_CHECKED,),
    )
