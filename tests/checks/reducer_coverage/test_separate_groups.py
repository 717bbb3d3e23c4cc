"""Groups of ranks that share one dataset out among all of them, and train a model each."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.reducer_coverage import separate_groups
from tests.judging.loaded import loader, through
from tests.judging.sharded_models import layout, mesh, optimizer, stepped
from tests.judging.written import call, ended, transfers, world


def found(group=None, after="ab", elements=500):
    """Four ranks: two pairs that exchange shards, and so many elements over another group."""
    ranks = []
    for number in range(4):
        pair = number // 2
        own = (ev.Parallelised, {"how": "fully_shard", "site": 3, "ranks": (2 * pair, 2 * pair + 1)})
        part = layout(number % 2, (2,), ("S0",))
        calls = [
            call(0, 15, "all_gather_into_tensor", group=f"{2 * pair},{2 * pair + 1}#{pair}", detail="float32 [64]")
        ]
        calls += [call(0, 16, "all_reduce", group=group, detail=f"float32 [{elements}]")] if group else []
        ranks.append([
            mesh((2, 2), ("replicate", "shard")), own, optimizer(5, {"w": part}), loader(rank=number, replicas=4),
            *through(range(4 * number, 4 * number + 4)), *calls, stepped(20, 0, "g", after[pair]), transfers(), ended(),
        ])  # fmt: skip
    return list(separate_groups.judge(world(*ranks)))


def test_replicas_that_nothing_joins():
    """Nothing says that they are of one model: members of an ensemble may each have their part of the samples."""
    (finding,) = found()
    assert (finding.severity, finding.ranks) == ("warning", (0, 1, 2, 3))
    assert finding.found.startswith("2 models, of ranks 0 and 1, ranks 2 and 3:")


@pytest.mark.parametrize("more", [{"group": "world"}, {"after": "aa"}], ids=["joined", "the same in the end"])
def test_one_model(more):
    assert found(**more) == []


def test_numbers_alone():
    """A loss, or a count, joins nothing."""
    assert len(found(group="world", elements=2)) == 1
