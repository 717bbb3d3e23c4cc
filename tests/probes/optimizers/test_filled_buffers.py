"""Buffers that are filled with parameters or gradients, as they go into a collective."""

from __future__ import annotations

import pytest
import torch

from ddpcheck.probes.optimizers.filled_buffers import _pieces

SHAPES = {(3, 4), (6,)}


@pytest.mark.parametrize(("value", "expected"), [
    (torch.zeros(3, 4), [(3, 4)]),
    (torch.zeros(5, 3, 4), [(3, 4)] * 5),
    ([torch.zeros(6), torch.zeros(3, 4), torch.zeros(2)], [(6,), (3, 4)]),
    (torch.zeros(4, 3), []),
    (torch.zeros(()), []),
    (torch.zeros(3, 4, dtype=torch.int64), []),
    (torch.zeros(3, 4, device="meta"), []),
    (None, []),
])  # fmt: skip
def test_pieces_of_the_shapes_of_parameters(value, expected):
    """A tensor itself, those stacked in it, those of a list; nothing else is looked at."""
    assert [tuple(one.shape) for one in _pieces(value, SHAPES)] == expected
    assert not any(one.requires_grad for one in _pieces(value, SHAPES))
