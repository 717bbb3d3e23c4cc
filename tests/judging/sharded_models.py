"""Evidence of models that lie on a mesh, written by hand: layouts, meshes, models at their first forward, steps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from ddpcheck import evidence as ev
from tests.judging.written import Made, step


def digest(value: str) -> bytes:
    """Eight bytes for a word; equal words are equal tensors."""
    return value.encode().ljust(ev.WIDTH, b".")[: ev.WIDTH]


def mesh(shape: Sequence[int], names: Sequence[str] = (), first: int = 0, number: int = 0) -> Made:
    """A mesh of the ranks from ``first`` on."""
    ranks = tuple(range(first, first + math.prod(shape)))
    return ev.Mesh, {"mesh": number, "names": tuple(names), "shape": tuple(shape), "ranks": ranks}


def layout(rank: int, shape: Sequence[int], placements: Sequence[str], first: int = 0, **more: Any) -> ev.Layout:
    """Where a tensor of 64 elements lies, for one rank of a mesh."""
    places = list(itertools.product(*map(range, shape)))
    mine = places[rank - first]
    holders = [
        first + number
        for number, one in enumerate(places)
        if all(a == b for a, b, way in zip(mine, one, placements, strict=True) if way != "R")
    ]
    given = {"shape": (64,), "mesh": 0, "local": (16,), **more}
    return ev.Layout(ground="DTensor", placements=tuple(placements), holders=tuple(holders), **given)


def held(name: str, value: str = "", layout: ev.Layout | None = None, **more: Any) -> ev.Held:
    """A parameter of a model."""
    given = {"kind": "float32[64]", "digest": digest(value or name), **more}
    return ev.Held(name=name, layout=layout, **given)


def model(line: int, *tensors: ev.Held, ties: Sequence[ev.Tie] = (), **more: Any) -> Made:
    """A model at its first forward."""
    return ev.Model, {"model": 0, "kind": "Net", "site": line, "held": list(tensors), "ties": list(ties), **more}


def optimizer(line: int, parameters: dict[str, ev.Layout | None], values: Sequence[str] = (), **more: Any) -> Made:
    """An optimizer over parameters of model 0; ``values`` are theirs on entry to the first step."""
    listed = [
        ev.Parameter(
            name=name,
            kind="float32[64]",
            wrapper=None,
            reduced=False,
            unseen="DTensor" if where is not None and where.ground == "DTensor" else "",
            layout=where,
            model=0,
            path=name,
        )
        for name, where in parameters.items()
    ]
    given = {
        "optimizer": 0, "kind": "SGD", "site": line, "parameters": listed, "sharded": False,
        "groups": [len(listed)], "values": b"".join(map(digest, values or parameters)), **more,
    }  # fmt: skip
    return ev.Optimizer, given


def stepped(line: int, number: int, gradients: Sequence[str], parameters: Sequence[str] = (), **more: Any) -> Made:
    """A step that was looked at in full."""
    after = b"".join(map(digest, parameters or gradients))
    given = {"number": number, "place": number, "rates": [0.1], **more}
    return step(line, gradients=b"".join(map(digest, gradients)), parameters=after, **given)
