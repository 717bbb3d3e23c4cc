"""The models that the suite hands to a trainer: small, and each tells of its forwards what it has been given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ddpcheck.conformance.datasets import CARRIED, FEATURES, PAIRED, TOKENS
from ddpcheck.trainings.situations import Situation

WIDTH = 5

Listener = Callable[["Net", Tensor, Tensor, "list[Tensor]", torch.dtype], None]
"""Told of a forward: the model, the samples' numbers, two columns of what was drawn for them, what each dropout let
through, and what the outputs were computed in."""


class Net(nn.Module):
    """A model of the suite: takes the numbers off its inputs, computes, and says which samples it has been given."""

    def __init__(self) -> None:
        super().__init__()
        self._before: list[Callable[[Net], None]] = []
        self._after: list[Listener] = []
        self._dropouts: list[Dropout] = []

    def watch(self, before: Callable[[Net], None], after: Listener) -> None:
        """Call these before and after every forward, of copies of this model, too."""
        self._before.append(before)
        self._after.append(after)

    def __deepcopy__(self, memo: dict[int, Any]) -> Net:
        # Whom a copy tells is whom the model tells: they are no part of what is copied.
        made = self.__class__.__new__(self.__class__)
        memo[id(self)] = made
        shared = {"_before": self._before, "_after": self._after}
        from copy import deepcopy

        made.__dict__.update({k: deepcopy(v, memo) for k, v in self.__dict__.items() if k not in shared})
        made.__dict__.update(shared)
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_before": [], "_after": []}

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs of shape (samples, …) for inputs of shape (samples, 3 + features)."""
        for listener in self._before:
            listener(self)
        numbers, draws, features = inputs[:, 0], inputs[:, 1:CARRIED], inputs[:, CARRIED:]
        outputs = self.compute(features, numbers)
        masks = [dropout.mask for dropout in self.modules() if isinstance(dropout, Dropout)]
        for told in self._after:
            told(self, numbers, draws, [mask for mask in masks if mask is not None], outputs.dtype)
        return outputs

    def compute(self, features: Tensor, numbers: Tensor) -> Tensor:
        raise NotImplementedError


class Dropout(nn.Module):
    """Dropout of a half, which keeps what it has let through; ``given`` is let through instead where it is set."""

    def __init__(self) -> None:
        super().__init__()
        self.mask: Tensor | None = None
        self.given: Tensor | None = None

    def forward(self, features: Tensor) -> Tensor:
        if not self.training:
            self.mask = None
            return features
        if self.given is not None:
            self.mask = self.given.view_as(features)
        else:
            self.mask = functional.dropout(torch.ones_like(features), 0.5, training=True) != 0
        return features * self.mask.to(features.dtype) * 2


class Integers(Net):
    """A linear map that begins with small integers."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(3, 2)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randint(-2, 3, parameter.shape))

    def compute(self, features: Tensor, numbers: Tensor) -> Tensor:
        return self.map(features)  # type: ignore[no-any-return]


class Small(Net):
    """Two linear layers, and something that is no polynomial between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, WIDTH)
        self.middle: nn.Module = nn.Identity()
        self.last = nn.Linear(WIDTH, 2)

    def compute(self, features: Tensor, numbers: Tensor) -> Tensor:
        return self.last(self.middle(torch.tanh(self.first(features))))  # type: ignore[no-any-return]


class Even(Small):
    """With as many features between its layers as can be halved: tensor parallelism cuts them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, WIDTH + 1)
        self.last = nn.Linear(WIDTH + 1, 2)


class WithDropout(Small):
    def __init__(self) -> None:
        super().__init__()
        self.middle = Dropout()


class WithBatchNorm(Small):
    def __init__(self) -> None:
        super().__init__()
        self.middle = nn.BatchNorm1d(WIDTH)


class Branches(Small):
    """A branch for batches that begin with an even sample, one for those with an odd one, and one for none."""

    def __init__(self) -> None:
        super().__init__()
        self.even = nn.Linear(FEATURES, 2)
        self.odd = nn.Linear(FEATURES, 2)
        self.never = nn.Linear(FEATURES, 2)

    def compute(self, features: Tensor, numbers: Tensor) -> Tensor:
        branch = self.odd if int(numbers[0]) % 2 else self.even
        return super().compute(features, numbers) + branch(features)  # type: ignore[no-any-return]


class Tied(Net):
    """A layer whose weight is another one's, turned round, on top of a layer that is not to be trained."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(FEATURES, FEATURES)
        self.frozen.requires_grad_(False)
        self.down = nn.Linear(FEATURES, WIDTH)
        self.up = nn.Linear(FEATURES, WIDTH)
        self.up.weight = self.down.weight
        self.last = nn.Linear(2 * WIDTH, 2)

    def compute(self, features: Tensor, numbers: Tensor) -> Tensor:
        base = torch.tanh(self.frozen(features))
        return self.last(torch.cat([torch.tanh(self.down(base)), self.up(base)], dim=1))  # type: ignore[no-any-return]


class Tokens(Net):
    """The same small map for every token of a sample."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, WIDTH)
        self.last = nn.Linear(WIDTH, 1)

    def compute(self, features: Tensor, numbers: Tensor) -> Tensor:
        tokens = features.reshape(len(features), TOKENS, FEATURES)
        return self.last(torch.tanh(self.first(tokens))).squeeze(2)  # type: ignore[no-any-return]


class Pairs(Net):
    """Features of samples, of shape (samples, 3), to be compared with each other."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, WIDTH)
        self.last = nn.Linear(WIDTH, PAIRED)

    def compute(self, features: Tensor, numbers: Tensor) -> Tensor:
        return self.last(torch.tanh(self.first(features)))  # type: ignore[no-any-return]


_NETS: dict[str, type[Net]] = {
    "integers": Integers,
    "small": Small,
    "even": Even,
    "dropout": WithDropout,
    "batchnorm": WithBatchNorm,
    "branches": Branches,
    "tied": Tied,
    "tokens": Tokens,
    "pairs": Pairs,
}


def make(situation: Situation, seed: int) -> Net:
    """The model of a situation, with parameters drawn from a seed; the global random stream is as it was before."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = _NETS[situation.net]()
    return net.double() if situation.precision == "float64" else net
