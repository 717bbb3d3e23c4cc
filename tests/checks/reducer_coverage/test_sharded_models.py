"""What FSDP was seen to reduce, over the ranks that it was given, before each step."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.reducer_coverage.run import judge
from tests.judging.sharded_models import layout, mesh, optimizer, stepped
from tests.judging.written import call, ended, step, world

BOTH = (ev.Parallelised, {"how": "fully_shard", "site": 3, "ranks": (0, 1)})


def scattered(elements, number=0, group="world", op="reduce_scatter_tensor"):
    return call(number, 15, op, group=group, detail=f"float32 x {elements} avg")


def judged(*records, placements=("S0",), shape=(2,), declared=BOTH, names=("dp",)):
    """Ranks that have the same records around two steps on gradients of 16 and 16 elements."""
    ranks = range(shape[0] * shape[-1] if len(shape) > 1 else shape[0])
    return judge(
        world(
            *[
                [
                    mesh(shape, names),
                    declared,
                    optimizer(5, {name: layout(rank, shape, placements) for name in "ab"}),
                    *records,
                    ended(),
                ]
                for rank in ranks
            ]
        )
    )


def test_every_gradient_is_reduced():
    """By whichever calls; padded or not."""
    steps = [scattered(20), scattered(16, 1), stepped(20, 0, "gh"), scattered(36, 2), stepped(20, 1, "gh")]
    assert (judged(*steps).checked, judged(*steps).findings) == (2, ())


@pytest.mark.parametrize(
    ("records", "checked"),
    [
        ([scattered(20), stepped(20, 0, "gh"), scattered(36, 1), stepped(20, 1, "gh")], 1),  # a part, at first
        ([scattered(36), stepped(20, 0, "gh"), stepped(20, 1, "gh")], 1),
        ([scattered(36), stepped(20, 0, "gh"), scattered(36, 1), stepped(20, 2, "gh")], 1),  # a step is not on record
        ([scattered(36), step(20, number=0)], 0),  # no gradients were looked at
        ([scattered(36, op="all_gather_into_tensor"), stepped(20, 0, "gh")], 0),
        ([scattered(36, group="0#1"), stepped(20, 0, "gh")], 0),  # a group of one reduces nothing
    ],
)
def test_what_was_not_seen_is_not_checked(records, checked):
    found = judged(*records)
    assert (found.checked, found.findings) == (checked, ())
    if not checked:
        assert (
            found.skipped_because == "ddpcheck saw no reduction by FSDP before a step, over the ranks that it was given"
        )


def test_replicas_of_shards():
    """Both: the shards' sums within each replica, and these over the replicas."""
    more = {"shape": (2, 2), "placements": ("R", "S0"), "names": ("replicate", "shard")}
    more["declared"] = (ev.Parallelised, {"how": "fully_shard", "site": 3, "ranks": (0, 1, 2, 3)})
    within = [scattered(32, group=group) for group in ("0,1#1", "2,3#1")]
    over = [scattered(32, group=group, op="all_reduce") for group in ("0,2#1", "1,3#1")]
    assert judged(*within, *over, stepped(20, 0, "gh"), **more).checked == 1
    assert judged(*within, stepped(20, 0, "gh"), **more).checked == 0


def test_what_is_split_is_not_reduced():
    """Layers are split over tp, and sharded over nothing."""
    split = (ev.Parallelised, {"how": "parallelize_module", "site": 3, "ranks": (0, 1)})
    found = judged(scattered(32), stepped(20, 0, "gh"), declared=split, names=("tp",))
    assert found.checked == 0
    assert found.skipped_because == "ddpcheck saw layers or stages that are split, and no copies of them"
