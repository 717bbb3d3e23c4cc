"""Copies from one simulated device to another, and the way back of their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ddpcheck.device_simulation.storages import Storages


def mover(storages: Storages) -> Callable[[Tensor, torch.device], Tensor]:
    """A function that copies a tensor to a device, and its gradient back.

    torch's own node for a copy finds both ends on the CPU and does nothing, so
    that the gradient would stay where it is: this is a node of ours.
    """

    class MovedToDevice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, source: Tensor, device: torch.device) -> Tensor:
            ctx.home = storages.device_of(source)
            return copied(source, device)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return moved(gradients[0], ctx.home), None

    def copied(source: Tensor, device: torch.device) -> Tensor:
        with torch._C.DisableTorchFunction():
            result = source.detach().clone()
            if type(source) not in (Tensor, torch.nn.Parameter):
                result = result.as_subclass(type(source))
        storages.put(result, device)
        return result

    def moved(source: Tensor, device: torch.device) -> Tensor:
        if source.requires_grad and torch.is_grad_enabled():
            result: Tensor = MovedToDevice.apply(source, device)  # type: ignore[no-untyped-call]
            return result
        return copied(source, device)

    return moved


def keeper(storages: Storages, moved: Callable[[Tensor, torch.device], Tensor]) -> Callable[[Tensor], Tensor]:
    """A function that returns its tensor, and brings the gradient to the tensor's device.

    Autograd does this itself for a scalar on the CPU beside tensors on a GPU.
    """

    class GradientComesHome(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, source: Tensor) -> Tensor:
            ctx.home = storages.device_of(source)
            return source.view_as(source)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            gradient = gradients[0]
            return gradient if storages.device_of(gradient) == ctx.home else moved(gradient, ctx.home)

    def kept(source: Tensor) -> Tensor:
        result: Tensor = GradientComesHome.apply(source)  # type: ignore[no-untyped-call]
        return result

    return kept
