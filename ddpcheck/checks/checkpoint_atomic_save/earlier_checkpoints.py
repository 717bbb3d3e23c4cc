"""Saves that begin while an earlier checkpoint is there: only these have one that a kill may cost."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ddpcheck import evidence as ev
from ddpcheck.judging.file_history import LOADS, Touch, files_of
from ddpcheck.judging.saved_state import every_save
from ddpcheck.judging.several_writers import by_rank, shared_paths
from ddpcheck.judging.world import World

Moment = tuple[int, int]
"""A rank, and the ``n`` at which it did something."""


def counted(world: World, puts: Sequence[Touch], over: Sequence[Touch]) -> tuple[int, int]:
    """How many of a run's saves had an earlier checkpoint to leave whole, and how many saves there were.

    ``puts`` put a file of a checkpoint somewhere, ``over`` straight over another one. A save is counted once, however
    often it is moved, and is not compared where several ranks write one of its paths.
    """
    files = files_of(world)
    acts = [*_folders(world), *(act for act in puts if act.record.op == "write")]
    acts += [act for acts in files.writes.values() for act in acts if act.record.op == "rename"]
    acts += [act for acts in files.removals.values() for act in acts if act.record.op == "remove"]
    acts += [act for acts in files.reads.values() for act in acts if act.record.how in LOADS]
    saves = _moments([*_folders(world), *puts])
    each = [_of_one_rank(own, saves, _moments(over), shared_paths(world)) for own in by_rank(acts)]
    return sum(checked for checked, _ in each), sum(made for _, made in each)


def _moments(touches: Sequence[Touch]) -> set[Moment]:
    return {(touch.number, touch.start) for touch in touches}


def _folders(world: World) -> list[Touch]:
    """What torch.distributed.checkpoint has saved, as writes to its folder by the lowest rank that takes part."""
    paths = {state.record.path for state in every_save(world) if state.record.how.startswith("dcp")} - {""}
    ranks = {path: rank for rank in reversed(list(world)) for path in {one.path for one in rank.of(ev.SaveBegan)}}
    began = [(rank, one) for path, rank in ranks.items() for one in rank.of(ev.SaveBegan) if one.path == path in paths]
    return [Touch(rank, _write(one), one.path, one.n, one.n) for rank, one in began]


def _write(save: ev.SaveBegan) -> ev.File:
    return ev.File(
        n=save.n,
        at=save.at,
        op="write",
        how="torch.distributed.checkpoint",
        path=save.path,
        target="",
        site=0,
        ended=save.n,
        existed=True,
        thread="",
    )


def _of_one_rank(
    acts: Sequence[Touch], saves: Collection[Moment], over: Collection[Moment], several: Collection[str]
) -> tuple[int, int]:
    steps = [step.n for step in acts[0].rank.of(ev.Step)]
    made: set[Moment] = set()
    compared: set[Moment] = set()
    there: dict[str, Moment] = {}
    """What this rank has saved or loaded, by where it is now."""
    for act in acts:
        record, moment = act.record, (act.number, act.start)
        if record.op == "read":
            there.setdefault(record.path, moment)
            continue
        if record.op == "write":
            moved, is_part = {}, False
            if not record.existed:
                there.pop(record.path, None)
        else:
            below = [path for path in there if f"{path}/".startswith(f"{record.path}/")]
            moved = {record.target + path[len(record.path) :]: there.pop(path) for path in below}
            is_part = any(record.path.startswith(f"{path}/") for path in there)
        if moment in saves and not moved and not is_part:
            moved = {record.target or record.path: moment}
            made.add(moment)
            last = max((n for n in steps if n < act.start), default=0)
            if moment in over or any(save in made and save[1] < last for save in there.values()):
                compared.add(moment)
        own = made.intersection(moved.values())
        if (record.target or record.path) in there:
            compared |= own
        if act.path in several:
            compared -= own.difference(over)
        if record.op != "remove":
            there |= moved
    return len(compared), len(made)
