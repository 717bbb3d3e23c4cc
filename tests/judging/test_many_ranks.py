"""What judging costs where there are many ranks: seconds, and memory that grows with what is on record."""

from __future__ import annotations

import time
import tracemalloc

import pytest

from ddpcheck import evidence as ev
from ddpcheck.facts import parallelism_seen
from ddpcheck.verdict.judges import judge_world
from tests.judging.sharded_models import held, layout, mesh, model, optimizer, stepped
from tests.judging.written import call, world

CUBE = (4, 4, 4)
WAYS = [("S0", "S0", "R"), ("R", "S0", "S1"), ("R", "R", "S0")]


def group(rank, dim):
    """The ranks beside this one along a dimension of the cube; the world for none."""
    if dim is None:
        return "world"
    stride = (16, 4, 1)[dim]
    first = rank - rank // stride % 4 * stride
    return ",".join(str(first + place * stride) for place in range(4)) + f"#{dim + 1}"


def between_steps(rank, number, calls):
    """What a rank calls, and what is weighed, until its next step."""
    dims = (None, 0, 1, 2)
    made = [
        call(
            number * calls // 4 + c // 4,
            20 + c % 7,
            "all_reduce",
            group=group(rank, dims[c % 4]),
            detail="float32[64] sum",
        )
        for c in range(calls)
    ]
    terms = [ev.Term(by="NllLoss", elements=10 + rank, weight=1 / 2000, kind="mean")]
    return [*made, (ev.LossWeights, {"backward": number + 1, "site": 20, "terms": terms, "value": 1.0})]


def cube(parameters, steps, calls=40, bare=False):
    """A world of 64 ranks, whose parameters lie in turn in three ways; or nobody says how they lie."""
    ranks = []
    names = [f"{'norm' if n % 10 == 5 else 'layer'}{n}" for n in range(parameters)]
    for rank in range(64):
        layouts = {name: None if bare else layout(rank, CUBE, WAYS[n % 3]) for n, name in enumerate(names)}
        value = [
            f"{n % 3}{rank if one is None else '.'.join(map(str, one.holders))}"[:8]
            for n, one in enumerate(layouts.values())
        ]
        ranks.append(
            [
                mesh(CUBE, ("pp", "dp", "tp")),
                model(4, *[held(name, value[n], layouts[name]) for n, name in enumerate(names)]),
                optimizer(5, layouts, value),
            ]
        )
        for number in range(steps):
            moved = [f"+{one}"[:8] for one in value]
            ranks[-1] += [*between_steps(rank, number, calls), stepped(7, number, value, moved)]
    return world(*ranks)


@pytest.mark.parametrize("bare", [False, True])
def test_64_ranks_are_judged_in_seconds(bare):
    """A mesh of 4 x 4 x 4, 300 parameters, 50 steps that were looked at, 2000 calls of a rank; nobody is accused."""
    large = cube(300, 50, bare=bare)
    began = time.process_time()
    found = judge_world(large)
    parallelism_seen.paragraph(large)
    assert time.process_time() - began < 10
    assert [f.message for one in found.values() for f in one.findings if f.severity == "error"] == []
    if not bare:
        assert found["parameter-sync"].checked == 50


def test_memory_grows_with_records_and_not_with_pairs():
    """Twice the steps take about twice the memory, and are no more than some thousand bytes for each record."""
    peaks = []
    for steps in (10, 20):
        large = cube(30, steps, calls=8)
        tracemalloc.start()
        judge_world(large)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    records = sum(len(rank.of(kind)) for rank in large for kind in (ev.Call, ev.LossWeights, ev.Step))
    assert peaks[1] < 3 * peaks[0]
    assert peaks[1] < 3000 * records, (peaks, records)
