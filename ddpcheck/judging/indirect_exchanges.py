"""What may bring the ranks' parameters together, though no collective was seen to go over them: objects, and files."""

from __future__ import annotations

import math

from ddpcheck import evidence as ev
from ddpcheck.judging.file_history import ARRAYS, CHECKPOINTS, CLAIMS, LOADS, SAVES
from ddpcheck.judging.step_alignment import Aligned
from ddpcheck.judging.world import Rank, World


def nothing_else(world: World) -> bool:
    """Whether every rank has come to its end and told of no transfer that could be a part of a model."""
    told = [rank.last(ev.Transfers) for rank in world]
    return all(one is not None and one.others == 0 for one in told)


def by_files(world: World) -> bool:
    """Whether files may bring the ranks' models together: each saves its own, or one reads what another has written.

    So do bagging, cross-validation, and averages, taken now and then or once at
    the end. How a program keeps its parameters is its affair: of what is
    written and read once training has begun, no suffix is asked for. What torch
    has saved is taken up by its own load, or by a load_state_dict that follows:
    a copy of the file is none.
    """
    written = [set(_written(rank)) for rank in world]
    by_torch = {r.path for _, r in world.of(ev.File) if r.op == "write" and r.how in SAVES}
    read = [{r.path for r in _reads(rank) if r.path not in by_torch or _is_taken_up(rank, r)} for rank in world]
    saved = [{path for path, is_model in _written(rank).items() if is_model} for rank in world]
    apart = len({frozenset(paths) for paths in saved if paths}) > 1
    return apart or any(mine & theirs for at, mine in enumerate(read) for by, theirs in enumerate(written) if at != by)


def _reads(rank: Rank) -> list[ev.File]:
    return [r for r in rank.of(ev.File) if r.op == "read" and _counts(rank, r, LOADS)]


def _is_taken_up(rank: Rank, read: ev.File) -> bool:
    return read.how in LOADS or any(one.n > read.n for one in rank.of(ev.StateLoaded))


def _written(rank: Rank) -> dict[str, bool]:
    """The files that a rank has put something into, and whether each is a model by how it was, or by its name."""
    found: dict[str, bool] = {}
    for r in rank.of(ev.File):
        path = r.target if r.op == "rename" else r.path
        if r.op in ("write", "rename") and r.how not in CLAIMS and _counts(rank, r, SAVES):
            is_model = r.how in SAVES or (r.op == "write" and path.endswith((*CHECKPOINTS, *ARRAYS)))
            found[path] = found.get(path, False) or is_model
    return found


def _counts(rank: Rank, record: ev.File, how: tuple[str, ...]) -> bool:
    """Whether it is a model for certain, or may be one: data and settings are put down before training begins."""
    path = record.target if record.op == "rename" else record.path
    begun = min((s.n for s in rank.of(ev.Step)), default=math.inf)
    return record.how in how or path.endswith(CHECKPOINTS) or record.n > begun


# --- wrapped parameters that are never reduced


def kept_apart(world: World, optimizer: Aligned) -> dict[int, set[int]]:
    """By wrapper: the parameters that DDP is never let reduce, where something else may bring them together.

    A program that leaves out every reduction by ``no_sync()`` means it, as
    local SGD does, if the ranks then exchange what is no part of a model by its
    storage: objects, files.
    """
    of = {number: places for number, places in optimizer.by_wrapper().items() if number is not None}
    if not of or (nothing_else(world) and not by_files(world)):
        return {}
    armed: set[int] = set()
    left_out: set[int] = set()
    for steps in optimizer.steps:
        for step in steps.values():
            for usage in step.usage:
                meant = usage.no_sync_forwards == usage.forwards > 0 and not usage.sync_flag_site
                (left_out if meant and not usage.armed else armed).add(usage.wrapper)
    return {number: places for number, places in of.items() if number in left_out - armed}
