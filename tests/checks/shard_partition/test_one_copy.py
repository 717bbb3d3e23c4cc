"""Ranks along a dimension of a mesh that splits the model: they read the same samples, or are warned of."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.shard_partition.run import NO_COPIES, judge
from tests.judging.loaded import PLAIN, loader, through
from tests.judging.sharded_models import mesh
from tests.judging.written import world

SPLIT = (ev.Parallelised, {"how": "parallelize_module", "site": 3, "ranks": (0, 1)})
EVEN, ODD = list(range(0, 16, 2)), list(range(1, 16, 2))


def tensor_parallel(mine, yours, name="tp"):
    ranks = [[mesh([2], [name]), SPLIT, loader(**PLAIN), *through(own)] for own in (mine, yours)]
    return judge(world(*ranks))


def test_the_same_samples_are_no_finding():
    """Both ranks go through the data in one order; that they should is known by a name alone, and so not checked."""
    judged = tensor_parallel(EVEN, EVEN)
    assert (judged.checked, judged.findings, judged.skipped_because) == (0, (), NO_COPIES)


def test_other_samples_on_each_rank():
    """A loader that deals out to all ranks, and not to the copies of the model."""
    judged = tensor_parallel(EVEN, ODD)
    assert [f.severity for f in judged.findings] == ["warning"]


@pytest.mark.parametrize(("mine", "yours"), [(EVEN, EVEN[::-1]), (EVEN[:2], EVEN[:2])], ids=["order", "few"])
def test_what_is_not_seen_to_be_the_same(mine, yours):
    """Another order, or too few to tell: not checked, and the reason is no missing loader."""
    judged = tensor_parallel(mine, yours)
    assert (judged.checked, judged.findings, judged.skipped_because) == (0, (), NO_COPIES)
