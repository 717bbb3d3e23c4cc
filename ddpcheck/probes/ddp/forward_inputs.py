"""What goes into a wrapper's forward in training, and which batch the program had been handed before."""

from __future__ import annotations

from typing import Any

import torch
import xxhash

from ddpcheck.evidence import EVERY_INPUT, Inputs
from ddpcheck.probes.data.loader_pass import Tally, is_told
from ddpcheck.probes.digests.batch_fingerprints import head
from ddpcheck.probes.recording import recorder, signal_exceptions, user_lines
from ddpcheck.probes.recording.shapes import shapes, tensors

_HEAD = 64 * 1024
"""The bytes of a tensor that are looked at."""

_forwards: dict[int, int] = {}
"""By wrapper."""


def heads(value: Any, elsewhere: bool = False) -> bytes:
    """How the tensors in a value begin; those of an accelerator, which have to be waited for, if ``elsewhere``."""
    return b"".join(
        head(one, _HEAD)
        for one in tensors(value)
        if one.layout is torch.strided and (elsewhere or one.device.type == "cpu")
    )


def note_inputs(wrapper: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """These go into a wrapper's forward in training: the first are looked at, and ever fewer later."""
    number = _forwards.get(wrapper, 0)
    _forwards[wrapper] = number + 1
    writer = recorder.current()
    if writer is None or not is_told(number, EVERY_INPUT):
        return
    given = [*args, *kwargs.values()]
    try:
        found = heads(given, elsewhere=number < 4)
        sizes = shapes(given)
    except Exception as error:  # a tensor without memory; a container that fails
        signal_exceptions.let_through(error)
        return
    if not sizes:
        return
    batch = Tally.latest if Tally.latest is not None and Tally.latest.told and not Tally.latest.over else None
    writer.write(
        Inputs(
            **writer.next(),
            wrapper=wrapper,
            number=number,
            digest=xxhash.xxh3_64_digest(found) if found else b"",
            site=user_lines.here(),
            shapes=sizes,
            loader=batch.loader if batch is not None else None,
            pass_=batch.number if batch is not None else 0,
            batch=batch.batches - 1 if batch is not None else 0,
            given=batch.shapes if batch is not None else [],
            samples=batch.given if batch is not None else 0,
        )
    )
