"""All parameters go into an exchange that makes the same of them on every rank, and none is written to afterwards."""

from __future__ import annotations

from ddpcheck import evidence as ev
from ddpcheck.judging import step_alignment
from ddpcheck.judging.brought_together import looks, written_between
from ddpcheck.judging.replicated_parameters import grounds, histories
from ddpcheck.judging.step_alignment import Aligned
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count

ENOUGH = 3
"""Exchanges after which the ranks differ as before: one alone may be for a log."""


def judge(world: World) -> tuple[int, list[Finding]]:
    """How many such exchanges were looked at, and what was found.

    Where there is nothing to say, no parameters were compared.

    Ranks that began alike, step each for itself and reduce nothing else have no
    other use for an average of their parameters but to take it. Who keeps it in
    another model evaluates that.
    """
    checked, findings = 0, []
    for optimizer in step_alignment.optimizers(world):
        numbers = _numbers(world, optimizer)
        if len(numbers) >= ENOUGH and not _is_kept_elsewhere(optimizer):
            checked += len(numbers)
            findings.append(_finding(world, optimizer, numbers))
    return checked, findings


def _numbers(world: World, optimizer: Aligned) -> list[int]:
    """The steps before which there was such an exchange that no rank has taken; none if one was taken."""
    parameters = optimizer.described[0].parameters
    if any(p.wrapper is not None or p.layout is not None for one in optimizer.described for p in one.parameters):
        return []
    if written_between(optimizer):
        return []  # some steps later, as an average that is sent meanwhile
    if step_alignment.differing([one.values for one in optimizer.described]) or grounds(world, optimizer).by_hand:
        return []
    every = set(range(len(parameters)))
    ended = {number: steps for number, steps in optimizer.compared() if all(s.whole for s in steps)}
    history = histories(optimizer)
    found, sure = [], False
    for number, apart, each in looks(world, optimizer):
        before = ended.get(number - 1)
        if apart != every or not all(_carried(records, number) == every for records in history):
            return []
        if before is not None and any(now.values != s.parameters for now, s in zip(each, before, strict=True)):
            return []
        sure |= before is not None  # after one of them every element is seen to be what it was
        found.append(number)
    return found if sure else []


def _carried(records: list[ev.Exchanged], number: int) -> set[int]:
    """The parameters of which a rank's exchanges before a step make the same on all ranks."""
    last = next((one for one in reversed(records) if one.number <= number), None)
    carried = last.carried if last is not None and not last.lost else []
    return {one.place for one in carried if one.of == "parameter" and one.alike and not one.inside}


def _is_kept_elsewhere(optimizer: Aligned) -> bool:
    """Whether a rank calls another model of the same parts, which the average may be for."""
    names = {one.path or one.name for one in optimizer.described[0].parameters}
    for rank in optimizer.ranks:
        alike = [one for one in rank.of(ev.Model) if names <= {held.name for held in one.held}]
        if len(alike) > 1:
            return True
    return False


def _finding(world: World, optimizer: Aligned, numbers: list[int]) -> Finding:
    parameters = optimizer.described[0].parameters
    lines = next(each[0].sites for number, _, each in looks(world, optimizer) if number == numbers[0])
    return Finding(
        rule="average-not-applied",
        severity="warning",
        ranks=tuple(rank.rank for rank in optimizer.ranks),
        subject=parameters[0].name,
        step=numbers[0],
        expected="what this line makes of the parameters of all ranks, which began alike, to be written to them",
        found=f"{count(len(parameters), 'parameter')} that each rank holds as its step before had left them, and that "
        f"differ between the ranks, in each of {count(len(numbers), 'exchange')} looked at",
        cause="the average is made in a copy, or bound to a name, and no parameter takes it: every rank trains alone",
        advice="Write it to the parameters, with torch.no_grad(): p.copy_(average); or accept it, where it is only "
        "looked at.",
        where=optimizer.ranks[0].where(lines[0]) if lines else None,
        count=len(numbers),
        links=(f"optimizer {optimizer.number}",),
    )
