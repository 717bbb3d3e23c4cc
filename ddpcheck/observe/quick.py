"""Digests of many tensors at a time, in about a microsecond each: what every training step can bear."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence

import torch
import xxhash

from ddpcheck.evidence import ABSENT
from ddpcheck.observe.digest import tensor_bytes

WINDOW = 16 * 1024
"""Bytes of a tensor that are looked at where not all of them are: another part of it at each turn."""

_EMPTY = xxhash.xxh3_64_digest(b"")


def digests(tensors: Iterable[torch.Tensor | None], turn: int | None = None) -> bytes:
    """Eight bytes for each tensor, side by side; with a ``turn``, of a window of each large one.

    The window of a turn lies at the same place on all ranks.
    """
    listed = list(tensors)
    if any(t is not None and t.device.type != "cpu" for t in listed):
        listed = _fetched(listed, turn)
        turn = None
    return b"".join([_digest(t, turn) for t in listed])


def _digest(tensor: torch.Tensor | None, turn: int | None) -> bytes:
    if tensor is None:
        return ABSENT
    if tensor.layout is not torch.strided or not tensor.is_contiguous() or tensor.is_neg() or tensor.is_conj():
        return _slowly(tensor)
    size = tensor.numel() * tensor.element_size()
    if size == 0:
        return _EMPTY
    start = tensor.data_ptr()
    if turn is not None and size > WINDOW:
        start += _offset(size, turn)
        size = WINDOW
    return xxhash.xxh3_64_digest((ctypes.c_char * size).from_address(start))


def _slowly(tensor: torch.Tensor) -> bytes:
    return xxhash.xxh3_64_digest(tensor_bytes(tensor))


def _offset(size: int, turn: int) -> int:
    """Where the window of a turn begins: windows lie side by side, and go round."""
    windows = -(-size // WINDOW)
    return min((turn % windows) * WINDOW, size - WINDOW)


def _fetched(tensors: Sequence[torch.Tensor | None], turn: int | None) -> list[torch.Tensor | None]:
    """The tensors' bytes (or their windows) on the CPU, by one transfer for each device."""
    pieces: list[torch.Tensor | None] = []
    with torch.no_grad():
        for t in tensors:
            if t is None or t.device.type == "cpu" or t.is_meta or t.layout is not torch.strided:
                pieces.append(None if t is None or t.is_meta else t.detach())
                continue
            flat = t.detach().contiguous().view(-1).view(torch.uint8) if t.numel() else t.detach().view(torch.uint8)
            if turn is not None and flat.numel() > WINDOW:
                start = _offset(flat.numel(), turn)
                flat = flat[start : start + WINDOW]
            pieces.append(flat)
        by_device: dict[torch.device, list[int]] = {}
        for place, piece in enumerate(pieces):
            if piece is not None and piece.device.type != "cpu" and piece.layout is torch.strided:
                by_device.setdefault(piece.device, []).append(place)
        for places in by_device.values():
            sizes = [int(pieces[p].numel()) for p in places]  # type: ignore[union-attr]
            whole = torch.cat([pieces[p] for p in places]).cpu()  # type: ignore[misc]
            for place, piece in zip(places, torch.split(whole, sizes), strict=True):
                pieces[place] = piece
    return pieces


def text_digest(text: str) -> str:
    """Sixteen hexadecimal digits for a text."""
    return xxhash.xxh3_64_hexdigest(text.encode())


def kind(tensor: torch.Tensor) -> str:
    """dtype and shape: ``float32[10, 4]``."""
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
