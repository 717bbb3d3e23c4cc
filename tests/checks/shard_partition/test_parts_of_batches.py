"""Ranks that load the same samples, over passes written by hand: parts of a batch for each model, or all of it."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.shard_partition.run import PARTS, judge
from tests.judging.loaded import PLAIN, digest, drawn, loader, through
from tests.judging.written import ended, world, wrapped

BATCH = 4
GIVEN = [[BATCH, 33], [BATCH]]


def trained(rank, shapes, order=range(16), times=1, given=GIVEN, content=None, line=30, **more):
    """A rank whose model is given, for each batch, tensors of these shapes, so many times."""
    made, number = [], 0
    for record in through(list(order), batch=BATCH, **more):
        made.append(record)
        if record[0] is ev.Batch:
            for time in range(times):
                fields = {
                    "wrapper": 0, "number": number, "site": line, "shapes": shapes, "loader": 0, "pass_": 0,
                    "batch": record[1]["number"], "given": given, "samples": BATCH,
                    "digest": digest((rank if content is None else content, number, time)),
                }  # fmt: skip
                made.append((ev.Inputs, fields))
                number += 1
    return [wrapped(5), loader(**PLAIN), *made, ended()]


def shared(*ranks):
    return judge(world(*ranks))


@pytest.mark.parametrize(
    "shapes",
    [
        [[2, 33]],
        [[2, 33], [2]],
        [[2, 7, 5]],
        [[BATCH, 16]],
        [[BATCH, 16, 8]],
    ],
    ids=["rows", "rows-and-labels", "computed", "pieces", "pieces-embedded"],
)
def test_parts_of_one_batch_are_not_judged(shapes):
    """Rows or pieces of every sample that fit beside each other: what became of the others is not known."""
    judged = shared(trained(0, shapes), trained(1, shapes))
    assert (judged.checked, judged.findings, judged.skipped_because) == (0, (), PARTS)


@pytest.mark.parametrize(
    ("shapes", "more"),
    [
        ([[BATCH, 33]], {}),
        ([[BATCH, 32]], {}),
        ([[BATCH, 3, 8, 8]], {"given": [[BATCH, 3, 16, 16], [BATCH]]}),
        ([[BATCH, 1]], {}),
        ([[2, 33]], {"times": 2}),
        ([[2, 33]], {"content": "same"}),
        ([], {}),
    ],
    ids=["whole", "shifted", "cropped", "summary", "micro-batches", "equal", "unknown"],
)
def test_whole_batches_are_an_overlap(shapes, more):
    """Noise, crops and micro-batches make no part; nor are equal inputs parts of anything."""
    (finding,) = shared(trained(0, shapes, **more), trained(1, shapes, **more)).findings
    assert finding.severity == "error"
    assert finding.found.startswith("32 samples compared; 16 of them (50 %)")


def test_ranks_with_orders_of_their_own_take_no_parts_of_one_batch():
    """Each takes half of a batch that the other does not have."""
    half = [[2, 33]]
    (finding,) = shared(trained(0, half), trained(1, half, order=range(15, -1, -1))).findings
    assert finding.severity == "error"


def test_samples_that_change_are_the_same_by_their_index():
    """Augmented on each rank by itself, and then cut into parts."""
    labels = [i * 7 % 5 for i in range(16)]
    ranks = [
        [
            drawn(r, "fetch"),
            *trained(r, [[2, 33]], contents=[f"{r}{i}" for i in range(16)], labels=labels),
        ]
        for r in (0, 1)
    ]
    assert shared(*ranks).skipped_because == PARTS


def test_pairs_that_share_their_batches_count_as_one():
    """Two by two the ranks hold pieces of one batch: the pairs have to share the data out."""
    mine, yours = range(0, 16, 2), range(1, 16, 2)
    pieces = [[BATCH, 16]]
    judged = shared(*[trained(r, pieces, order=[mine, yours][r // 2]) for r in range(4)])
    assert (judged.checked, judged.findings) == (1, ())
    (finding,) = shared(*[trained(r, pieces, order=[mine, reversed(mine)][r // 2]) for r in range(4)]).findings
    assert finding.severity == "error"
