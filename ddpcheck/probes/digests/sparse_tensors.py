"""Sparse tensors by what they hold: the coordinates, in order, and the values there; the zeros take no memory."""

from __future__ import annotations

import math

import torch


def packed(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Coordinates, a column for each, and values of a tensor in coordinate form; None for any other."""
    if tensor.layout is not torch.sparse_coo:
        return None
    with torch.no_grad():
        whole = tensor.detach().coalesce()
        return whole.indices().contiguous(), whole.values().contiguous()


def unpacked(data: bytes, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The same from their bytes, of a tensor of this kind."""
    inner = tuple(like.shape[like.sparse_dim() :])
    column, value = 8 * like.sparse_dim(), math.prod(inner) * like.element_size()
    number = len(data) // max(1, column + value)
    flat = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
    split = number * column
    coordinates = flat[:split].clone().view(torch.int64).reshape(like.sparse_dim(), number)
    return coordinates, flat[split:].clone().view(like.dtype).reshape(number, *inner)


def side_by_side(
    mine: tuple[torch.Tensor, torch.Tensor], other: tuple[torch.Tensor, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The coordinates at which either has something, and the values of both there, zero where there is none."""
    every = torch.cat([mine[0], other[0]], dim=1)
    coordinates, places = torch.unique(every, dim=1, return_inverse=True)
    sides = []
    for values, own in ((mine[1], places[: mine[0].shape[1]]), (other[1], places[mine[0].shape[1] :])):
        side = values.new_zeros(coordinates.shape[1], *values.shape[1:])
        side[own] = values
        sides.append(side)
    return coordinates, sides[0], sides[1]
