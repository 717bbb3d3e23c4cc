"""Evidence of ranks that train, written by hand: what each backward() has contributed, and what steps were made on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddpcheck import evidence as ev
from ddpcheck.evidence.sketches import NUMBERS, packed
from ddpcheck.judging.world import World
from tests.judging.sharded_models import digest, held, model, optimizer
from tests.judging.written import Made, step, world

Vector = NDArray[np.float64]
Contributed = Mapping[tuple[int, int], Vector]
"""By rank and backward(), what was contributed to one tensor."""
Stepped = Callable[[int, str, Contributed, Vector | None], Vector | None]
"""What a rank steps on: its number, the tensor, the contributions, and what it stepped on before; None of nothing."""

STEP_LINE = 9


def word(vector: Vector) -> str:
    """A word for what a tensor holds: equal ones have one."""
    return hashlib.sha1(vector.tobytes()).hexdigest()[:8]


def own(rank: int, _: str, of: Contributed, __: Vector | None) -> Vector:
    """The sum of what the rank itself has contributed."""
    return np.sum([one for (other, _), one in of.items() if other == rank], axis=0)


def mean(_: int, __: str, of: Contributed, ___: Vector | None) -> Vector:
    """The mean over all ranks."""
    return np.sum(list(of.values()), axis=0) / (max(rank for rank, _ in of) + 1)


def among(*groups: Sequence[int]) -> Stepped:
    """The mean over the group of each rank."""

    def stepped(rank: int, _: str, of: Contributed, __: Vector | None) -> Vector:
        group = next(one for one in groups if rank in one)
        return np.sum([one for (other, _), one in of.items() if other in group], axis=0) / len(group)

    return stepped


def trained(
    stepped: Mapping[str, Stepped],
    *,
    ranks: int = 2,
    calls: int = 1,
    steps: int = 4,
    began: Callable[[int, str], str] = lambda _, name: name,
    filled: Sequence[str] = (),
    parts: bool = True,
    moved: bool = False,
    contributed: Callable[[int, int, int, str], Vector] | None = None,
    more: Callable[[int], list[Made]] = lambda _: [],
    after: Callable[[int], list[Made]] = lambda _: [],
    owners: Mapping[str, int] | None = None,
    piece: Mapping[str, Any] | None = None,
    layout: Callable[[int], ev.Layout | None] = lambda _: None,
    elements: int | Mapping[str, int] = 64,
    sites: Sequence[int] = (7, 7, 7),
    values: Callable[[int, int], Sequence[tuple[str, str, str]]] | None = None,
    looked: Callable[[int, int], bool] = lambda _, __: True,
    usage: Callable[[int], Sequence[ev.Usage]] = lambda _: (),
    within: Callable[[int], Sequence[tuple[str, str, int | None]]] = lambda _: (),
    copies: Callable[[int, int, str], tuple[Vector, Vector]] | None = None,
    ended: Callable[[int], bool] = lambda _: True,
    idle: Callable[[int], bool] = lambda _: False,
) -> World:
    """Ranks that train tensors of these names for some steps.

    ``parts``: the copies differ after the first step. ``moved``: something writes to them between steps. ``owners``:
    the only rank that steps a tensor. ``more`` and ``after``: what is on record before and after.
    ``values``: by rank and step, the name of a module, and what it has read and made. ``sites``: the lines of the
    backward() calls. ``looked``: by rank and step, whether the rank has looked at it. ``usage``:
    by rank, what its steps say of wrappers. ``within``: by rank, what it exchanges in each backward(), before all else.
    ``copies``: by rank, step and tensor, what it holds when the window begins, and what the step leaves.
    ``ended``: by step, whether all elements were looked at when it was over. ``idle``: by step, whether there was no
    backward() since the one before.
    """
    draw = np.random.default_rng(3)
    before_step = [0]
    for number in range(steps):
        before_step.append(before_step[-1] + (0 if idle(number) else calls))
    drawn = {
        (number, rank, call, name): draw.normal(size=NUMBERS)
        for number in range(steps)
        for rank in range(ranks)
        for call in range(calls)
        for name in stepped
    }
    if contributed is not None:
        drawn = {key: contributed(*key) for key in drawn}
    sizes = dict.fromkeys(stepped, elements) if isinstance(elements, int) else elements
    before: dict[tuple[int, str], Vector] = {}
    records: list[list[Made]] = []
    for rank in range(ranks):
        mine = [name for name in stepped if owners is None or owners.get(name, rank) == rank]
        at = {name: place for place, name in enumerate(mine)}
        pieces = [
            ev.Piece(
                piece=n, model=0, path=name, shape=(sizes[name],), sizes=(sizes[name],), offset=(0,),
                layout=layout(rank), **{"dtype": "float32", **(piece or {})},
            )
            for n, name in enumerate(stepped)
        ]  # fmt: skip
        numbers = {name: n for n, name in enumerate(stepped)}

        def written(rank: int, number: int) -> list[int]:
            if copies is None:
                return [0] if moved else []
            each = {name: (copies(rank, number - 1, name)[1], copies(rank, number, name)[0]) for name in mine}  # noqa: B023
            return [at[name] for name, (end, start) in each.items() if word(end) != word(start)]  # noqa: B023

        each = [held(name, began(rank, name), filled=name in filled, layout=layout(rank)) for name in stepped]
        made: list[Made] = [
            *more(rank),
            model(2, *each),
            (ev.Pieces, {"pieces": pieces}),
            optimizer(
                3, {name: layout(rank) for name in mine}, [began(rank, name) for name in mine], groups=[len(mine)]
            ),
        ]

        def noted(moment: str, number: int, of: Mapping[str, Vector | None], words: Mapping[str, str]) -> Made:
            there = [name for name in of if of[name] is not None]
            on_entry = moment != "W"
            return ev.Values, {
                "at_moment": moment,
                "optimizer": 0 if on_entry else None,
                "number": number,
                "backwards": before_step[number + 1],
                "since": (before_step[number], number),
                "pieces": [numbers[name] for name in there],  # noqa: B023
                "places": [at[name] if on_entry else -1 for name in there],  # noqa: B023
                "digests": b"".join(digest(words[name]) for name in there),
                "sketches": packed([of[name] for name in there]),
            }

        for number in range(steps):
            tag = "" if number == 0 else f"{number}.{rank}" if parts else str(number)
            words = {name: began(rank, name)[:3] + tag for name in stepped}
            ends = {
                name: began(rank, name)[:3] + (f"{number + 1}.{rank}" if parts else str(number + 1)) for name in mine
            }
            first = {name: np.ones(NUMBERS) for name in stepped}
            last = {name: np.ones(NUMBERS) for name in mine}
            if copies is not None:
                first = {name: copies(rank, number, name)[0] for name in stepped}
                last = {name: copies(rank, number, name)[1] for name in mine}
                words, ends = ({name: word(one) for name, one in its.items()} for its in (first, last))
            after_step = b"".join(digest(ends[name]) for name in mine if ended(number))
            if not looked(rank, number):
                made.append(step(STEP_LINE, number=number, rates=[0.1], parameters=after_step))
                continue
            made.append(noted("W", number, first, words))
            made += [
                (ev.ModuleValues, {"model": 0, "backward": before_step[number] + 1, "places": [0], "modules": [name],
                                   "read": digest(read), "made": digest(put)})
                for name, read, put in (values(rank, number) if values is not None else ())
            ]  # fmt: skip
            made += [
                (ev.Contributions, {
                    "backward": before_step[number] + call + 1, "site": sites[call], "how": "backward",
                    "pieces": list(numbers.values()),
                    "sketches": packed([drawn[number, rank, call, name] for name in stepped]),
                    "whole": [False] * len(numbers), "versions": [0] * len(numbers),
                    "calls": list(within(rank)), "after": [1] * len(numbers) if within(rank) else [],
                })
                for call in range(before_step[number + 1] - before_step[number])
            ]  # fmt: skip
            gradients: dict[str, Vector | None] = {}
            for name in mine:
                of = {
                    (other, call): drawn[number, other, call, name]
                    for other in range(ranks)
                    for call in range(before_step[number + 1] - before_step[number])
                }
                gradients[name] = stepped[name](rank, name, of, before.get((rank, name)))
                if (found := gradients[name]) is not None:
                    before[rank, name] = found
            made.append(noted("G", number, gradients, dict.fromkeys(mine, f"g{number}.{rank}")))
            made.append(noted("U", number, last, ends))
            made.append(step(STEP_LINE, number=number, rates=[0.1], usage=[*usage(rank)], parameters=after_step))
            if number:
                made.append((ev.MovedBetween, {"optimizer": 0, "number": number, "moved": written(rank, number)}))
        records.append([*made, *after(rank)])
    return world(*records)
