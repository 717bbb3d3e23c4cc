"""Checkpoints that torch.distributed.checkpoint still saves in the background when they are loaded."""

from __future__ import annotations

from collections import defaultdict

from ddpcheck import evidence as ev
from ddpcheck.judging.world import Judged, Rank, World
from ddpcheck.vocabulary.model import Finding

_Early = tuple[Rank, ev.StateSaved, ev.LoadBegan]


def judge(world: World) -> Judged:
    """Whether a rank's own asynchronous save is over when it loads from the same place.

    Where it is, all ranks' are: the save meets the others, and its metadata come
    last. One that is over by luck is not told apart from one that was waited for.
    """
    checked = 0
    groups: dict[str, list[_Early]] = defaultdict(list)
    for rank in world:
        saves = [one for one in rank.of(ev.StateSaved) if one.how == "dcp.async_save"]
        over = {one.save: one.n for one in rank.of(ev.StateWritten) if not one.staged}
        for load in rank.of(ev.LoadBegan):
            before = [one for one in saves if one.path == load.path and one.n < load.n]
            if not before:
                continue
            checked += 1
            if over.get(before[-1].save, load.n) >= load.n:
                groups[str(rank.where(load.site))].append((rank, before[-1], load))
    return Judged(checked=checked, findings=tuple(map(_finding, groups.values())))


def _finding(early: list[_Early]) -> Finding:
    rank, save, load = early[0]
    name = load.path.rpartition("/")[2]
    fails = any(one.of(ev.Raised) for one, _, _ in early)
    return Finding(
        rule="load-during-async-save",
        ranks=tuple(sorted({one.rank for one, _, _ in early})),
        subject=f"checkpoint {name}",
        expected=f"{name} to be whole before it is loaded: its .metadata, written last, says that it is",
        found="dcp.load() from where dcp.async_save() is still at work: nothing waits for what that has returned",
        advice="Call result() on what async_save() returned (on its upload_completion, where it has one) on every "
        "rank, and then load.",
        where=rank.where(load.site),
        count=len(early),
        links=(f"file {load.path}", *(("stop",) if fails else ())),
        proof=rank.proof(save.site),
    )
