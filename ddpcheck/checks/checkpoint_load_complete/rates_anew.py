"""Learning rates that begin anew once a state is loaded: moments were saved and loaded, and rates were not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.checks.checkpoint_load_complete.made_anew import Given, given_states
from ddpcheck.judging.file_history import SAVES
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite, Finding

BEFORE = 2
"""Steps that had been made when the first state was saved: one that is saved at the beginning brings that back."""

Rates = list[float]


class _Anew(NamedTuple):
    rank: Rank
    opened: Sequence[Rates]
    last: Rates
    """Of the last step before the load."""
    step: ev.Step
    """The second one after it."""


def judge(world: World) -> Iterator[Finding]:
    """Of each line that loads, say it once; and of one of several loads that one step follows."""
    groups: dict[CallSite | None, list[_Anew]] = defaultdict(list)
    for rank in world:
        found = {}
        for given in given_states(world, rank):
            anew = _anew(rank, given)
            if anew is not None:
                found[anew.step.n] = rank.where(given.site), anew
        for where, anew in found.values():
            groups[where].append(anew)
    for where, each in groups.items():
        yield _finding(where, each)


def _anew(rank: Rank, given: Given) -> _Anew | None:
    """Where the second and the third step after a load have the rates that these had when the training began."""
    saves = [one.n for one in rank.of(ev.SaveBegan)]
    saves += [one.n for one in rank.of(ev.File) if one.op == "write" and one.how in SAVES]
    first_save = min(saves, default=given.n)
    steps = rank.of(ev.Step)
    if not steps or first_save >= given.n:
        return None
    before = [one for one in steps if one.optimizer == steps[0].optimizer and one.n < given.n]
    later = [one for one in steps if one.n > given.n]
    after = [one for one in later if one.optimizer == later[0].optimizer][:3]
    opened = before[:3]
    if len(opened) < 3 or len(after) < 3 or sum(one.n < first_save for one in before) < BEFORE:
        return None
    if not _are_in_a_row(opened) or not _are_in_a_row(after) or opened[0].number != 0:
        return None
    rates = [one.rates for one in opened]
    if len({tuple(one) for one in rates}) < 3 or any(ev.UNREAD in one for one in rates):
        return None
    again = [one.rates for one in after[1:]] == rates[1:]
    # Rates that come back by themselves, as after a restart of a cosine, may do so here.
    comes_back = any(one.rates in rates for one in before[3:])
    return _Anew(rank, rates, before[-1].rates, after[1]) if again and not comes_back else None


def _are_in_a_row(steps: Sequence[ev.Step]) -> bool:
    return [one.number for one in steps] == [steps[0].number + place for place in range(len(steps))]


def _finding(where: CallSite | None, each: list[_Anew]) -> Finding:
    first = each[0]
    opened = ", ".join(f"{rates[0]:.4g}" for rates in first.opened[1:])
    stepped = first.rank.where(first.step.site)
    return Finding(
        rule="learning-rate-restart",
        severity="warning",
        ranks=tuple(sorted({one.rank.rank for one in each})),
        subject="the learning rates",
        step=first.step.number,
        expected="a training that goes on with the moments of an optimizer to go on with its learning rates",
        found=f"those of the training's own beginning at the steps after the load ({opened}), where the last one "
        f"before it had {first.last[0]:.4g}",
        cause="the scheduler's state, or the optimizer's groups, are not in the checkpoint, or not given back",
        advice="Save and load the scheduler's state_dict() as well, and the optimizer's groups with its moments.",
        where=where,
        count=len(each),
        proof=((first.rank.rank, stepped),) if stepped is not None and stepped != where else (),
    )
