"""The table of real rules on real devices: whether they run an operation, and where its result is.

The simulation is held to this table (``tests/devices``), so that a row that is
wrong here is wrong there too. One GPU is enough for the rows over the CPU and
that GPU.
"""

from __future__ import annotations

import pytest
import torch

from tests.devices.truth import REFUSED, ROWS, Row, cases, outcome


@pytest.mark.gpu(1)
@pytest.mark.parametrize("row", ROWS, ids=[row.name.replace(" ", "-") for row in ROWS])
def test_row(row: Row) -> None:
    """With all placements over the CPU and one GPU."""
    _check(row, ("cpu", "cuda:0"))


@pytest.mark.gpu(2)
@pytest.mark.parametrize("row", ROWS, ids=[row.name.replace(" ", "-") for row in ROWS])
def test_row_over_two_gpus(row: Row) -> None:
    """With all placements over the CPU and two GPUs."""
    _check(row, ("cpu", "cuda:0", "cuda:1"))


def _check(row: Row, devices: tuple[str, ...]) -> None:
    assert torch.cuda.device_count() >= len(devices) - 1
    differing = {}
    for each, places in cases(devices):
        if each is row:
            found, result = outcome(row, places)
            if found != row.verdict(places):
                differing[places] = (found, str(result)[:300] if found == REFUSED else "")
    assert not differing, {places: (row.verdict(places), *found) for places, found in differing.items()}
