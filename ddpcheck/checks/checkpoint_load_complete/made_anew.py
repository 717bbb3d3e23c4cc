"""Moments that were loaded into an optimizer which is never stepped: another one, made afterwards, is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.facts.states import reads
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite, Finding


class Given(NamedTuple):
    """State that an optimizer of this process was given."""

    n: int
    site: int
    made: int
    """The optimizers that there were by then."""
    kind: str
    """The class of the optimizer; empty where it is not known."""


def judge(world: World) -> Iterator[Finding]:
    """Of each line that loads, say it once."""
    groups: dict[CallSite | None, list[tuple[Rank, ev.Optimizer]]] = defaultdict(list)
    for rank in world:
        for given in _given_states(world, rank):
            stepped = _stepped_instead(rank, given)
            if stepped is not None:
                groups[rank.where(given.site)].append((rank, stepped))
    for where, each in groups.items():
        rank, optimizer = each[0]
        yield Finding(
            rule="optimizer-built-after-load",
            severity="warning",
            ranks=tuple(sorted({one.rank for one, _ in each})),
            subject=f"the {optimizer.kind}",
            expected="a training that loads the state of an optimizer to go on with that optimizer",
            found=f"steps of an {optimizer.kind} alone, which was built after this load and was given nothing",
            cause="the optimizer is made anew once the state is loaded, and moments and step counts begin anew with it",
            advice="Build the optimizer first, and load its state last.",
            where=where,
            count=len(each),
            proof=rank.proof(optimizer.site, but=where),
        )


def _given_states(world: World, rank: Rank) -> Iterator[Given]:
    trained = {step.optimizer: step.n for step in reversed(rank.of(ev.Step))}
    for loaded in rank.of(ev.StateLoaded):
        # One that has trained before was put back, as after a search for a rate, and has served.
        if (
            loaded.owner == "optimizer"
            and loaded.optimizer >= 0
            and trained.get(loaded.optimizer, loaded.n) >= loaded.n
        ):
            # Of those before it, one may have been given its state first.
            yield Given(loaded.n, loaded.site, loaded.optimizer + 1, loaded.kind)
    for state in reads(world):
        record = state.record
        of_torch = state.rank is rank and isinstance(record, ev.StateRead) and record.how == "dcp.load"
        if of_torch and any(entry.role == "moment" for entry in state.form.entries):
            assert isinstance(record, ev.StateRead)
            yield Given(record.n, record.site, record.made, "")


def _stepped_instead(rank: Rank, given: Given) -> ev.Optimizer | None:
    """The optimizer that goes on, where it was built later, was given nothing by any way, and no earlier one steps."""
    numbers = {step.optimizer for step in rank.of(ev.Step) if step.n > given.n}
    if not numbers or min(numbers) < given.made:
        return None
    loaded = {one.optimizer for one in rank.of(ev.StateLoaded) if one.owner == "optimizer" and one.n > given.n}
    if loaded:
        return None
    first = next((one for one in rank.of(ev.Optimizer) if one.optimizer in numbers), None)
    if first is None or first.begun or given.kind not in ("", first.kind):
        return None
    return first
