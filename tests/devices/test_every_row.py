"""The simulation against the table of real rules: every row, with its tensors on every choice of devices."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import ddpcheck
from tests.devices.truth import REFUSED, ROWS, Row, cases, outcome, tensor

DEVICES = ("cpu", "cuda:0", "cuda:1")


@pytest.mark.parametrize("row", ROWS, ids=[row.name.replace(" ", "-") for row in ROWS])
def test_row(row: Row) -> None:
    """It runs where real devices run it, with its result there and the CPU's to the bit; elsewhere it is refused."""
    plain = row.run(*(tensor(kind) for kind in row.kinds))
    with ddpcheck.simulated_devices(2):
        for each, places in cases(DEVICES):
            if each is not row:
                continue
            found, result = outcome(row, places)
            assert found == row.verdict(places), (places, result)
            if found == REFUSED:
                assert any(words in str(result) for words in KNOWN), result
            else:
                assert torch.equal(result.cpu(), plain), places


KNOWN = (
    "Expected all tensors to be on the same device, but ",
    "indices should be either on cpu or on the same device as the indexed tensor (",
    "expected self and mask to be on the same device, but got mask on ",
    "masked_fill_: Expected inputs to be on same device",
    " should be the same",
    "tensors are not at the same device, found input tensor at ",
    "Trying to pass too many CPU scalars",
    "CPU Scalar support for ",
)
"""What torch itself says, in one place or another."""


WITNESSED = [row for row in ROWS if not row.fake]


@pytest.mark.parametrize("row", WITNESSED, ids=[row.name.replace(" ", "-") for row in WITNESSED])
@pytest.mark.filterwarnings("ignore")
@pytest.mark.long
def test_fake_tensors_agree(row: Row) -> None:
    """torch's fake tensors, which know devices without having any, are a witness of their own for most rows."""
    for each, places in cases(DEVICES):
        if each is row:
            assert _fake_outcome(row, places) == row.verdict(places), places


def _fake_outcome(row: Row, places: tuple[str, ...]) -> str:
    with FakeTensorMode() as mode:
        given = []
        for kind, device in zip(row.kinds, places, strict=True):
            with torch.utils._python_dispatch._disable_current_modes():
                real = tensor(kind)
            fake = mode.from_tensor(real)
            given.append(torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=device))
        try:
            return str(row.run(*given).device)
        except RuntimeError:
            return REFUSED


def test_rows_have_names_of_their_own() -> None:
    """A name stands for one row."""
    assert len({row.name for row in ROWS}) == len(ROWS)
