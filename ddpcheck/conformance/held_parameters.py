"""The parameters of a model that a trainer has put into wrappers, also where a wrapper has taken them out of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Held(NamedTuple):
    """One parameter that is trained."""

    tensor: Tensor
    """What the model computes with."""
    leaf: Tensor
    """What an optimizer has of it, and backward gives the gradient to: the same one, but in DDP over a mesh."""


def trained(net: torch.nn.Module, names: Sequence[str]) -> list[Held]:
    """The parameters of a model that require gradients, in the order of the names that it began with.

    DDP over a dimension of a mesh puts DTensors in the place of parameters, over the same memory, which are none.
    """
    found = [Held(parameter, parameter) for parameter in net.parameters() if parameter.requires_grad]
    if len(found) >= len(names):
        return found
    held = [getattr(net.get_submodule(module), name, None) for module, _, name in (n.rpartition(".") for n in names)]
    return [Held(tensor, _leaf(tensor)) for tensor in held if isinstance(tensor, Tensor)]


def _leaf(tensor: Tensor) -> Tensor:
    """The parameter that a tensor was made of."""
    node = tensor.grad_fn
    while node is not None and not hasattr(node, "variable"):
        node = node.next_functions[0][0] if node.next_functions else None
    leaf = getattr(node, "variable", tensor)
    return leaf if isinstance(leaf, Tensor) else tensor
