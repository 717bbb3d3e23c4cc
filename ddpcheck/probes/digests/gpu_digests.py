"""Digests of tensors on a GPU, computed there: two numbers for each travel, and its elements do not.

The bytes are read as words of 64 bits. Each word is mixed with a key that
depends on its place, so that the order counts, and the results are added up
modulo 2**64. A sum does not depend on the order in which a device adds, so the
digest is the same on every device, and only integers are computed with, so it
is of the bits: NaN payloads and the sign of zero count. The work is queued on
the current stream of the tensors' device, behind what has been queued there
before, as any other operation of the user's would be.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch

from ddpcheck.probes.digests import readable_memory

PORTION = 16 * 1024 * 1024
"""Bytes that are worked on at a time, with about four times as many for what comes in between."""

_WORD = 8
_ALL = (1 << 64) - 1
# The finaliser of splitmix64, and a golden ratio to set neighbouring places apart.
_PLACE = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_OTHER = 0xD6E8FEB86659FD93


class _Piece(NamedTuple):
    """A part of a tensor: its bytes, and which of the tensor's words the first of them is."""

    owner: int
    data: torch.Tensor
    begin: int

    @property
    def words(self) -> int:
        return -(-self.data.numel() // _WORD)


def digests(tensors: Sequence[torch.Tensor], window: tuple[int, int] | None = None) -> list[bytes | None]:
    """Sixteen bytes for each tensor, for its elements in their order; dtype and shape are no part of it.

    None for a tensor whose elements cannot be looked at; of a DTensor it is of
    the part that this rank has. ``window`` is a number of bytes and a turn: of a tensor that is larger, only
    that many are looked at, at a place that each turn moves on.
    """
    sums = [[0, 0] for _ in tensors]
    sizes: list[int | None] = [None] * len(tensors)
    by_device: dict[torch.device, list[_Piece]] = {}
    with torch.no_grad():
        for owner, tensor in enumerate(tensors):
            data = _bytes(tensor)
            if data is None:
                continue
            if window is not None and data.numel() > window[0]:
                begin = place_of_turn(data.numel(), *window)
                data = data[begin : begin + window[0]]
            sizes[owner] = data.numel()
            pieces = by_device.setdefault(data.device, [])
            pieces += [_Piece(owner, data[at : at + PORTION], at // _WORD) for at in range(0, data.numel(), PORTION)]
        for device, pieces in by_device.items():
            if not pieces:
                continue
            found = torch.cat([_sums(batch, device) for batch in _batches(pieces)], dim=1).tolist()
            for piece, first, second in zip(pieces, *found, strict=True):
                sums[piece.owner][0] += first
                sums[piece.owner][1] += second
    return [
        None
        if size is None
        else b"".join(_mixed((lane + size * _PLACE) & _ALL).to_bytes(8, "little") for lane in lanes)
        for lanes, size in zip(sums, sizes, strict=True)
    ]


def place_of_turn(size: int, width: int, turn: int) -> int:
    """Where the window of a turn begins: windows lie side by side, and go round."""
    windows = -(-size // width)
    return min((turn % windows) * width, size - width)


def _bytes(tensor: torch.Tensor) -> torch.Tensor | None:
    plain = readable_memory.local(tensor)
    return None if plain is None else plain.view(-1).view(torch.uint8)


def _batches(pieces: Iterable[_Piece]) -> Iterable[list[_Piece]]:
    """As many pieces at a time as make a portion: small tensors share their kernels."""
    batch: list[_Piece] = []
    size = 0
    for piece in pieces:
        if batch and size + piece.data.numel() > PORTION:
            yield batch
            batch, size = [], 0
        batch.append(piece)
        size += piece.data.numel()
    if batch:
        yield batch


def _sums(batch: list[_Piece], device: torch.device) -> torch.Tensor:
    """Both sums of each piece, as two rows."""
    padding = torch.zeros(_WORD, dtype=torch.uint8, device=device)
    parts = [part for p in batch for part in (p.data, padding[: p.words * _WORD - p.data.numel()])]
    words = torch.cat(parts).view(torch.int64)
    keys = torch.arange(words.numel(), dtype=torch.int64, device=device)
    starts, at = [], 0
    for piece in batch:
        starts.append(at)
        at += piece.words
    shifts = [piece.begin - start for piece, start in zip(batch, starts, strict=True)]
    if len(batch) == 1:
        keys += shifts[0]
    else:
        counts = _sent([piece.words for piece in batch], device)
        keys += torch.repeat_interleave(_sent(shifts, device), counts, output_size=at)
    keys += 1
    keys *= _signed(_PLACE)
    _mix(keys)
    keys ^= words
    _mix(keys)
    first = _totals(keys, starts)
    keys *= _signed(_OTHER)
    _mix(keys)
    return torch.stack([first, _totals(keys, starts)])


def _totals(values: torch.Tensor, starts: list[int]) -> torch.Tensor:
    """The sum of each piece's values, modulo 2**64."""
    if len(starts) == 1:
        return values.sum().reshape(1)
    ends = [start - 1 for start in (*starts[1:], values.numel())]
    up_to = values.cumsum(0)[_sent(ends, values.device)]
    return torch.cat([up_to[:1], up_to[1:] - up_to[:-1]])


def _sent(numbers: list[int], device: torch.device) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int64, device="cpu").to(device)


def _mix(values: torch.Tensor) -> None:
    """Let every bit of each value depend on all of its bits, in place; one to one."""
    for shift, factor in ((30, _FIRST), (27, _SECOND)):
        values ^= _shifted(values, shift)
        values *= _signed(factor)
    values ^= _shifted(values, 31)


def _shifted(values: torch.Tensor, by: int) -> torch.Tensor:
    """Shifted to the right without the sign, which int64 would bring in."""
    moved = values >> by
    moved &= (1 << (64 - by)) - 1
    return moved


def _mixed(value: int) -> int:
    """The same for one number."""
    for shift, factor in ((30, _FIRST), (27, _SECOND)):
        value = ((value ^ (value >> shift)) * factor) & _ALL
    return value ^ (value >> 31)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
