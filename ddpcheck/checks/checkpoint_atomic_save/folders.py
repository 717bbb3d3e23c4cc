"""Checkpoints of many files in one folder, saved over the one that is there."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise

from ddpcheck import evidence as ev
from ddpcheck.facts.states import State, together
from ddpcheck.judging.file_history import Files, Touch, is_state, shown
from ddpcheck.judging.values_by_key import by_key
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import Finding

_MARK = re.compile(r"complete|done|success|finish|commit|ready|valid|marker", re.IGNORECASE)
"""In the names of files that say of a folder that it is whole."""

WHOLE = "a kill at any moment of a save to leave the checkpoint before it whole"


# --- by torch.distributed.checkpoint


def over_another(world: World, files: Files) -> list[Finding]:
    """Saves to a folder that has a checkpoint already, while there is no later one elsewhere."""
    last: dict[str, list[State]] = {}
    order: list[str] = []
    over: dict[str, list[list[State]]] = defaultdict(list)
    for group in together(world):
        record = group[0].record
        if not isinstance(record, ev.StateSaved) or record.how == "torch.save" or not record.path:
            continue
        before = last.get(record.path)
        alone = order[-1:] == [record.path]
        gone = before is not None and _is_removed(files, record.path, _at(before), _at(group))
        if before is not None and alone and not gone:
            over[str(group[0].where)].append(group)
        last[record.path] = group
        order.append(record.path)
    return [_over(each) for each in over.values()]


def _at(group: Iterable[State]) -> float:
    return min(state.record.at for state in group)


def _is_removed(files: Files, folder: str, since: float, until: float) -> bool:
    """Whether the folder, or what says that it is whole, was taken away or put elsewhere in between."""
    taken = files.removed_from(f"{folder}/.metadata")
    return any(since < touch.record.at < until for touch in taken)


def _over(each: list[list[State]]) -> Finding:
    state = each[0][0]
    assert isinstance(state.record, ev.StateSaved)
    folder = _shown(state, state.record.path)
    return Finding(
        rule="in-place-save",
        severity="warning",
        ranks=tuple(sorted({one.rank.rank for group in each for one in group})),
        subject=f"checkpoint {folder}",
        expected=WHOLE,
        found=f"{state.record.how} going straight over the checkpoint in {folder}: while it writes, the .metadata "
        "there is the old one, and the data beside it are old and new",
        advice="Save each checkpoint to a folder of its own, with its step in the name, and remove an older one when "
        "the new one has its .metadata.",
        where=state.where,
        count=len(each),
        links=(f"file {state.record.path}",),
    )


def _shown(state: State, path: str) -> str:
    began = state.rank.process.began
    folder = began.folder.rstrip("/") + "/" if began is not None and began.folder else ""
    return path[len(folder) :] if folder and path.startswith(folder) else os.path.basename(path)


# --- by the program, with a file that says that all others are there


def under_old_marks(files: Files) -> list[Finding]:
    """Files of several ranks that are put over older ones, while the mark of these stays."""
    folders = by_key((os.path.dirname(path), path) for path in files.writes)
    groups: dict[str, list[tuple[Touch, Touch]]] = defaultdict(list)
    for paths in folders.values():
        for mark in paths:
            if _MARK.search(os.path.basename(mark)) and not is_state(files.writes[mark][0]):
                parts = [path for path in paths if any(map(is_state, files.writes[path]))]
                for touch, written in _stale(files, mark, parts):
                    groups[str(touch.where)].append((touch, written))
    return [_stale_mark(each) for each in groups.values()]


def _stale(files: Files, mark: str, parts: list[str]) -> Iterable[tuple[Touch, Touch]]:
    """The first part that is replaced after each time that the mark was set, and before it is set again."""
    marks = sorted(files.writes[mark], key=_time)
    if len({touch.number for touch in marks}) > 1 or mark in files.appended:
        return
    for old, new in pairwise(marks):
        replaced = []
        for path in parts:
            writes = [touch for touch in files.writes[path] if touch.path == path]
            again = [touch for touch in writes if _time(old) < _time(touch) < _time(new)]
            if again and any(_time(touch) < _time(old) for touch in writes):
                replaced.append(min(again, key=_time))
        if len({touch.number for touch in replaced}) < 2:
            continue
        first = min(replaced, key=_time)
        gone = files.removed_from(mark)
        if not any(_time(old) < _time(touch) <= _time(first) for touch in gone):
            yield first, old


def _time(touch: Touch) -> float:
    return touch.record.at


def _stale_mark(each: list[tuple[Touch, Touch]]) -> Finding:
    touch, mark = each[0]
    name = shown(mark)
    return Finding(
        rule="stale-completion-marker",
        severity="warning",
        ranks=tuple(sorted({one.number for one, _ in each})),
        subject=f"file {name}",
        expected=WHOLE,
        found=f"{shown(touch, touch.path)} put over an older one while {name}, which says that all files of the "
        "checkpoint are there, is still that of the older ones: a kill leaves a mixture that counts as complete",
        advice=f"Remove {os.path.basename(name)} first, and let all ranks wait for that before they write; or save "
        "each checkpoint to a folder of its own.",
        where=touch.where,
        count=len(each),
        links=(f"file {touch.path}",),
        proof=mark.rank.proof(mark.record.site),
    )
