"""The whole of what ranks have recorded in parts: put together afterwards, so that no rank gathers anything for it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from ddpcheck.evidence.training_record import Fact, Part, Returned, Step


def with_whole_tensors(recorded: Sequence[list[Fact]]) -> list[list[Fact]]:
    """The facts of all ranks, with the whole of each parameter in the place of a rank's part of it.

    Where ranks hold copies of parts, each rank's whole is that of its own copy. The n-th step of a rank belongs to the
    n-th of the others; what no rank has recorded is zero.
    """
    steps = [[fact for fact in facts if isinstance(fact, Step)] for facts in recorded]
    ends = [[fact for fact in facts if isinstance(fact, Returned)] for facts in recorded]
    if not any(fact.parts or fact.frozen_parts for of_rank in steps for fact in of_rank):
        return [*recorded]
    found = []
    for facts in recorded:
        step_number, end_number = itertools.count(), itertools.count()
        made: list[Fact] = []
        for fact in facts:
            if isinstance(fact, Step):
                number = next(step_number)
                made.append(_whole_step(fact, [s[number] for s in steps if number < len(s)]))
            elif isinstance(fact, Returned):
                number = next(end_number)
                beside = [e[number] for e in ends if number < len(e)]
                made.append(replace(fact, parameters=_wholes(fact, beside, lambda one: one.parameters, _parts)))
            else:
                made.append(fact)
        found.append(made)
    return found


def _whole_step(own: Step, beside: Sequence[Step]) -> Step:
    return replace(
        own,
        before=_wholes(own, beside, lambda one: one.before, _parts),
        gradients=_wholes(own, beside, lambda one: one.gradients, _parts),
        after=_wholes(own, beside, lambda one: one.after, _parts),
        frozen=_wholes(own, beside, lambda one: one.frozen, lambda one: one.frozen_parts),
    )


def _parts(fact: Any) -> list[Part | None]:
    parts: list[Part | None] = fact.parts
    return parts


def _wholes(
    own: Any, beside: Sequence[Any], values: Callable[[Any], list[Any]], parts: Callable[[Any], list[Part | None]]
) -> list[Any]:
    """Each value of a rank, by the parts that those beside it have, itself among them."""
    found = []
    for place, value in enumerate(values(own)):
        mine = parts(own)[place] if place < len(parts(own)) else None
        if mine is None:
            found.append(value)
            continue
        held = [
            (part, values(one)[place])
            for one in beside
            if place < len(parts(one)) and (part := parts(one)[place]) is not None and place < len(values(one))
        ]
        found.append(_joined([(part, data) for part, data in held if part.copy == mine.copy]))
    return found


def _joined(held: Sequence[tuple[Part, bytes | None]]) -> bytes | None:
    """One value of its parts; None where no rank has any of it."""
    there = [(part, data) for part, data in held if data is not None]
    if not there:
        return None
    size = next((len(data) // math.prod(part.local) for part, data in there if data), 0)
    shape = there[0][0].shape
    whole = bytearray(math.prod(shape) * size)
    for part, data in there:
        if data:
            _paste(whole, part, data, size)
    return bytes(whole)


def _paste(whole: bytearray, part: Part, data: bytes, size: int) -> None:
    """Put the rows of a part, each along the last dimension, where they are in the whole."""
    row = (part.local[-1] if part.local else 1) * size
    outer = [range(length) for length in part.local[:-1]]
    for number, index in enumerate(itertools.product(*outer)):
        place = 0
        for at, begin, length in zip((*index, 0)[: len(part.shape)], part.offset, part.shape, strict=True):
            place = place * length + begin + at
        whole[place * size : place * size + row] = data[number * row : (number + 1) * row]
