"""Which models an optimizer steps parameters of."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ddpcheck.probes.layouts import models
from ddpcheck.probes.moments import unsharded
from ddpcheck.probes.optimizers import gradient_events


class SteppedModels:
    """The models of each optimizer, worked out once as long as it has as many parameters."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[tuple[int, int], set[int]]] = {}

    def of(self, optimizer: int, parameters: Sequence[torch.Tensor]) -> set[int]:
        """The numbers of the models; none where it steps tensors of no model."""
        key = len(parameters), models.number()
        known = self._known.get(optimizer)
        if known is None or known[0] != key:
            ids = set(map(id, parameters))
            found = {
                number
                for number, module in models.alive()
                if any(id(unsharded.sharded(one)) in ids for one in module.parameters())
            }
            known = self._known[optimizer] = key, found
            gradient_events.forget_gone(self._known)
        return known[1]
