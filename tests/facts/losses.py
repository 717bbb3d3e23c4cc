"""What backward() calls give to the elements of their losses, written by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ddpcheck import evidence as ev
from tests.judging.written import Made

Elements = tuple[int, float]
"""How many elements a part of a loss has, and what each of them is given."""

LINE = 7


def losses(
    given: Callable[[int, int, int], Elements | Sequence[Elements]],
    *,
    steps: int = 4,
    calls: int = 1,
    value: Callable[[int, int, int], float | None] = lambda rank, step, call: 1.0 + rank + 10 * step + 100 * call,
    term: Callable[[int], dict[str, Any]] = lambda _: {},
    **more: Any,
) -> Callable[[int], list[Made]]:
    """By rank, step and backward() call, what the loss is made of; ``term``: by part, what else is known of it."""

    def of(rank: int) -> list[Made]:
        found: list[Made] = []
        for number in range(steps):
            for call in range(calls):
                each = given(rank, number, call)
                parts = [each] if isinstance(each[0], int) else each
                terms = [
                    ev.Term(**{"by": "NllLoss", "elements": n, "weight": w, "kind": "elements", **term(place)})
                    for place, (n, w) in enumerate(parts)
                ]
                fields = {
                    "backward": number * calls + call + 1,
                    "site": LINE,
                    "terms": terms,
                    "fresh": True,
                    "value": value(rank, number, call),
                    **more,
                }
                found.append((ev.LossWeights, fields))
        return found

    return of
