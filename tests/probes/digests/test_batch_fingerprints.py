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
    "slots": lambda place: Slots(X[place], place),
    "bytes": lambda place: bytes([place] * 40),
    "set": lambda place: {f"n{place}", "all"},
}


@dataclasses.dataclass
class Pair:
    """A sample of a class of the program's."""

    x: torch.Tensor
    y: int


@dataclasses.dataclass(slots=True)
class Slots:
    """The same, without a dictionary."""

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
    """No code of the program's is run for it. What lies beside it may be the same for other samples: a label, say."""
    assert prints([Hostile(), (X[0], Hostile()), [{"x": Hostile(), "y": 1}, 2]]) == [ABSENT] * 3
    assert of_samples([Hostile()]).labels == b""
    assert labels([(Hostile(), 3)]) == prints([3])


class Columns(dict):
    """Its values are made when they are asked for."""

    def values(self):
        raise AssertionError

    __iter__ = items = __getitem__ = values


class Words(list):
    """A list of the program's own."""

    def __iter__(self):
        raise AssertionError

    __getitem__ = __len__ = __iter__


@pytest.mark.parametrize("sample", [
    Columns(x=1), Words("ab"), X.to_sparse(), np.array([None, 1], dtype=object), [[3] * 40, [X] * 3000],
], ids=["mapping", "list", "sparse", "objects", "long"])  # fmt: skip
def test_what_has_no_fingerprint(sample):
    """Containers of the program's own, values that lie nowhere, and more parts than are looked at."""
    assert prints([sample]) == [ABSENT]


def test_parts_that_refer_to_each_other():
    """So many are looked at altogether, however often a value comes in itself."""
    nodes = [[torch.ones(2)] for _ in range(60)]
    for node in nodes:
        node.extend(nodes)
    assert prints([nodes]) == [ABSENT]


def test_large_values_are_looked_at_here_and_there():
    """Their middle and end count; what does not lie in a row is not put into one."""
    silence = torch.zeros(3, 50_000)
    silence[1, -1], silence[2, 25_000:] = 1, 1
    assert len(set(prints(silence))) == 3
    pictures = torch.zeros(2, 64, 64, 3)
    pictures[1, -1] = 1
    for turned in (pictures.permute(0, 3, 1, 2), pictures.permute(0, 3, 1, 2).numpy()):
        assert len(set(prints(turned))) == 2


def test_the_head_of_a_tensor():
    """The first bytes, wherever it lies."""
    assert head(X, 8) == head(X[:1, :2], 8)
    assert head(X.T, 1000) == head(X.T.contiguous(), 1000)
    assert head(torch.zeros(0), 8) == head(torch.tensor(np.zeros(0)), 8)
