"""The data that the suite hands to a trainer: every sample carries its number, and so says itself who has taken it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, Sampler, get_worker_info

from ddpcheck.trainings.situations import Situation, curriculum

CARRIED = 3
"""Columns of the inputs before the features: the sample's number, and the random numbers that were drawn for it."""

TOKENS = 5
FEATURES = 4
PAIRED = 3
VALIDATION = 1000
"""Added to the numbers of the samples of the validation set."""


def features_of(situation: Situation) -> int:
    """Columns of the inputs after those."""
    match situation.net:
        case "tokens":
            return TOKENS * FEATURES
        case "integers":
            return 3
        case _:
            return FEATURES


class Samples(Dataset[tuple[Tensor, Tensor]]):
    """A map-style dataset of pairs (inputs, target), the same in every process.

    ``inputs`` has the shape (3 + features,), and ``target`` (2,); with tokens
    it is (5,), with NaN where a token does not count.
    """

    def __init__(self, situation: Situation, number: int, first: int = 0) -> None:
        generator = torch.Generator().manual_seed(1234 + first)
        features = features_of(situation)
        if situation.net == "integers":
            self._features = torch.randint(-2, 3, (number, features), generator=generator).double()
            self._targets = torch.randint(-3, 4, (number, 2), generator=generator).double()
        else:
            self._features = torch.randn(number, features, generator=generator, dtype=torch.float64)
            self._targets = self._targets_of(situation, generator)
        self._augmented = situation.augmented
        self._dtype = torch.float64 if situation.precision == "float64" else torch.float32
        self._first = first

    def _targets_of(self, situation: Situation, generator: torch.Generator) -> Tensor:
        number = len(self._features)
        if situation.net == "tokens":
            targets = self._features.view(number, TOKENS, FEATURES).sum(dim=2)
            # Lengths that differ much, in an order that has nothing to do with ranks: 1 of 5 tokens, or all.
            lengths = torch.randint(1, TOKENS + 1, (number, 1), generator=generator)
            lengths[::3] = 1
            return targets.masked_fill(torch.arange(TOKENS) >= lengths, float("nan"))
        weight = torch.randn(self._features.shape[1], PAIRED if situation.net == "pairs" else 2, generator=generator,
                             dtype=torch.float64)  # fmt: skip
        return torch.tanh(self._features @ weight) * 2

    def __len__(self) -> int:
        return len(self._features)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        drawn = (_draw(), _draw_by_numpy()) if self._augmented else (0.0, 0.0)
        carried = torch.tensor([index + self._first, *drawn], dtype=self._dtype)
        return torch.cat([carried, self._features[index].to(self._dtype)]), self._targets[index].to(self._dtype)


def _draw() -> float:
    """A number from two streams that augmentation draws from: torch's before the point, Python's after it."""
    return float(torch.randint(0, 1 << 26, ())) + random.randrange(1 << 26) / (1 << 26)


def _draw_by_numpy() -> float:
    """One from numpy's global stream, and 0 where there is no numpy: torch does not bring it along."""
    try:
        from numpy.random import random_sample
    except ImportError:
        return 0.0
    return float(random_sample())


class Stream(IterableDataset[tuple[Tensor, Tensor]]):
    """The same samples one after the other, all of them on every rank: to shard them is the trainer's.

    Workers of one loader share them out, as torch leaves it to the dataset.
    """

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker is not None else (0, 1)
        for index in range(first, len(self._samples), step):
            yield self._samples[index]


class Curriculum(Sampler[int]):
    """A sampler as a user may have it: an order of its own, in which every third sample comes twice."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._order = curriculum(number)

    def __iter__(self) -> Iterator[int]:
        return iter(self._order)

    def __len__(self) -> int:
        return len(self._order)


def batch_of(samples: Samples, numbers: list[int]) -> tuple[Tensor, Tensor]:
    """The samples of these numbers as one batch; what was drawn for them is none of what a model computes with."""
    first: Any = samples._first
    pairs = [samples[number - first] for number in numbers]
    return torch.stack([inputs for inputs, _ in pairs]), torch.stack([target for _, target in pairs])
