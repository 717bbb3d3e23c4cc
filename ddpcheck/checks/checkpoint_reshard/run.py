"""Does what was saved come back, by name, however it is cut by then? Judge of checkpoint-reshard."""

from __future__ import annotations

from ddpcheck.checks.checkpoint_reshard import by_torch, into_models, into_optimizers, merged
from ddpcheck.checks.checkpoint_reshard.compared import Saved
from ddpcheck.judging.saved_state import reads, saves, seen_in_part
from ddpcheck.judging.world import Judged, World

_JUDGES = (by_torch.judge, into_models.judge, into_optimizers.judge, merged.judge)


def judge(world: World) -> Judged:
    """Compare what was given to be saved with what is held after a load, wherever the run shows both.

    Each tensor counts once by its name, on however many ranks and by however many loads it came back.
    """
    names, findings = set[Saved](), []
    for one in _JUDGES:
        looked, found = one(world)
        names |= looked
        findings += found
    if names:
        because = ""
    elif partly := seen_in_part(world):
        because = partly
    elif not saves(world) or not reads(world):
        because = "ddpcheck did not see both a save and a load of state"
    else:
        because = "ddpcheck saw no tensor that was loaded from a save of this run, whole or in declared shards"
    return Judged(checked=len(names), findings=tuple(findings), skipped_because=because)
