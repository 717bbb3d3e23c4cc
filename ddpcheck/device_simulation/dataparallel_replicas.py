"""``torch.nn.DataParallel`` on simulated devices: its replicas run in turn, in the thread that is simulated."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from ddpcheck.device_simulation.temporary_patches import Patches


def patch_data_parallel(patches: Patches) -> None:
    """Copies between devices instead of torch's CUDA functions, and no threads: they know nothing of the simulation."""
    home = "torch.nn.parallel"
    comm, functions = import_module(f"{home}.comm"), import_module(f"{home}._functions")
    patches.set(comm, "broadcast_coalesced", _broadcast)
    patches.set(comm, "gather", _gather)
    patches.set(comm, "reduce_add_coalesced", _reduce)
    patches.set(functions, "Scatter", _Scatter)
    patches.set(import_module(f"{home}.scatter_gather"), "Scatter", _Scatter)
    data_parallel = import_module(f"{home}.data_parallel")
    patches.set(data_parallel, "parallel_apply", _apply_in_turn)
    patches.set_if_there(data_parallel, "_check_balance", lambda device_ids: None)


class _Scatter(torch.autograd.Function):
    """Parts of a tensor on one device each."""

    @staticmethod
    def forward(ctx: Any, target_gpus: Sequence[int], chunk_sizes: Any, dim: int, input: Tensor) -> Any:
        ctx.dim, ctx.home = dim, input.device
        parts = torch.split(input, list(chunk_sizes), dim) if chunk_sizes else input.chunk(len(target_gpus), dim)
        return tuple(part.to(_on(index)) for part, index in zip(parts, target_gpus, strict=False))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None, None, None, torch.cat([gradient.to(ctx.home) for gradient in gradients], ctx.dim)


def _on(index: Any) -> Any:
    return index if isinstance(index, torch.device) else torch.device("cuda", index)


def _broadcast(tensors: Sequence[Tensor], devices: Sequence[int], buffer_size: int = 0) -> list[list[Tensor]]:
    return [[tensor.to(_on(index)) for tensor in tensors] for index in devices]


def _reduce(inputs: Sequence[Sequence[Tensor]], destination: Any = None, buffer_size: int = 0) -> tuple[Tensor, ...]:
    target = inputs[0][0].device if destination is None else _on(destination)
    sums = []
    for column in zip(*inputs, strict=True):
        total = column[0].to(target)
        for gradient in column[1:]:
            total = total + gradient.to(target)
        sums.append(total)
    return tuple(sums)


def _gather(tensors: Sequence[Tensor], dim: int = 0, destination: Any = None, *, out: Any = None) -> Tensor:
    target = torch.device("cpu") if destination in ("cpu", -1) else _on(destination)
    return torch.cat([tensor.to(target) for tensor in tensors], dim)


def _apply_in_turn(modules: Any, inputs: Any, kwargs_tup: Any = None, devices: Any = None) -> list[Any]:
    outputs = []
    for position, (module, given) in enumerate(zip(modules, inputs, strict=True)):
        arguments = given if isinstance(given, (list, tuple)) else (given,)
        with torch.cuda.device(devices[position] if devices else arguments[0].device):
            outputs.append(module(*arguments, **(kwargs_tup[position] if kwargs_tup else {})))
    return outputs
