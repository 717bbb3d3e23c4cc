"""Parameters that lie in one flat buffer, and of which a gather into that buffer leaves the last elements as they are.

By addresses alone it is seen how far a gather goes, and how far others into
the same buffer go, as those of several buckets. Whether anything else writes to
what is beyond is seen in a few elements, from call to call.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from typing import Any

from ddpcheck.evidence import Call, GatheredOver
from ddpcheck.probes.collectives.call_arguments import Arguments
from ddpcheck.probes.digests import readable_memory
from ddpcheck.probes.layouts import models
from ddpcheck.probes.optimizers import gradient_events
from ddpcheck.probes.recording import recorder
from ddpcheck.probes.recording.pace import is_due

OPS = ("all_gather_into_tensor", "all_gather_single", "_all_gather_base")
ELEMENTS = 8
"""Those at the end that are read."""
MOST = 1 << 12
"""Parameters that are looked at."""

_calls: Counter[int] = Counter()
"""By line."""
_reached: dict[int, int] = {}
"""By the address of a buffer, the last one that a gather into it has gone to."""
MOST_BUFFERS = 1 << 12


def watch() -> None:
    """Look at gathers from now on."""
    gradient_events.COLLECTIVE.also(_gathers, OPS)


def _gathers(op: str, given: Arguments, made: Call) -> None:
    writer = recorder.current()
    if writer is None or gradient_events.several_train():
        return
    number = _calls[made.site]
    _calls[made.site] += 1
    if not is_due(number):
        return
    output = given.get("output_tensor")
    storage = readable_memory.storage(output) if output is not None else None
    lies = readable_memory.memory(output) if storage is not None else None
    if storage is None or lies is None:
        return
    begin, last = storage.data_ptr(), storage.data_ptr() + storage.nbytes()
    if len(_reached) >= MOST_BUFFERS:
        _reached.clear()
    end = _reached[begin] = max(_reached.get(begin, 0), lies[0] + lies[1])
    if end >= last:  # nothing is beyond
        return
    names: list[str] = []
    left: list[int] = []
    tails = b""
    for place, one in models.trainable(models.places(writer)):
        if len(names) >= MOST:
            break
        beyond = _beyond(one, lies[0], end, last)
        if beyond:
            names.append(place.path)
            left.append(beyond // one.element_size())
            tails += _end(one, beyond)
    if names:
        writer.write(
            GatheredOver(**writer.next(), site=made.site, number=number, names=names, elements=left, tails=tails)
        )


def _beyond(one: Any, begin: int, end: int, last: int) -> int:
    """The bytes of a parameter that lie in the buffer behind a gather; none of what has no gradient there."""
    mine = readable_memory.memory(one)
    if mine is None or not begin <= mine[0] < last or mine[0] + mine[1] <= end:
        return 0
    beyond = min(mine[1], mine[0] + mine[1] - end)
    gradient = one.grad
    if gradient is None or gradient.dtype != one.dtype or not readable_memory.memory(gradient):
        return 0
    return beyond if any(_end(gradient, beyond)) else 0


def _end(one: Any, beyond: int) -> bytes:
    lies = readable_memory.memory(one)
    if lies is None:
        return b""
    size = min(beyond, ELEMENTS * one.element_size(), lies[1])
    return ctypes.string_at(lies[0] + lies[1] - size, size)
