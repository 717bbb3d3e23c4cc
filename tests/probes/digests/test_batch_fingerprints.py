"""Fingerprints of the samples of a batch: the same for the same sample, in whatever batch it comes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ddpcheck.probes.digests.batch_fingerprints import HEAD, fingerprints, head


def prints(batch, **more):
    found = fingerprints(batch, **more)
    return [found.prints[start : start + 8] for start in range(0, len(found.prints), 8)]


def labels(batch):
    found = fingerprints(batch)
    return [found.labels[start : start + 8] for start in range(0, len(found.labels), 8)]


X = torch.arange(24.0).view(4, 6) + 1
Y = torch.arange(4)

BATCHES = {
    "tensor": lambda places: X[places],
    "tuple": lambda places: (X[places], Y[places]),
    "mapping": lambda places: {"x": X[places], "labels": Y[places], "name": [f"n{p}" for p in places]},
    "nested": lambda places: [{"x": X[places]}, (Y[places], X[places] * 2)],
    "arrays": lambda places: (X.numpy()[places], Y.numpy()[places]),
    "text": lambda places: [f"n{p}" for p in places],
    "samples": lambda places: [{"box": X[p, : 2 + p]} for p in places],
    "columns of samples": lambda places: [[X[p, : 2 + p] for p in places], list(places)],
    "float16": lambda places: X[places].half(),
    "parameters": lambda places: torch.nn.Parameter(X[places]),
}


@pytest.mark.parametrize("kind", BATCHES)
def test_a_sample_is_known_in_another_batch(kind):
    """The same four samples in two orders, and in smaller batches."""
    made = BATCHES[kind]
    first = prints(made([0, 1, 2, 3]))
    assert len(set(first)) == 4
    assert prints(made([3, 1])) == [first[3], first[1]]
    assert prints(made([0, 1, 2, 3]), samples=4, places=[2, 0]) == [first[2], first[0]]


def test_zeros_at_the_end_are_padding():
    """A sample is padded to the longest one of its batch."""
    short, long = torch.tensor([[5, 6, 0]]), torch.tensor([[5, 6, 0, 0, 0], [1, 2, 3, 4, 5]])
    assert prints(short)[0] == prints(long)[0]
    blank = torch.zeros(2, 3000)
    assert prints(blank) == prints(blank[:, :1])


def test_memory_may_lie_in_another_order():
    """Channels that come last, and slices, are read as they lie."""
    pictures = torch.randn(4, 3, 8, 8)
    last = pictures.to(memory_format=torch.channels_last)
    assert len(set(prints(last))) == 4
    assert prints(last) == prints(last[[0, 1, 2, 3]].to(memory_format=torch.channels_last))
    assert prints(X[:, ::2]) == prints(X[:, ::2].contiguous())


def test_large_pictures_are_looked_at_here_and_there():
    """Pictures with white edges differ in their middle."""
    pictures = torch.ones(2, 3, 64, 64)
    pictures[1, 1] = 0
    assert pictures[0].numel() * 4 > HEAD
    assert len(set(prints(pictures))) == 2


def test_labels_are_the_last_part_or_the_one_of_that_name():
    """What augmentation leaves as it is."""
    assert labels((X, Y)) == prints(Y)
    assert labels({"labels": Y, "x": X}) == prints(Y)
    assert labels(X) == []


@pytest.mark.parametrize("batch", [None, torch.tensor(3.0), object(), [], {}, torch.zeros(0, 4)])
def test_what_has_no_samples_has_no_fingerprints(batch):
    """Batches that cannot be taken apart are left alone."""
    assert fingerprints(batch) is None


def test_another_number_than_asked_for():
    """A batch of crops has more rows than indices."""
    assert fingerprints(X, samples=2) is None


def test_the_head_of_a_tensor():
    """The first bytes, wherever it lies."""
    assert head(X, 8) == head(X[:1, :2], 8)
    assert head(X.T, 1000) == head(X.T.contiguous(), 1000)
    assert head(torch.zeros(0), 8) == head(torch.tensor(np.zeros(0)), 8)
