"""Parameters as they are when a step begins before which the program itself has exchanged something of some size.

Averages of models are taken between steps, in whatever way: of parameters, of
their changes, through buffers. What they come to is seen there alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from ddpcheck.evidence import AfterExchange
from ddpcheck.probes.digests import fast_digests
from ddpcheck.probes.optimizers.program_reductions import Window
from ddpcheck.probes.processes import later_records
from ddpcheck.probes.recording import recorder

MOST = 8
"""Looks at one optimizer."""
IN_A_ROW = 2
"""Steps: what is exchanged before more of them is exchanged before every one."""


class Looks:
    """Those at one optimizer."""

    def __init__(self) -> None:
        self._made = self._in_a_row = 0

    def entered(
        self,
        writer: recorder.Recorder,
        window: Window,
        optimizer: int,
        number: int,
        parameters: Sequence[torch.Tensor],
        unseen: set[int],
    ) -> None:
        """A step begins."""
        if not number or self._made == MOST:
            return
        sites, groups = window.exchanges()
        self._in_a_row = self._in_a_row + 1 if sites else 0
        if not sites or self._in_a_row > IN_A_ROW:
            return
        self._made += 1
        record = partial(AfterExchange, **writer.next(), optimizer=optimizer, number=number, sites=sites, groups=groups)
        later_records.write(writer, record, values=fast_digests.queued(parameters, but=unseen))
