"""Passes through DataLoaders, written by hand: what the probes of a run would have put down."""

from __future__ import annotations

import array
from collections.abc import Hashable, Sequence
from typing import Any

import xxhash

from ddpcheck import evidence as ev
from tests.judging.written import Made

LOADER = {
    "loader": 0, "dataset": "Digits", "size": 16, "stream": False, "sampler": "DistributedSampler",
    "distributed": True, "rank": 0, "replicas": 2, "shuffle": True, "seed": 0, "sampler_drops": False,
    "batch_size": 4, "drop_last": False, "workers": 0, "dataset_id": 1,
}  # fmt: skip
PLAIN = {"sampler": "RandomSampler", "distributed": False, "rank": None, "replicas": None, "seed": None}
OWN = {**PLAIN, "sampler": "MySampler", "shuffle": None}
STREAM = {**PLAIN, "sampler": "", "shuffle": None, "stream": True, "size": None, "dataset": "Feed"}
MADE, SAMPLER, LOOP, MODEL = 10, 11, 20, 30
"""The lines of the loader, its sampler, the loop over it, and the model's forward."""


def digest(value: Hashable) -> bytes:
    return xxhash.xxh3_64_digest(repr(value).encode())


def loader(line: int = MADE, **more: Any) -> Made:
    return ev.Loader, {**LOADER, "site": line, "sampler_site": SAMPLER, **more}


def through(
    indices: Sequence[int] | None,
    number: int = 0,
    of: int = 0,
    line: int = LOOP,
    contents: Sequence[Hashable] | None = None,
    labels: Sequence[Hashable] | None = None,
    batch: int = 4,
    trained: bool = True,
    ended: bool = True,
    between: Sequence[Made] = (),
    idle: int = 0,
    **more: Any,
) -> list[Made]:
    """A pass: a batch of so many samples after the other, each with what happens between it and the next one.

    Contents are the indices' own where they are not given; ``ended=False`` is
    a pass that goes on, ``exhausted=False`` one that was broken off. After
    the first ``idle`` batches there is no backward().
    """
    exhausted = more.pop("exhausted", True)
    order = more.pop("order", None)
    given = {"epoch": 0, "base_seed": None, "grad": True, **more}
    made: list[Made] = [(ev.Pass, {"loader": of, "number": number, "site": line, **given})]
    contents = list(indices or ()) if contents is None else list(contents)
    starts = range(0, len(contents), batch)
    for place, start in enumerate(starts):
        part = contents[start : start + batch]
        fields = {
            "loader": of,
            "pass_": number,
            "number": place,
            "indices": array.array("q", indices[start : start + batch]).tobytes() if indices is not None else b"",
            "prints": b"".join(map(digest, part)),
            "labels": b"".join(map(digest, labels[start : start + batch])) if labels is not None else b"",
            "backwards": max(0, place - idle) if trained else 0,
            "samples": len(part),
        }
        made += [(ev.Batch, fields), *between]
    if ended:
        fields = {
            "loader": of,
            "number": number,
            "batches": len(starts),
            "samples": len(contents),
            "exhausted": exhausted,
            "order": digest(order if order is not None else tuple(indices)).hex() if indices is not None else "",
            "backwards": len(starts) - idle if trained else 0,
        }
        made.append((ev.PassEnded, fields))
    return made


def drawn(state: Hashable, where: str = "forward", number: int = 0, **more: Any) -> Made:
    """A random state that was drawn from."""
    fields = {"kind": "torch", "where": where, "number": number, "state": digest(state), "consumed": True, **more}
    fields.setdefault("site", MODEL)
    if where == "forward":
        fields.setdefault("wrapper", 0)
    else:
        fields = {"loader": 0, "pass_": 0, **fields}
    return ev.Stream, fields
