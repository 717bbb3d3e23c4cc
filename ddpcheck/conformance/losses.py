"""The losses and the metrics that the suite hands to a trainer."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ddpcheck.trainings.situations import LossKind

Notice = Callable[[Tensor, int], None]
"""Told of every loss that is computed, and of how many samples or tokens."""


def per_sample(outputs: Tensor, targets: Tensor) -> Tensor:
    """Half the squared error of each sample, of shape (samples,)."""
    return ((outputs - targets.to(outputs.dtype)) ** 2).sum(dim=1) / 2


def per_token(outputs: Tensor, targets: Tensor) -> Tensor:
    """The squared error of each token that counts, of shape (tokens,); a target that is NaN does not count."""
    counts = ~targets.isnan()
    return (outputs[counts] - targets[counts].to(outputs.dtype)) ** 2


def of_pairs(features: Tensor, targets: Tensor) -> Tensor:
    """How badly each sample's feature finds its own target among all targets, of shape (samples,)."""
    scores = features @ targets.to(features.dtype).T
    return torch.logsumexp(scores, dim=1) - scores.diagonal()


class Loss:
    """The loss of a job: called with outputs and targets, it returns their mean.

    That is the mean over the samples; where the job's ``loss_kind`` is
    ``tokens``, over the tokens that count; where it is ``pairs``, over the
    samples, each held against all targets that it is called with.
    """

    def __init__(self, kind: LossKind, notice: Notice | None = None) -> None:
        self.kind = kind
        self._notice = notice

    def __repr__(self) -> str:
        return f"<the job's loss, a mean over {self.kind}>"

    def parts(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The losses of which it is the mean."""
        match self.kind:
            case "tokens":
                return per_token(outputs, targets)
            case "pairs":
                return of_pairs(outputs, targets)
            case _:
                return per_sample(outputs, targets)

    def number(self, targets: Tensor) -> int:
        """How many there are to take the mean of: samples, or tokens that count."""
        return int((~targets.isnan()).sum()) if self.kind == "tokens" else len(targets)

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        parts = self.parts(outputs, targets)
        mean = parts.mean() if len(parts) else outputs.sum() * 0
        if self._notice is not None:
            self._notice(mean, len(parts))
        return mean


def mean_loss(outputs: Tensor, targets: Tensor) -> float:
    """The mean of the samples' losses."""
    return float(per_sample(outputs.double(), targets.double()).mean())


def _classes(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    return outputs.argmax(dim=1), targets.argmax(dim=1)


def accuracy(outputs: Tensor, targets: Tensor) -> float:
    """The share of samples whose greatest output is at their greatest target."""
    found, wanted = _classes(outputs, targets)
    return float((found == wanted).double().mean())


def recall(outputs: Tensor, targets: Tensor) -> float:
    """The share that is found of the samples of class 1; 0 where there is none."""
    found, wanted = _classes(outputs, targets)
    positives = wanted == 1
    return float((found[positives] == 1).double().mean()) if positives.any() else 0.0


def ranking(outputs: Tensor, targets: Tensor) -> float:
    """The area under the ROC curve of class 1: of all pairs of a positive and a negative, how many are in order."""
    _, wanted = _classes(outputs, targets)
    scores = outputs[:, 1].double() - outputs[:, 0].double()
    positives, negatives = scores[wanted == 1], scores[wanted == 0]
    if not len(positives) or not len(negatives):
        return 0.5
    gaps = positives[:, None] - negatives[None, :]
    return float((gaps > 0).double().mean() + (gaps == 0).double().mean() / 2)


METRICS: dict[str, Callable[[Tensor, Tensor], float]] = {
    "loss": mean_loss,
    "accuracy": accuracy,
    "recall": recall,
    "ranking": ranking,
}
"""Of all outputs and all targets of the validation set: what one process would report."""
