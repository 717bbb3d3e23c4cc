"""The judge of optimizer-sync, over ranks that hold parts of one model and skip steps."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.optimizer_sync.run import judge
from tests.judging.loaded import digest
from tests.judging.written import call, ended, step, transfers, world

LINE = 50
FLAT = {"ground": "FSDP", "placements": ("F",), "among": (0, 1)}


def described(number, layout):
    part = ev.Layout(**{**layout, "holders": (number,)}) if layout else None
    parameter = ev.Parameter(name="flat", kind="float32 (8,)", wrapper=None, reduced=False, layout=part)
    given = {"optimizer": 0, "kind": "SGD", "site": LINE, "parameters": [parameter], "sharded": False, "values": b""}
    return ev.Optimizer, given


def rank(number, *backwards, layout=FLAT, others=4, collectives=1, alike=False, scale=None, op="all_reduce"):
    """A rank that has stepped each time after so many backward() calls."""
    steps = [
        step(
            LINE,
            number=place,
            backwards=times,
            collectives=collectives * times,
            scale=scale,
            parameters=digest("same" if alike else f"rank {number}"),
        )
        for place, times in enumerate(backwards)
    ]
    return [described(number, layout), call(0, LINE - 9, op), *steps, transfers(others=others), ended()]


def said(*ranks):
    return judge(world(*ranks))


def test_shards_that_step_together():
    """Skipped on both is right."""
    both = world(rank(0, 1, 2, 1, 1), rank(1, 1, 2, 1, 1))
    assert judge(both).findings == ()


def test_shards_that_skip_different_steps():
    """It is told at the step that one of them has made alone."""
    (finding,) = said(rank(0, 1, 2, 1, 1), rank(1, 1, 1, 1, 1, 1)).findings
    assert (finding.severity, finding.ranks, finding.where.line, finding.step, finding.count) == (
        "error", (0, 1), LINE, 1, 1
    )  # fmt: skip
    assert finding.found.startswith("none on rank 0; a step after 2 backward() calls on rank 1")
    assert finding.cause.startswith("each rank decides")


def test_parts_of_a_program_s_own():
    """Nobody says that they are parts, but that something is exchanged for every backward() which is no gradient."""
    ranks = [{"layout": None, "scale": 2.0}] * 2
    (finding,) = said(rank(0, 1, 2, 1, 1, **ranks[0]), rank(1, 1, 1, 1, 1, 1, **ranks[1])).findings
    assert finding.severity == "warning"
    assert finding.cause.startswith("each rank's scaler")


@pytest.mark.parametrize(
    "more",
    [{"others": 0}, {"collectives": 0}, {"alike": True}, {"op": "all_gather"}],
    ids=["numbers alone", "now and then", "copies", "answers"],
)
def test_models_of_each_rank_s_own(more):
    """They may skip what they like; copies are compared elsewhere."""
    ranks = rank(0, 1, 2, 1, 1, layout=None, **more), rank(1, 1, 1, 1, 1, 1, layout=None, **more)
    assert [one for one in said(*ranks).findings if "parts" in one.subject] == []


def test_models_that_are_sharded_apart():
    """Each over its own ranks."""
    alone = rank(0, 1, 2, 1, 1, layout={**FLAT, "among": (0,)}), rank(1, 1, 1, 1, 1, layout={**FLAT, "among": (1,)})
    assert said(*alone).findings == ()


def test_a_rank_that_calls_backward_twice_for_each_step():
    """It counts otherwise, and skips nothing."""
    assert said(rank(0, *[2] * 6), rank(1, *[1] * 12)).findings == ()


def test_windows_of_other_lengths():
    """With gradients that are reduced once a window, each rank may choose how many micro-batches it has."""
    ranks = rank(0, 2, 1, 1, 1, 1), rank(1, 1, 2, 1, 1, 1)
    for records in ranks:
        for _, given in records:
            if "backwards" in given:
                given["collectives"] = 2
    assert judge(world(*ranks)).findings == ()


def test_what_one_rank_trains_beside():
    """An optimizer that holds no shard steps when its rank likes."""
    kind, given = described(0, None)
    own = [(kind, {**given, "optimizer": 1}), step(LINE + 9, number=0, optimizer=1, backwards=5, collectives=0)]
    mine = rank(0, 1, 1, 1, 1)
    assert judge(world([mine[0], *own, *mine[1:]], rank(1, 1, 1, 1, 1))).findings == ()
