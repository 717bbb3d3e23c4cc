"""What a step was made of can be worked out, whatever way a training is spread over ranks."""

from __future__ import annotations

import numpy as np
import pytest

from tests.facts import spread

WAYS = [
    # way, ranks, how many of them compute one micro-batch together, how many such teams there are
    *((way, 2, 1) for way in ("ddp", "fsdp2", "fsdp1", "flat", "by_hand", "asked", "recomputed", "recomputed_inside")),
    ("sparse", 2, 1),
    ("compiled", 2, 1),
    ("hsdp", 4, 1),
    ("tensor", 2, 2),
    ("tensor_fsdp", 4, 2),
]


@pytest.mark.parametrize(("way", "ranks", "team"), WAYS)
def test_each_micro_batch_counts_for_its_part(way, ranks, team):
    """The mean over the teams: the loss is divided by the micro-batches already."""
    each = spread.run(way, ranks=ranks)
    for window in range(3):
        coefficients, residual = spread.solved(each, window, team)
        assert coefficients == pytest.approx(dict.fromkeys(coefficients, team / ranks), abs=2e-4), window
        assert len(coefficients) == 2 * ranks / team
        assert residual < 2e-7


def test_all_ways_are_one_training():
    """What they step on and end with is the same, up to rounding, computed from copies, shards and columns."""
    found = {}
    for way, ranks, _ in WAYS:
        if ranks == 2 and way != "tensor":
            each = spread.run(way)
            found[way] = {at: spread.whole(each, 2, at) for at in ("before", "gradients", "after")}
    first = found["ddp"]
    for way, moments in found.items():
        for at, tensors in moments.items():
            assert tensors.keys() == first[at].keys(), (way, at)
            for path, sketch in tensors.items():
                apart = np.linalg.norm(sketch - first[at][path]) / np.linalg.norm(first[at][path])
                assert apart < 1e-5, (way, at, path)
