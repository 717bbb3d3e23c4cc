"""Fingerprints of the samples of a batch: the same for the same sample, in whatever batch it comes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from ddpcheck.evidence import ABSENT
from ddpcheck.probes.digests.batch_fingerprints import HEAD, head, of_samples


def prints(samples):
    found = of_samples(samples).samples
    return [found[start : start + 8] for start in range(0, len(found), 8)]


def labels(samples):
    found = of_samples(samples).labels
    return [found[start : start + 8] for start in range(0, len(found), 8)]


X = torch.arange(24.0).view(4, 6) + 1
Y = torch.arange(4)

SAMPLES = {
    "tensor": lambda place: X[place],
    "tuple": lambda place: (X[place], int(Y[place])),
    "mapping": lambda place: {"x": X[place], "labels": Y[place], "name": f"n{place}"},
    "nested": lambda place: [{"x": X[place]}, (Y[place], X[place] * 2)],
    "arrays": lambda place: (X.numpy()[place], Y.numpy()[place]),
    "text": lambda place: f"n{place}",
    "number": lambda place: place,
    "tokens": lambda place: list(range(place, place + 5000)),
    "lengths": lambda place: {"box": X[place, : 2 + place]},
    "float16": lambda place: X[place].half(),
    "parameters": lambda place: torch.nn.Parameter(X[place]),
    "data class": lambda place: Pair(X[place], place),
    "bytes": lambda place: bytes([place] * 40),
    "set": lambda place: {f"n{place}", "all"},
}


@dataclasses.dataclass
class Pair:
    """A sample of a class of the program's."""

    x: torch.Tensor
    y: int


@pytest.mark.parametrize("kind", SAMPLES)
def test_a_sample_is_known_wherever_it_comes(kind):
    """The same four samples in two orders, and fewer of them."""
    made = SAMPLES[kind]
    first = prints(map(made, range(4)))
    assert len(set(first)) == 4
    assert prints(map(made, (3, 1))) == [first[3], first[1]]


def test_memory_may_lie_in_another_order():
    """Channels that come last, and slices, are read as they lie."""
    pictures = torch.randn(4, 3, 8, 8)
    last = pictures.to(memory_format=torch.channels_last)
    assert len(set(prints(last))) == 4
    assert prints(last) == prints(pictures)
    assert prints(X[:, ::2]) == prints(X[:, ::2].contiguous())


def test_large_pictures_are_looked_at_here_and_there():
    """Pictures with white edges differ in their middle."""
    pictures = torch.ones(2, 3, 64, 64)
    pictures[1, 1] = 0
    assert pictures[0].numel() * 4 > HEAD
    assert len(set(prints(pictures))) == 2


def test_labels_are_the_last_part():
    """What augmentation leaves as it is."""
    assert labels(zip(X, Y, strict=True)) == prints(Y)
    assert labels({"x": x, "labels": y} for x, y in zip(X, Y, strict=True)) == prints(Y)
    assert labels(X) == []


class Hostile:
    """Everything that it is asked for is code of the program's."""

    def __getattribute__(self, name):
        if name == "__class__":
            return Hostile
        raise AssertionError(name)


def test_what_cannot_be_read_is_left_alone():
    """No code of the program's is run for it; what lies beside it counts."""
    assert prints([Hostile(), (X[0], Hostile())]) == [ABSENT, *prints([X[0]])]
    assert of_samples([Hostile()]).labels == b""


def test_the_head_of_a_tensor():
    """The first bytes, wherever it lies."""
    assert head(X, 8) == head(X[:1, :2], 8)
    assert head(X.T, 1000) == head(X.T.contiguous(), 1000)
    assert head(torch.zeros(0), 8) == head(torch.tensor(np.zeros(0)), 8)
