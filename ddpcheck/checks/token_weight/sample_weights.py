"""What is wrong with the weights of a loss's elements in one step, and how that is said.

In one process that takes a loss over the whole batch, all elements have one
weight. So they have under DDP if every rank and micro-batch gives its own the
same one. Whether that weight is the right one depends on what the program
means: it is only questioned where its value has a plain reason.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.checks.token_weight import world_factor
from ddpcheck.checks.token_weight.world_factor import Text
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import count

TOLERANCE = 0.02
"""By how much of itself a weight may differ: as much as arithmetic in 16 bits makes of one."""

Kind = Literal["between ranks", "between micro-batches", "added up", "divided", "multiplied"]


class Batch(NamedTuple):
    """What one backward() has given to one part of the loss."""

    rank: int
    micro: int
    """The backwards of this line before the step, from 0."""
    term: ev.Term

    @property
    def total(self) -> float:
        """What all of its elements count together: 1 for a mean, and a factor for a mean that has one."""
        return self.term.elements * self.term.weight


class Part(NamedTuple):
    """One part of the loss in one step."""

    line: tuple[str, int]
    place: int
    """Among the parts of the loss at this line."""
    alone: bool
    """The loss has no other."""
    batches: tuple[Batch, ...]
    world_size: int
    forwards: set[int]
    """The numbers of forwards through wrappers before the step, as far as they are known."""
    averaged: bool
    """DDP alone brings the ranks' gradients together."""
    accumulates: bool
    """The backwards of a rank are of batches that a loader has handed out one after the other, or under no_sync()."""
    alone_in_step: bool
    """The program had no collective of its own since the step before: what is in the loss is of this rank alone."""
    unchanged: bool
    """The optimizer was seen to step on the gradients as backward() had left them."""
    where: CallSite | None
    source: tuple[Text, ...]
    """The functions that led to the backward(), as they were when the program ran."""

    @property
    def counted(self) -> list[Batch]:
        """Those in which something counts: a batch without a valid target, say, has no weight to compare."""
        return [one for one in self.batches if one.term.elements and one.term.weight]

    @property
    def compared(self) -> bool:
        """Something counts on several ranks."""
        return len({one.rank for one in self.counted}) > 1


class Fault(NamedTuple):
    """What is wrong."""

    kind: Kind | None
    """None where the weights differ, and not by the numbers of the elements: a loss may be given a weight."""
    heavy: Batch
    """One whose elements count most, and one whose elements count least."""
    light: Batch


def fault_of(part: Part) -> Fault | None:
    """What is wrong with a part of the loss; None where nothing was found."""
    counted = part.counted
    if not counted:
        return None
    heavy, light = max(counted, key=_weight), min(counted, key=_weight)
    if _weight(heavy) > (1 + TOLERANCE) * _weight(light):
        if not _are_means(counted) and not _are_shared_means(counted):
            return Fault(None, heavy, light)
        apart = len({one.rank for one in counted}) > 1 and any(
            _differ([one for one in counted if one.micro == micro]) for micro in {one.micro for one in counted}
        )
        return Fault("between ranks" if apart else "between micro-batches", heavy, light)
    kind = _scale(part, counted) if len(counted) == len(part.batches) else None
    return Fault(kind, heavy, light) if kind is not None else None


def _are_means(counted: Sequence[Batch]) -> bool:
    """Whether each batch counts as much as any other, or, where a rank's elements have one weight, each rank."""
    by_rank = [[one for one in counted if one.rank == rank] for rank in {one.rank for one in counted}]
    totals = [one.total for one in counted]
    if max(totals) <= (1 + TOLERANCE) * min(totals):
        return True
    if any(_differ(its) for its in by_rank):
        return False
    ranks = [math.fsum(one.total for one in its) for its in by_rank]
    return max(ranks) <= (1 + TOLERANCE) * min(ranks)


def _are_shared_means(counted: Sequence[Batch]) -> bool:
    """Whether each micro-batch counts as much as any other, its elements being spread over ranks with one weight."""
    micros = [[one for one in counted if one.micro == micro] for micro in {one.micro for one in counted}]
    totals = [math.fsum(one.total for one in its) for its in micros]
    return max(totals) <= (1 + TOLERANCE) * min(totals) and not any(_differ(its) for its in micros)


def _scale(part: Part, counted: Sequence[Batch]) -> Kind | None:
    """Whether the weight, which is the same for all, is another than that of one process, for a reason that shows."""
    term = counted[0].term
    each = {sum(one.rank == rank for one in counted) for rank in {one.rank for one in counted}}
    if not part.averaged or not part.unchanged or len(each) > 1 or term.scaled:
        return None
    (micros,) = each
    totals = [one.total for one in counted]
    if term.kind == "sum":
        return None
    if micros > 1 and part.accumulates and part.forwards == {micros} and all(_is_near(total, 1.0) for total in totals):
        return "added up"
    of_step = sum(totals) / part.world_size
    known = part.alone and len({one.term.factors for one in counted}) == 1
    if known and "/" in term.factors and _is_near(of_step, 1 / part.world_size) and world_factor.divisions(part.source):
        return "divided"
    known = known and part.alone_in_step  # what was gathered from all ranks is in the loss of each of them
    if known and "*" in term.factors and _is_near(of_step, part.world_size) and world_factor.products(part.source):
        return "multiplied"
    return None


_RULES: dict[Kind, str] = {
    "between ranks": "unequal-rank-weights",
    "between micro-batches": "unequal-micro-batch-weights",
    "added up": "undivided-micro-batches",
    "divided": "divided-by-world-size",
    "multiplied": "multiplied-by-world-size",
}


def finding(part: Part, fault: Fault, numbers: Sequence[int], unlike: bool = False) -> Finding:
    """A fault as it was at the first of these steps; ``unlike``: another part of the loss is weighed as it should be.

    A mean over each rank's own elements may be meant. A program that divides one
    loss by those of all ranks means to do so, and has not done it for the other.
    """
    assert fault.kind is not None
    expected, found, cause, advice = _TEXTS[fault.kind](part, fault)
    unlike = unlike and fault.kind == "between ranks" and not part.alone and fault.heavy.term.kind != "mean"
    if unlike:
        expected += (
            ", and as the elements of the other part of the loss do, which are divided by the number on all ranks"
        )
    return Finding(
        rule="inconsistent-loss-parts" if unlike else _RULES[fault.kind],
        ranks=tuple(sorted({one.rank for one in part.batches})),
        subject=f"the loss ({fault.heavy.term.by})",
        severity="error" if unlike else "warning",
        step=numbers[0],
        count=len(numbers),
        expected=expected,
        found=found,
        cause=cause,
        advice=advice,
        where=part.where,
        proof=tuple((part.batches[0].rank, place) for place in _factor(part, fault.kind)),
    )


def _factor(part: Part, kind: Kind | None) -> tuple[CallSite, ...]:
    """The line that scales the loss, where it is the only one that says so."""
    found = {"divided": world_factor.divisions, "multiplied": world_factor.products}.get(kind or "")
    places = found(part.source) if found is not None else []
    return tuple(places) if len(places) == 1 else ()


def _there(part: Part, kind: Kind) -> str:
    return "".join(f" ({one.file}:{one.line})" for one in _factor(part, kind))


def _to_tell(part: Part) -> str:
    return " If it is another factor of 2, a run with 3 ranks shows it." if part.world_size == 2 else ""


_Said = tuple[str, str, str, str]


def _uneven(part: Part, fault: Fault) -> _Said:
    heavy, light = fault.heavy, fault.light
    between = fault.kind == "between ranks"
    number = "all ranks have in the step together" if between else "all micro-batches of the step have together"
    gathered = "all_reduce it, and multiply the sum of the losses by the world size (by which DDP divides)"
    return (
        "every element of the loss to count the same in the update, as in one process that takes the whole batch",
        f"{_elements(heavy)} to count {_weight(heavy) / _weight(light):.3g} times as much as {_elements(light)}",
        "the loss is a mean over the elements of one rank or one micro-batch, and the numbers of these differ",
        f"Divide by the number of elements that {number}: "
        + (f"{gathered}." if between else "count them before the first backward() of the step."),
    )


def _added_up(part: Part, fault: Fault) -> _Said:
    micros = max(one.micro for one in part.batches) + 1
    return (
        f"the {micros} micro-batches of a step to count as much as one batch of all their elements, of which the loss "
        "is the mean",
        f"{micros} backwards before the step, each with the whole weight of a mean: the update is that of {micros} "
        "times the mean",
        "the loss is not divided by the number of micro-batches",
        f"Divide the loss by the number of micro-batches before backward(): (loss / {micros}).backward().",
    )


def _divided(part: Part, fault: Fault) -> _Said:
    size = part.world_size
    return (
        f"the elements of all {size} ranks to count as much as those of one process that takes the mean over them",
        f"a loss that is 1/{size} of a mean, of which DDP takes the mean over {size} ranks: the update is that of "
        f"1/{size} of the mean",
        "the loss is divided by the world size, and so are the gradients, by DDP",
        f"Leave the division by the world size to DDP{_there(part, 'divided')}.{_to_tell(part)}",
    )


def _multiplied(part: Part, fault: Fault) -> _Said:
    size = part.world_size
    return (
        f"the elements of all {size} ranks to count as much as those of one process that takes the mean over them",
        f"a loss that is {size} times a mean, on every rank: the update is that of {size} times the mean",
        "the loss is multiplied by the world size, as if DDP added the gradients up: it takes their mean",
        f"Leave the world size out of the loss{_there(part, 'multiplied')}.{_to_tell(part)}",
    )


_TEXTS = {
    "between ranks": _uneven,
    "between micro-batches": _uneven,
    "added up": _added_up,
    "divided": _divided,
    "multiplied": _multiplied,
}


def _elements(one: Batch) -> str:
    """``each of the 7 elements of rank 1 in backward 2 of the step``."""
    number = one.term.elements
    elements = "the one element" if number == 1 else f"each of the {count(number, 'element')}"
    return f"{elements} of rank {one.rank} in backward {one.micro + 1} of the step"


def _weight(one: Batch) -> float:
    return one.term.weight


def _differ(batches: Sequence[Batch]) -> bool:
    weights = [_weight(one) for one in batches]
    return max(weights) > (1 + TOLERANCE) * min(weights)


def _is_near(value: float, wanted: float) -> bool:
    return abs(value - wanted) <= TOLERANCE / 4 * wanted
