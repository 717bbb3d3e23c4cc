"""The situation that is said to be exact is: doubles lose nothing there, in world sizes that are powers of two."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch

from ddpcheck.conformance import models
from ddpcheck.conformance.datasets import CARRIED, Samples, batch_of
from ddpcheck.conformance.job import optimizer_of
from ddpcheck.conformance.losses import Loss
from ddpcheck.trainings.situations import BY_NAME, START

SITUATION = BY_NAME["exact"]


def rounded_steps(world_size: int, seed: int) -> int:
    """Steps after which some parameter is not what fractions make of it."""
    samples = Samples(SITUATION, SITUATION.size.at(world_size))
    net = models.make(SITUATION, seed)
    optimizer = optimizer_of(SITUATION, net.parameters())
    weight = [[Fraction(v) for v in row] for row in net.map.weight.tolist()]
    bias = [Fraction(v) for v in net.map.bias.tolist()]
    whole, rate = world_size * SITUATION.batch_size, Fraction(START[SITUATION.optimizer])
    rounded = 0
    for _ in range(SITUATION.epochs):
        order = torch.randperm(len(samples)).tolist()
        for start in range(0, len(samples), whole):
            inputs, targets = batch_of(samples, order[start : start + whole])
            optimizer.zero_grad()
            Loss("samples")(net(inputs), targets).backward()
            optimizer.step()
            rows = [[Fraction(v) for v in row] for row in inputs[:, CARRIED:].tolist()]
            wanted = [[Fraction(v) for v in row] for row in targets.tolist()]
            for out in range(2):
                gaps = [sum(w * x for w, x in zip(weight[out], row, strict=True)) + bias[out] - want[out]
                        for row, want in zip(rows, wanted, strict=True)]  # fmt: skip
                bias[out] -= rate * sum(gaps) / whole
                for column in range(3):
                    weight[out][column] -= (
                        rate * sum(g * row[column] for g, row in zip(gaps, rows, strict=True)) / whole
                    )
            found = [[Fraction(v) for v in row] for row in net.map.weight.tolist()]
            rounded += found != weight or [Fraction(v) for v in net.map.bias.tolist()] != bias
    return rounded


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_nothing_is_rounded(world_size: int) -> None:
    """Over all steps, from any small integers."""
    for seed in range(10):
        torch.manual_seed(seed)
        assert rounded_steps(world_size, seed) == 0


def test_thirds_are() -> None:
    """The twin: in three ranks something is rounded, and so no bit is asked for there."""
    assert rounded_steps(3, 0) > 0
