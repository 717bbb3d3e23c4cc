"""Small files that say of which step the last checkpoint is: one that names a later step than was saved."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.judging.saved_state import known_as, saves
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite, Finding


class _Save(NamedTuple):
    n: int
    number: int
    """In the name of the file or folder."""
    steps: int
    """That had been made when it was asked for."""
    where: CallSite | None


class _Note(NamedTuple):
    n: int
    number: int
    steps: int
    """That had been made when it was written."""
    where: CallSite | None


def judge(world: World) -> list[Finding]:
    """Compare the number in a file that is written after each save with the number in that save's name."""
    findings = []
    for rank in world:
        for name, notes in _notes(world, rank).items():
            pairs = list(_pairs(_saves(world, rank, str(PurePosixPath(name).parent)), notes))
            if len(pairs) != len(notes):
                continue  # it is written at other times, too: it is about something else
            late = [(save, note) for save, note in pairs if note.number != save.number]
            # Each number goes by the steps that have been made at the moment: the one of the save, the other later.
            same = {note.number - note.steps for _, note in pairs} | {save.number - save.steps for save, _ in pairs}
            if late and len(same) == 1:
                findings.append(_finding(rank, name, late))
    return findings


def _notes(world: World, rank: Rank) -> dict[str, list[_Note]]:
    """By their last names, the small files with one number in them, in the order in which they were written."""
    found: dict[str, list[_Note]] = defaultdict(list)
    files = rank.of(ev.File)
    for one in files:
        if one.op != "content" or one.holds is None:
            continue
        written = [f for f in files if f.op == "write" and f.path == one.path and f.n < one.n]
        if not written:
            continue
        last = written[-1]
        renamed = [f for f in files if f.op == "rename" and f.path == one.path and f.n > last.n]
        name = renamed[0].target if renamed else one.path
        where = rank.where(renamed[0].site if renamed else last.site)
        found[name].append(_Note(last.n, one.holds, _steps(rank, last.n), where))
    return found


def _saves(world: World, rank: Rank, folder: str) -> Iterator[_Save]:
    """What this rank has saved in the background into a folder, or into a folder in it, under a name with one number.

    A note that follows a save which was waited for is of its own moment on purpose.
    """
    for state in saves(world):
        record = state.record
        if state.rank is not rank or not isinstance(record, ev.StateSaved):
            continue
        if not record.thread and record.how != "dcp.async_save":
            continue
        for path in known_as(world, record.path, record.at, float("inf")):
            inside = path.removeprefix(folder + "/")
            numbers = re.findall(r"\d+", inside.partition("/")[0])
            if inside != path and len(numbers) == 1:
                n = _asked(rank, record)
                yield _Save(n, int(numbers[0]), _steps(rank, n), state.where)
                break


def _asked(rank: Rank, save: ev.StateSaved) -> int:
    """When: a thread of its own was started for it."""
    began = [one.n for one in rank.of(ev.Started) if save.thread and one.name == save.thread and one.n < save.n]
    return began[-1] if began else save.n


def _steps(rank: Rank, n: int) -> int:
    return sum(one.n < n for one in rank.of(ev.Step))


def _pairs(saved: Iterator[_Save], notes: list[_Note]) -> Iterator[tuple[_Save, _Note]]:
    """Each save with the one note that follows it, before the next."""
    ordered = sorted(saved)
    for place, save in enumerate(ordered):
        until = ordered[place + 1].n if place + 1 < len(ordered) else None
        after = [note for note in notes if note.n > save.n and (until is None or note.n < until)]
        if len(after) == 1:
            yield save, after[0]


def _finding(rank: Rank, name: str, late: list[tuple[_Save, _Note]]) -> Finding:
    save, note = late[0]
    return Finding(
        rule="late-step-number",
        severity="warning",
        ranks=(rank.rank,),
        subject=PurePosixPath(name).name,
        expected="what is noted of a save to be of the moment when it was called",
        found=f"{PurePosixPath(name).name} naming {note.number} after the save of {save.number}: steps went on between "
        "the save and the note",
        cause="the note is made when the save has ended, from a count that has gone on",
        advice="Keep the number of the step when the save is called, and write that one.",
        where=note.where,
        count=len(late),
        links=("saved state",),
        proof=((rank.rank, save.where),) if save.where is not None else (),
    )
