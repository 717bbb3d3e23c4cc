"""The gradients of a wrapper as a backward() has left them: what a step is made on may be others.

They are digested again on entry to the step, though nothing may have come
between. That they are the same objects in the same version does not say so:
collectives, and the unscaling of a GradScaler, count no version.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec
import torch

from ddpcheck.evidence import Usage
from ddpcheck.probes.devices.awaited import Derived
from ddpcheck.probes.digests import fast_digests
from ddpcheck.vocabulary.clock import clock


class AfterBackward:
    """Their digests, in the wrapper's order, and what these have cost."""

    def __init__(self, parameters: Collection[torch.Tensor]) -> None:
        began = clock.fine()
        self.digests = fast_digests.queued([one.grad for one in parameters])
        self.took = clock.fine() - began
        """Seconds of the host."""


def with_gradients(usage: Usage, after: AfterBackward | None) -> Usage | Derived:
    """What became of a wrapper, with the digests of the gradients that its last backward() has left."""
    if after is None:
        return usage
    return Derived(lambda digests: msgspec.structs.replace(usage, after=digests), after.digests)
