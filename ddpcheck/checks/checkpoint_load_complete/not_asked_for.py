"""Moments that are in a checkpoint and were not asked for: the optimizer had none yet whose names could be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.judging.saved_state import State, reads, saved_at
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import count, listing


class _Left(NamedTuple):
    state: State
    names: list[str]
    """Of the moments, in the checkpoint."""
    optimizer: ev.Optimizer
    """That goes on without."""


def judge(world: World) -> Iterator[Finding]:
    """Of each line that loads, say it once.

    torch.distributed.checkpoint fills what it is given, and says nothing of
    what else is in the checkpoint: so a part of it can be loaded on purpose.
    Here the rest of the optimizer was asked for, under the same key.
    """
    groups: dict[CallSite | None, list[_Left]] = defaultdict(list)
    for state in reads(world):
        record = state.record
        if isinstance(record, ev.StateRead) and record.how == "dcp.load":
            left = _left(world, state, record)
            if left is not None:
                groups[state.where].append(left)
    for where, each in groups.items():
        first = each[0]
        rank = first.state.rank
        made = rank.where(first.optimizer.site)
        yield Finding(
            rule="moments-not-loaded",
            severity="warning",
            ranks=tuple(sorted({one.state.rank.rank for one in each})),
            subject=f"the {first.optimizer.kind}",
            expected="a training that loads an optimizer from its own checkpoint to load its moments, too",
            found=f"{count(len(first.names), 'moment')} in the checkpoint that the load did not ask for, beside what "
            f"it took under the same key, and an {first.optimizer.kind} that then made its first step with none: "
            f"{listing(first.names)}",
            cause="optimizer.state_dict() of an optimizer that has made no step has no moments, and "
            "torch.distributed.checkpoint fills only what it is given",
            advice="Give it get_optimizer_state_dict(model, optimizer), which makes the moments first, and put what "
            "was loaded into the optimizer by set_optimizer_state_dict().",
            where=where,
            count=len(each),
            proof=((rank.rank, made),) if made is not None and made != where else (),
        )


def _left(world: World, state: State, record: ev.StateRead) -> _Left | None:
    rank = state.rank
    asked = [entry.name for entry in state.form.entries]
    if any(entry.role == "moment" for entry in state.form.entries):
        return None
    saved = [one for one in saved_at(world, record.path, record.at) if one.rank is rank]
    names = [p.entry.name for one in saved for p in one.pieces if p.entry.role == "moment"]
    keys = {name.partition(".")[0] for name in names if "." in name}
    if not names or set(names) & set(asked) or not keys & {name.partition(".")[0] for name in asked if "." in name}:
        return None
    step = next((one for one in rank.of(ev.Step) if one.n > record.n), None)
    if step is None or step.number != 0:
        return None
    made = next((one for one in rank.of(ev.Optimizer) if one.optimizer == step.optimizer), None)
    return _Left(state, names, made) if made is not None and not made.begun else None
