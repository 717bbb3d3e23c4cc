"""Digests of many tensors at a time, in about a microsecond each: what every training step can bear."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable

import torch
import xxhash

from ddpcheck.evidence import ABSENT
from ddpcheck.observe import device_digest
from ddpcheck.observe.digest import tensor_bytes

WINDOW = 16 * 1024
"""Bytes of a tensor that are looked at where not all of them are: another part of it at each turn."""

_EMPTY = xxhash.xxh3_64_digest(b"")


def digests(tensors: Iterable[torch.Tensor | None], turn: int | None = None) -> bytes:
    """Eight bytes for each tensor, side by side; with a ``turn``, of a window of each large one.

    The window of a turn lies at the same place on all ranks.
    """
    listed = list(tensors)
    if not any(t is not None and t.device.type != "cpu" for t in listed):
        return b"".join([_digest(t, turn) for t in listed])
    on_gpus = [t for t in listed if t is not None and t.device.type == "cuda"]
    told = iter(device_digest.digests(on_gpus, None if turn is None else (WINDOW, turn)))
    return b"".join(
        [
            next(told)[: len(ABSENT)]
            if t is not None and t.device.type == "cuda"
            else _digest(None if t is None or t.is_meta else t, turn)
            for t in listed
        ]
    )


def _digest(tensor: torch.Tensor | None, turn: int | None) -> bytes:
    if tensor is None:
        return ABSENT
    plain = tensor.layout is torch.strided and tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj()
    if not plain or tensor.device.type != "cpu":
        return _slowly(tensor)
    size = tensor.numel() * tensor.element_size()
    if size == 0:
        return _EMPTY
    start = tensor.data_ptr()
    if turn is not None and size > WINDOW:
        start += device_digest.place_of_turn(size, WINDOW, turn)
        size = WINDOW
    return xxhash.xxh3_64_digest((ctypes.c_char * size).from_address(start))


def _slowly(tensor: torch.Tensor) -> bytes:
    return xxhash.xxh3_64_digest(tensor_bytes(tensor))


def text_digest(text: str) -> str:
    """Sixteen hexadecimal digits for a text."""
    return xxhash.xxh3_64_hexdigest(text.encode())


def kind(tensor: torch.Tensor) -> str:
    """dtype and shape: ``float32[10, 4]``."""
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
