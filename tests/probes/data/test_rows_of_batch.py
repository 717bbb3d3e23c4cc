"""Which rows of a batch a tensor is."""

from __future__ import annotations

import weakref

import pytest
import torch

from ddpcheck.probes.data.rows_of_batch import taken

BATCH = torch.arange(24.0).view(8, 3)


@pytest.mark.parametrize(
    ("given", "rows"),
    [
        (BATCH[1::2], [1, 2, 4]),
        (BATCH.chunk(2)[1], [4, 1, 4]),
        (BATCH[3:4], [3, 1, 1]),
        (BATCH[4:][1::2], [5, 2, 2]),
        (BATCH, []),
        (BATCH[:, 1:], []),
        (BATCH[1::2].clone(), []),
        (torch.ones(8, 3)[1::2], []),
        (BATCH[0], []),
    ],
)
def test_rows(given, rows):
    """Slices of it, and nothing else."""
    assert taken([given], [weakref.ref(BATCH)]) == rows
