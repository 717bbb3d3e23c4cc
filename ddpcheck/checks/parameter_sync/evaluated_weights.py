"""Do all ranks evaluate the same weights of a wrapped model? Judge of parameter-sync between the steps.

That the ranks hold other weights on purpose is nothing rare: each may try its own perturbation, or a checkpoint of its
own. A finding takes ranks that were equal, and a part of them that has left the others behind.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator

from ddpcheck import evidence as ev
from ddpcheck.judging import step_alignment
from ddpcheck.judging.evaluation_alignment import Evaluation, evaluations
from ddpcheck.judging.replicated_parameters import grounds
from ddpcheck.judging.step_alignment import Aligned, Replicas
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import count, listing, ranks_text

_REDUCED = ("all_reduce", "reduce")
"""Collectives that make one number of what each rank has found."""


def judge(world: World) -> tuple[int, list[Finding]]:
    """Compare what the ranks evaluate with what all of them held after the last step.

    How often that was compared, and what was found.
    """
    optimizers = step_alignment.optimizers(world)
    states = {one.called: _State(world, one, optimizers) for one in step_alignment.wrappers(world)}
    checked = 0
    findings: dict[tuple[object, ...], Finding] = {}
    for replicas, records in evaluations(world):
        if replicas is None or {rank.rank for rank, _ in records} != {rank.rank for rank in replicas.ranks}:
            continue
        state = states[replicas.called]
        places = set.intersection(*(set(one.reduced) for _, one in records))
        digests = [one.parameters.digests for _, one in records]
        if not state.equal or not state.is_told_of(records) or not step_alignment.are_seen(digests, places):
            continue
        checked += 1
        apart = [place for place in step_alignment.differing(digests) if place in places]
        finding = _finding(state, records, apart, len(places)) if apart else None
        if finding is not None:
            findings.setdefault((*replicas.called, finding.where), finding)
    return checked, list(findings.values())


class _State:
    """A wrapped module's parameters on all ranks, from one step to the next."""

    def __init__(self, world: World, replicas: Replicas, optimizers: Iterable[Aligned]) -> None:
        self.replicas = replicas
        held = [(one, places) for one in optimizers if (places := self._of(one))]
        known = {(rank.rank, described.optimizer) for one, _ in held for rank, described in _described(one)}
        self.steps = {rank.rank: self._steps(rank) for rank in replicas.ranks}
        compared = [(step, places) for one, places in held for _, step in one.compared()]
        self.compared = [{step[place].n for step, _ in compared} for place in range(len(replicas.ranks))]
        """Rank by rank, the steps that were compared."""
        self.equal = (
            not _constructed_apart(replicas)
            and all((number, step.optimizer) in known for number, steps in self.steps.items() for step in steps)
            and all(places <= set(grounds(world, one).parameters) for one, places in held)
            and not any(places & set(_differing(step)) for step, places in compared)
        )
        """The ranks were equal from the wrap on wherever they had to be, and were compared."""

    def _of(self, optimizer: Aligned) -> set[int]:
        """The places of an optimizer's parameters that the wrapper reduces, if it steps them on all of its ranks."""
        if [r.rank for r in optimizer.ranks] != [r.rank for r in self.replicas.ranks]:
            return set()
        number = self.replicas.number
        return {i for i, p in enumerate(optimizer.described[0].parameters) if p.wrapper == number and p.reduced}

    def _steps(self, rank: Rank) -> list[ev.Step]:
        """The steps of all optimizers that hold some of its parameters."""
        number = self.replicas.of(rank)
        mine = {o.optimizer for o in rank.of(ev.Optimizer) if any(p.wrapper == number for p in o.parameters)}
        return [step for step in rank.of(ev.Step) if step.optimizer in mine]

    def is_told_of(self, records: Evaluation) -> bool:
        """Whether steps that come after an evaluation were compared, if any do: where the ranks go on differing, that
        is told there."""
        for place, (rank, one) in enumerate(records):
            after = {step.n for step in self.steps[rank.rank] if step.n > one.n}
            if after and not after & self.compared[place]:
                return False
        return True

    def since(self, rank: Rank, one: ev.Evaluated) -> int:
        """The ``n`` of the last step before an evaluation, or of the wrap."""
        steps = [step.n for step in self.steps[rank.rank] if step.n < one.n]
        return max(steps, default=self.replicas.wrapped[self.replicas.ranks.index(rank)].n)

    def unchanged(self, place: int, one: ev.Evaluated) -> bool | None:
        """Whether a rank's parameters are those that it held after the last step; None where that is not known."""
        rank = self.replicas.ranks[place]
        last = {step.optimizer: step for step in self.steps[rank.rank] if step.n < one.n}
        if not all(step.whole and step.n in self.compared[place] for step in last.values()):
            return None
        digests = [step.parameters for step in last.values()] or [self.replicas.wrapped[place].parameters.digests]
        held = {step_alignment.at(each, at) for each in digests for at in range(len(each) // ev.WIDTH)}
        return {step_alignment.at(one.parameters.digests, at) for at in one.reduced} <= held


def _constructed_apart(replicas: Replicas) -> bool:
    names = replicas.wrapped[0].parameters.names
    apart = step_alignment.differing([w.parameters.digests for w in replicas.wrapped])
    return any(names[place] not in replicas.wrapped[0].ignored for place in apart)


def _described(optimizer: Aligned) -> Iterator[tuple[Rank, ev.Optimizer]]:
    return zip(optimizer.ranks, optimizer.described, strict=True)


def _differing(step: list[ev.Step]) -> list[int]:
    return step_alignment.differing([one.parameters for one in step])


def _finding(state: _State, records: Evaluation, apart: list[int], among: int) -> Finding | None:
    """A finding, if some ranks are where all were, and others are not."""
    loads = {rank.rank: site for rank, one in records if (site := _loaded(state, rank, one)) is not None}
    if loads:
        moved = set(loads)
        which = f"only {ranks_text(sorted(moved))} loaded a state into it after the last step (or the wrap)"
        where: CallSite | None = loads[min(loads)]
        # What they loaded is put down to them alone where the results of all ranks become one.
        severity = "error" if all(_is_reduced(state, rank, one) for rank, one in records) else "warning"
    else:
        kept = [state.unchanged(place, one) for place, (_, one) in enumerate(records)]
        moved = {rank.rank for (rank, _), same in zip(records, kept, strict=True) if same is False}
        if None in kept or not moved:
            return None
        which = f"it was changed on {ranks_text(sorted(moved))} alone after the last step (or the wrap)"
        where = next((rank.where(one.site) for rank, one in records if rank.rank in moved), None)
        severity = "warning"  # they may try out something
    if len(moved) == len(records) or not _agree(records, apart, but=moved):
        return None
    first = records[0][1]
    names = [first.parameters.names[place] for place in apart]
    proof = [(rank.rank, site) for rank, one in records if (site := rank.where(one.site)) is not None]
    return Finding(
        rule="different-evaluated-weights",
        severity="error" if severity == "error" else "warning",
        ranks=tuple(sorted(moved)),
        subject=f"the {first.kind} that is evaluated",
        expected="all ranks to hold the same parameters of a wrapped model that all of them evaluate",
        found=f"{len(names)} of {count(among, 'parameter')} to differ: {listing(names)}",
        cause=f"{which}, and DDP sends no rank's parameters to the others",
        advice="Do it on every rank, or broadcast the parameters before the evaluation.",
        where=where,
        links=(f"model {first.module}",),
        proof=tuple((rank, site) for rank, site in proof if site != where),
    )


def _loaded(state: _State, rank: Rank, one: ev.Evaluated) -> CallSite | None:
    """The line that has loaded a state into the wrapped module since the last step."""
    since, number = state.since(rank, one), state.replicas.of(rank)
    found = [
        loaded
        for loaded in rank.of(ev.StateLoaded)
        if loaded.owner == "module" and loaded.wrapped and loaded.wrapper == number and since < loaded.n < one.n
    ]
    return rank.where(found[-1].site) if found else None


def _is_reduced(state: _State, rank: Rank, one: ev.Evaluated) -> bool:
    """Whether a rank's results may have gone into one number of all ranks, before the next step."""
    until = min((step.n for step in state.steps[rank.rank] if step.n > one.n), default=math.inf)
    return any(call.op in _REDUCED and one.n < call.n < until for call in rank.of(ev.Call))


def _agree(records: Evaluation, places: list[int], but: Collection[int]) -> bool:
    """Whether all other ranks hold the same."""
    others = [one.parameters.digests for rank, one in records if rank.rank not in but]
    return not set(step_alignment.differing(others)).intersection(places)
