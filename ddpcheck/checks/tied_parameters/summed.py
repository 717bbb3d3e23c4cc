"""Parameters at other places of two ranks' optimizers whose gradients the program adds up at every step."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.judging import step_alignment
from ddpcheck.judging.replicated_parameters import lasts
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing, ranks_text

ENOUGH = 2
"""Steps with the same gradients on these ranks."""

Call = tuple[str, int, int]
"""A group, which of its calls before a step, and where in the call's tensor."""


class _End(NamedTuple):
    """A parameter of one rank whose gradient goes over a group at every step."""

    rank: Rank
    described: ev.Optimizer
    place: int

    @property
    def parameter(self) -> ev.Parameter:
        return self.described.parameters[self.place]

    @property
    def begun(self) -> bytes:
        return step_alignment.at(self.described.values, self.place)

    def steps(self) -> dict[int, tuple[ev.Step, bytes, bytes]]:
        """By number: its gradient on entry, and what it is afterwards."""
        found = {}
        for step in self.rank.of(ev.Step):
            if step.optimizer == self.described.optimizer and step.whole:
                gradient = step_alignment.at(step.gradients, self.place)
                value = step_alignment.at(step.parameters, self.place)
                if not {gradient, value} & {b"", ev.ABSENT, ev.UNSEEN}:
                    found[step.number] = step, gradient, value
        return found


def judge(world: World) -> tuple[int, list[Finding]]:
    """How many sets of them were compared, and what differs though its gradient is one and the same.

    What lies at the same place of the same optimizer on all of these ranks is
    for parameter-sync to compare: here are those that other ranks have
    elsewhere, as the first and the last stage have a table.
    """
    checked = 0
    findings: dict[tuple[int, ...], Finding] = {}
    for ends in _ends(world):
        each = [one.steps() for one in ends]
        common = sorted(set(each[0]).intersection(*each[1:]))
        alike = [number for number in common if len({one[number][1] for one in each}) == 1]
        if len(alike) < ENOUGH:
            continue
        checked += 1
        if all(len({one[number][2] for one in each}) > 1 for number in alike):
            finding = _finding(ends, each[0][alike[0]][0], len(alike))
            findings.setdefault(finding.ranks, finding)
    return checked, list(findings.values())


def _ends(world: World) -> Iterator[list[_End]]:
    """The parameters whose gradients go through one call, where they have other places."""
    by_call: dict[Call, list[_End]] = defaultdict(list)
    for rank, described in world.of(ev.Optimizer):
        records = [one for one in rank.of(ev.Exchanged) if one.optimizer == described.optimizer]
        # One that was given other parameters meanwhile has other places.
        twice = sum(one.optimizer == described.optimizer for one in rank.of(ev.Optimizer)) > 1
        if described.number or not records or records[0].number or twice:
            continue
        alone = Counter((one.group, one.number) for one in records[0].carried)
        for one in records[0].carried:
            if alone[one.group, one.number] > 1:
                continue  # in a bucket, whose order may be wrong
            if one.of == "gradient" and one.alike and not (one.flat or one.inside) and lasts(records, one):
                by_call[one.group, one.number, one.offset].append(_End(rank, described, one.place))
    for (group, _, _), ends in by_call.items():
        ranks = [rank.rank for rank in step_alignment.members(world, group)]
        if len(ranks) < 2 or [one.rank.rank for one in ends] != ranks:
            continue
        parameters = [one.parameter for one in ends]
        if len({p.kind for p in parameters}) > 1 or any(
            p.layout is not None or p.wrapper is not None for p in parameters
        ):
            continue
        if len({(one.place, len(one.described.parameters)) for one in ends}) > 1:
            yield ends


def _finding(ends: list[_End], step: ev.Step, times: int) -> Finding:
    names = [f"{one.parameter.name} (rank {one.rank.rank})" for one in ends]
    ranks = tuple(one.rank.rank for one in ends)
    apart = len({one.begun for one in ends}) > 1
    return Finding(
        rule="summed-copies-differ",
        severity="warning",
        ranks=ranks,
        subject=ends[-1].parameter.name,
        step=step.number,
        expected=f"{listing(names)}, whose gradients the program adds up over {ranks_text(ranks)} before every step, "
        "to be copies of one parameter",
        found=f"the same gradients, and other numbers after each of {count(times, 'step')} that were looked at"
        + (": they differed when training began" if apart else ""),
        cause="each rank has drawn or loaded its own, and only the gradients are brought together"
        if apart
        else "they are stepped otherwise: at other rates, or with other settings",
        advice="Give all of them the same numbers once, before training: broadcast the parameter over these ranks."
        if apart
        else "Step them alike: the same optimizer, rates, decay and state.",
        where=ends[0].rank.where(step.site),
        links=(f"optimizer {ends[0].described.optimizer}",),
    )
