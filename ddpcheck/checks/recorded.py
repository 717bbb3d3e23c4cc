"""What was put on record while a test saved and loaded, judged as a script's run is: who wrote, and who read when.

Judges of checkpoint-single-writer, checkpoint-read-after-write and
checkpoint-map-location, as assertions.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import msgspec

from ddpcheck import evidence as ev
from ddpcheck.checks import resumes, writers
from ddpcheck.checks.catalogue import NOT_CHECKED
from ddpcheck.checks.checkpoint_read_after_write import run as races
from ddpcheck.checks.checkpoint_single_writer import hidden_writers
from ddpcheck.evidence.training_state import Failure
from ddpcheck.judging import failed_user_functions
from ddpcheck.judging.file_history import LOADS, Files
from ddpcheck.judging.world import Process, Rank, Stretch, World
from ddpcheck.vocabulary.model import Finding, Question, Struct
from ddpcheck.vocabulary.wording import count, listing, ranks_text


class Recorded(Struct, frozen=True, kw_only=True):
    """What one rank has done with files, and whether a call of it failed."""

    evidence: bytes
    """The frames of its records."""
    failure: Failure | None = None
    own: tuple[str, ...] = ()
    """The devices that the rank's modules were on before the load."""
    moved: dict[str, tuple[str, str]] = msgspec.field(default_factory=dict)
    """What lay on another device after the load: its device before, and after."""
    folder: str = ""
    """The folder that was empty before the save; where there is no such folder, nothing."""
    there: tuple[str, ...] = ()
    """The files in it after the save, by their names in it."""


def judge(check: str, facts: Sequence[Any], rounds: Sequence[Sequence[Any]] = ()) -> tuple[Finding, ...] | Question:
    """The findings on one of these checks; a call that raised is told before anything else."""
    said = [None if fact is None else msgspec.convert(fact, Recorded) for fact in facts]
    files = Files(world_of([one.evidence if one is not None else None for one in said]))
    single, several = writers.single_writer(files, saves=True)
    raised = failed_user_functions.judge([one.failure if one is not None else None for one in said])
    if check == "checkpoint-read-after-write":
        found = races.judge(files, several)[0]
        if found.findings or raised:
            return found.findings or raised  # that a load failed may well come of a race
        unread = _unread(files, said)
        return () if files.reads and not unread else (_nothing_read(len(facts), unread),)
    if raised:
        return raised
    if check == "checkpoint-single-writer":
        known = [one for one in said if one is not None]
        hidden: tuple[Finding, ...] | None = None
        if not single.findings and all(one.folder for one in known):
            if not rounds:
                return Question(ask=hidden_writers.ASK)
            alone = [msgspec.convert(answer, hidden_writers.Alone) for answer in rounds[0]]
            hidden = hidden_writers.judge(files, [one.folder for one in known], [one.there for one in known], alone)
        nothing = not single.checked and hidden is None
        return single.findings or hidden or ((_nothing_written(len(facts)),) if nothing else ())
    risky = [f for f in resumes.map_location(files).findings if f.severity == "warning"]
    return tuple([*_elsewhere(files, said), *_moved(said)] or risky)


def world_of(evidence: Sequence[bytes | None]) -> World:
    """The ranks' records side by side; a rank that did not come is missing."""
    ranks = []
    for data in evidence:
        if data is not None:
            process = Process()
            process.add(ev.Reader().feed(data))
            joined = process.last(ev.Joined)
            assert joined is not None
            ranks.append(Rank(Stretch(process, joined, 0, math.inf)))
    return World(ranks, len(evidence))


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
        check="checkpoint-read-after-write",
        severity="warning",
        ranks=tuple(range(world_size)),
        subject="load()",
        expected=f"load() to read {which} in sight",
        found="no rank reading it (what another program or a library in C reads, or a memory map, is not seen)",
        advice="Nothing is known of what the load waits for: see that it cannot begin before the save has ended.",
        links=(NOT_CHECKED,),
    )


def _nothing_written(world_size: int) -> Finding:
    return Finding(
        check="checkpoint-single-writer",
        severity="warning",
        ranks=tuple(range(world_size)),
        subject="save()",
        expected="save() to write a file",
        found="no rank writing one (what another program or a library in C writes, or a memory map, is not seen)",
        advice="Give a function that saves: called on every rank, as the training does, and writing on one of them. "
        "Where it writes out of sight, assert_checkpoint_resumable finds out who does.",
        links=(NOT_CHECKED,),
    )


# --- devices


def _elsewhere(files: Files, said: Sequence[Recorded | None]) -> list[Finding]:
    """Loads that have put tensors on a GPU which is not this rank's."""
    wrong = []
    for reads in files.reads.values():
        for touch in reads:
            own = said[touch.number]
            assert own is not None
            strange = [d for d in touch.record.devices if d.startswith("cuda") and d not in own.own]
            if touch.record.how in LOADS and strange:
                wrong.append((touch, own.own))
    if not wrong:
        return []
    wrong.sort(key=lambda one: (one[0].number, one[0].start))
    return [resumes.landed_elsewhere([touch for touch, _ in wrong], listing(wrong[0][1]))]


def _moved(said: Sequence[Recorded | None]) -> list[Finding]:
    """Tensors of the training that the load has put elsewhere."""
    ranks = {rank: one.moved for rank, one in enumerate(said) if one is not None and one.moved}
    if not ranks:
        return []
    first = min(ranks)
    name, (before, after) = next(iter(ranks[first].items()))
    return [
        Finding(
            check="checkpoint-map-location",
            severity="error",
            ranks=tuple(sorted(ranks)),
            subject=name,
            expected=f"every tensor to be on its rank's own device after the load: {name} on {before}",
            found=f"{name} on {after} on rank {first}; {count(sum(map(len, ranks.values())), 'such tensor')} in all, "
            f"on {ranks_text(ranks)}",
            cause="the load has put other tensors in the place of the training's own",
            advice="Load with map_location set to the device of this rank, and into the tensors that are there.",
        )
    ]
