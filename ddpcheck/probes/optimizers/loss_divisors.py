"""What the loss of a backward() was divided by, right before: as by the number of micro-batches of a window."""

from __future__ import annotations

from typing import Any

import torch

from ddpcheck.probes.digests import readable_memory
from ddpcheck.probes.optimizers import few_elements
from ddpcheck.probes.recording.patching import shielded

DEEPEST = 8
"""Operations from the loss on that are followed: a scaler's factor may lie above the division."""
_SCALES = ("DivBackward0", "MulBackward0")


class _Last:
    """The loss of the last backward()."""

    handles: list[Any] = []  # noqa: RUF012
    divisors: list[float] = []  # noqa: RUF012


def last() -> float | None:
    """What the last loss was divided by; None where that was nothing, or several numbers one after the other."""
    return _Last.divisors[0] if len(_Last.divisors) == 1 else None


def follow(given: Any) -> None:
    """Look at the loss of a backward() that begins, with what it was given; until :func:`leave`."""
    leave()
    _Last.divisors.clear()
    loss = given[0] if isinstance(given, (list, tuple)) and len(given) == 1 else given
    if type(loss) is not torch.Tensor or loss.numel() != 1 or not readable_memory.is_on_cpu(loss):
        return
    node = loss.grad_fn
    for _ in range(DEEPEST):
        if node is None or node.name() not in _SCALES:
            return
        _Last.handles.append(node.register_hook(shielded(_passed)))
        inputs = [one for one, _ in node.next_functions if one is not None]
        node = inputs[0] if len(inputs) == 1 else None


def _passed(gradients_in: Any, gradients_out: Any) -> None:
    """The gradient has gone through an operation: by how much smaller it is now. A scaler makes it larger."""
    onward = [one for one in gradients_in if one is not None]
    came = [one for one in gradients_out if one is not None]
    if len(onward) != 1 or len(came) != 1 or onward[0].numel() != 1 or came[0].numel() != 1:
        return
    read = few_elements.sample([onward[0], came[0]])
    if read is not None and len(read) == 2 and read[0] and read[1]:
        divisor = read[1] / read[0]
        if divisor > 1 - 1e-6:
            _Last.divisors.append(divisor)


def leave() -> None:
    """The backward() is over."""
    for handle in _Last.handles:
        handle.remove()
    _Last.handles.clear()
