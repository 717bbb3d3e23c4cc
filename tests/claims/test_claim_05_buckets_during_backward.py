"""Claim 5 (S0, S1, S4): gradients are reduced bucket by bucket, and before backward has finished.

What is recorded on each rank, in its order: that a parameter's gradient has
been computed (a hook on the parameter), and that DDP hands a bucket over to be
reduced (a communication hook, which then reduces it as DDP would).
"""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

import ddpcheck

LAYERS = 4
WIDTH = 600  # 1.4 MB a layer: more than the first bucket of older torch, which bucket_cap_mb does not change


class Order:
    """The events of a backward pass."""

    def __init__(self, model: DistributedDataParallel) -> None:
        self.events: list[str] = []
        for name, parameter in model.module.named_parameters():
            parameter.register_hook(lambda gradient, name=name: self.events.append(f"computed {name}"))
        model.register_comm_hook(None, self._reduce)

    def _reduce(self, state, bucket):  # DDP reads annotations, and wants none that are text
        self.events.append(f"reduced {bucket.index()}")
        return allreduce_hook(None, bucket)

    def of(self, kind: str) -> list[int]:
        """Where in the order the events of this kind are."""
        return [place for place, event in enumerate(self.events) if event.startswith(kind)]


def backward(ddp, passes: int = 2, bucket_cap_mb: float = 1) -> tuple[DistributedDataParallel, Order]:
    """The last of so many passes, each a forward and a backward, of a perceptron of four layers."""
    model = ddp.wrap(nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]), bucket_cap_mb=bucket_cap_mb)
    order = Order(model)
    generator = torch.Generator().manual_seed(ddp.rank)
    for _ in range(passes):
        order.events.clear()
        model(torch.randn(2, WIDTH, generator=generator)).square().mean().backward()
    return model, order


@pytest.mark.ddp(world_size=[2, 4])
def test_first_bucket_is_reduced_before_the_last_gradient_is_there(ddp):
    """With a bucket for about a layer, reductions begin while earlier layers' gradients are still to be computed."""
    model, order = backward(ddp)

    computed, reduced = order.of("computed"), order.of("reduced")
    assert len(computed) == 2 * LAYERS
    assert len(reduced) > 1
    assert reduced[0] < computed[-1]
    assert sum(place < computed[-1] for place in reduced) >= len(reduced) - 1  # all but the last bucket
    ddpcheck.assert_gradients_identical(model)


@pytest.mark.ddp(world_size=[2, 4])
def test_buckets_fill_from_the_last_layer_to_the_first(ddp):
    """The first bucket is reduced as soon as its gradients are there: the last layers', and none of the first."""
    _, order = backward(ddp)

    before = order.events[: order.of("reduced")[0]]
    assert f"computed {LAYERS - 1}.weight" in before
    assert not [event for event in before if event.startswith("computed 0.")]


@pytest.mark.ddp(world_size=[2, 4])
def test_one_bucket_for_all_is_reduced_after_the_last_gradient(ddp, monkeypatch):
    """What the claim rests on: where one bucket holds every gradient, nothing is reduced before all are there."""
    monkeypatch.setattr(dist, "_DEFAULT_FIRST_BUCKET_BYTES", 100 << 20, raising=False)

    model, order = backward(ddp, bucket_cap_mb=100)

    (reduced,) = order.of("reduced")
    assert reduced == len(order.events) - 1
    ddpcheck.assert_gradients_identical(model)


@pytest.mark.ddp(world_size=2)
def test_the_very_first_backward_has_one_bucket(ddp):
    """What the documents leave out: buckets are made in the order of the first backward, which has one for all."""
    model, order = backward(ddp, passes=1)

    (reduced,) = order.of("reduced")
    assert reduced == len(order.events) - 1
    ddpcheck.assert_gradients_identical(model)
