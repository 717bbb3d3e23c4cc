"""Calls that real GPUs refuse before any operator runs: what is the CPU's alone, and what must come from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from ddpcheck.device_simulation import torch_messages
from ddpcheck.device_simulation.errors import NotSimulated
from ddpcheck.device_simulation.storages import Storages

Refusal = Callable[[Sequence[Any], dict[str, Any]], None]


def refusals(storages: Storages) -> Iterable[tuple[Any, Refusal]]:
    """Functions of torch, each with a look at its arguments that raises torch's error."""
    tensor: Any = torch.Tensor
    packing: Any = torch._VF

    def device_of(value: Any) -> torch.device | None:
        return storages.device_of(value) if isinstance(value, Tensor) else None

    def is_on_gpu(value: Any) -> bool:
        device = device_of(value)
        return device is not None and device.type == "cuda"

    def numpy(args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        if is_on_gpu(args[0]) and not kwargs.get("force"):
            raise TypeError(torch_messages.not_for_numpy(str(device_of(args[0]))))

    def cpus_alone(name: str) -> Refusal:
        def look(args: Sequence[Any], kwargs: dict[str, Any]) -> None:
            if is_on_gpu(args[0]):
                raise TypeError(f"{name} is only implemented on CPU tensors")

        return look

    def lengths(args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        given = args[1]
        if is_on_gpu(given):
            kind = torch._C.TensorBase.type(given).rpartition(".")[2].removesuffix("Tensor")
            raise RuntimeError(
                "'lengths' argument should be a 1D CPU int64 tensor, but got "
                f"{given.dim()}D {device_of(given)} {kind} tensor"
            )

    def places(args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        given = [*args, *kwargs.values()][1]
        if is_on_gpu(given):
            raise RuntimeError(
                f"tensor_split expected tensor_indices_or_sections to be on cpu, but it's on {device_of(given)}"
            )

    def axes(args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        given = args[0] if len(args) == 1 and isinstance(args[0], (list, tuple)) else args
        if len({device_of(each) for each in given}) > 1:
            raise RuntimeError("torch.meshgrid expects all tensors to have the same device")

    def record_stream(args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        raise NotSimulated("Tensor.record_stream()")

    def dlpack(args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        if is_on_gpu(args[0]):
            raise NotSimulated("DLPack of a tensor on a GPU")

    yield tensor.numpy, numpy
    yield tensor.__array__, numpy
    for name in ("apply_", "map_", "map2_"):
        yield getattr(tensor, name), cpus_alone(name)
    yield packing._pack_padded_sequence, lengths
    yield torch.tensor_split, places
    yield tensor.tensor_split, places
    yield torch.functional.meshgrid, axes
    yield packing.meshgrid, axes
    yield tensor.record_stream, record_stream
    yield tensor.__dlpack__, dlpack
