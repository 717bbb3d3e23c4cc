"""Parts of batches that a sampler has dealt out already."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.shard_partition.dealt_out_twice import judge
from tests.judging.written import world


def judged(*rows, forwards=3, distributed=True, replicas=2, samples=8):
    """By rank: the rows that its forwards are given."""
    ranks = []
    for rank, one in enumerate(rows):
        loader = ev.Loader, {
            "loader": 0, "site": 11, "dataset": "TensorDataset", "size": 64, "stream": False,
            "sampler": "DistributedSampler", "distributed": distributed, "rank": rank, "replicas": replicas,
            "shuffle": True, "seed": 0, "sampler_drops": False, "batch_size": 8, "drop_last": False, "workers": 0,
            "dataset_id": 0,
        }  # fmt: skip
        given = {"wrapper": 0, "digest": b"", "site": 20, "loader": 0, "samples": samples, "rows": one}
        ranks.append([loader, *((ev.Inputs, {**given, "number": n}) for n in range(forwards))])
    return judge(world(*ranks))


@pytest.mark.parametrize("rows", [([0, 2, 4], [1, 2, 4]), ([0, 1, 4], [4, 1, 4])])
def test_each_takes_the_part_of_its_number(rows):
    """Every second row, or a half."""
    times, (found,) = judged(*rows)
    assert (times, found.severity, found.ranks, found.where.line) == (3, "warning", (0, 1), 20)
    assert "1/2 of each batch" in found.found


@pytest.mark.parametrize(("rows", "more"), [
    (([0, 1, 4], [0, 1, 4]), {}),  # the other half is for something else
    (([], []), {}),
    (([0, 2, 4], [1, 2, 4]), {"distributed": False}),  # all ranks read the same
    (([0, 2, 4], [1, 2, 4]), {"replicas": 4}),  # the peers of one copy share its batch
    (([0, 1, 2], [2, 1, 2]), {}),  # micro-batches
    (([0, 2, 4], [1, 2, 4]), {"forwards": 2}),
])  # fmt: skip
def test_what_is_dealt_out_once(rows, more):
    assert judged(*rows, **more) == (0, [])
