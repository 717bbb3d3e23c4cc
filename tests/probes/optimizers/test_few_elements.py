"""Gradients that are the same but for a factor, told by a few elements."""

from __future__ import annotations

import pytest
import torch

from ddpcheck.probes.optimizers.few_elements import is_multiple, sample

GRADIENT = torch.randn(7, 9, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (GRADIENT.clone(), True),
        (GRADIENT * 0.003, True),
        (GRADIENT / 8, True),
        (GRADIENT * -1, False),
        (GRADIENT + 0.01, False),
        (GRADIENT.clamp(-0.5, 0.5), False),
        (torch.zeros(7, 9), False),
        (torch.full((7, 9), float("nan")), False),
        (torch.full((7, 9), float("inf")), False),
        (GRADIENT[:2], False),
    ],
)
def test_the_same_but_for_a_factor(other, expected):
    """A clip by a norm, or a scale; no clip of values, no other sign, and nothing that is none."""
    assert is_multiple(sample([other]), sample([GRADIENT])) is expected


def test_too_little_to_tell():
    """Two elements are in one ratio with any two others, nearly; and zeros with everything."""
    assert not is_multiple(sample([torch.tensor([2.0, 4.0])]), sample([torch.tensor([1.0, 2.0])]))
    assert not is_multiple(sample([torch.zeros(5)]), sample([torch.zeros(5)]))
    assert is_multiple((2.0, 4.0, 6.0), (1.0, 2.0, 3.0))


@pytest.mark.parametrize("kind", [torch.float16, torch.float64])
def test_other_precisions(kind):
    """What was computed in another precision is read as such."""
    one = GRADIENT.to(kind)
    assert is_multiple(sample([one * 2]), sample([one]))


@pytest.mark.parametrize(
    "tensors",
    [
        [],
        [None],
        [torch.zeros(3, device="meta")],
        [torch.eye(3).to_sparse()],
        [torch.arange(4)],
        [torch.zeros(4, 4)[:, 1]],
        [GRADIENT, torch.zeros(3, device="meta")],
    ],
)
def test_what_cannot_be_read(tensors):
    """Nothing is reported of it."""
    assert sample(tensors) is None
