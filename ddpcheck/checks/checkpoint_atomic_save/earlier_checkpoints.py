"""Saves that begin while an earlier checkpoint is there: only these have one that a kill may cost."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection

from ddpcheck import evidence as ev
from ddpcheck.facts.states import every_save
from ddpcheck.judging.file_history import LOADS, files_of
from ddpcheck.judging.several_writers import shared_paths
from ddpcheck.judging.world import World

Moment = tuple[int, int]
"""A rank, and the ``n`` at which it did something."""


def counted(world: World, puts: Collection[Moment]) -> tuple[set[Moment], set[Moment]]:
    """The saves that had an earlier checkpoint to leave whole, and all saves; ``puts`` put a file of one somewhere.

    A save is counted once, however often it is moved, and is not compared where several ranks write one of its paths.
    What ranks save to one folder by torch.distributed.checkpoint is a save of the first of them.
    """
    compared, made = set[Moment](), set[Moment]()
    several = {(act.number, act.start) for path in shared_paths(world) for act in files_of(world).writes[path]}
    folders = {state.record.path for state in every_save(world) if state.record.how.startswith("dcp")} - {""}
    for rank in world:
        began = [save for save in rank.of(ev.SaveBegan) if save.path in folders]
        folders -= {save.path for save in began}
        steps = [step.n for step in rank.of(ev.Step)]
        acts: list[ev.File | ev.SaveBegan] = [*rank.of(ev.File), *began]
        there: dict[str, Moment] = {}
        for act in sorted(acts, key=lambda act: act.n):
            moment, target, moved = (rank.rank, act.n), act.path, dict[str, Moment]()
            if isinstance(act, ev.File):
                if act.op == "read" and act.how in LOADS:
                    there.setdefault(act.path, moment)
                if act.op in ("rename", "remove") or (act.op == "write" and not act.existed):
                    target = act.target or act.path
                    below = [path for path in there if f"{path}/".startswith(f"{act.path}/")]
                    gone = {target + path[len(act.path) :]: there.pop(path) for path in below}
                    moved = gone if act.op == "rename" else {}
            if not moved and (moment in puts or isinstance(act, ev.SaveBegan)):
                moved = {target: moment}
                made.add(moment)
                last = max((0, *steps[: bisect_left(steps, act.n)][-1:]))
                compared.update(moment for save in there.values() if save in made and save[1] < last)
            saves = made.intersection(moved.values())
            compared |= saves if target in there else set()
            compared -= saves if moment in several else set()
            there |= moved
    return compared, made
