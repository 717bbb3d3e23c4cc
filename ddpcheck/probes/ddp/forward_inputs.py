"""What goes into a forward in training, of a wrapper or of a model in none, and which batch had been handed out."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import xxhash

from ddpcheck.evidence import EVERY_INPUT, Inputs
from ddpcheck.probes.data.loader_pass import Tally, is_told
from ddpcheck.probes.devices.awaited import Derived
from ddpcheck.probes.digests import gpu_digests
from ddpcheck.probes.digests.batch_fingerprints import head
from ddpcheck.probes.processes import later_records
from ddpcheck.probes.recording import recorder, signal_exceptions, user_lines
from ddpcheck.probes.recording.shapes import shapes, tensors

ON_GPUS = 16
"""How many forwards of a model are looked at whose inputs lie on GPUs, which have to make their digests."""
_HEAD = 64 * 1024
"""The bytes of a tensor that are looked at."""

_forwards: dict[tuple[int | None, int | None], int] = {}
"""By the number of the wrapper, or that of the model."""


def heads(value: Any) -> bytes:
    """How the tensors of the CPU in a value begin."""
    return b"".join(head(one, _HEAD) for one in _strided(value) if one.device.type == "cpu")


def _heads_on_gpus(value: Any) -> gpu_digests.Queued | None:
    """The same of those on GPUs, which these compute; None where there are none."""
    there = [one for one in _strided(value) if one.device.type == "cuda"]
    with recorder.silence():
        return gpu_digests.queued(there, (_HEAD, 0)) if there else None


def _strided(value: Any) -> list[torch.Tensor]:
    return [one for one in tensors(value) if one.layout is torch.strided]


def _digest(here: bytes, there: list[bytes | None] | None) -> bytes:
    """One digest of all of them; empty where there is nothing, or something that cannot be looked at."""
    if there is not None and None in there:
        return b""
    found = b"".join([here, *(one for one in there or () if one is not None)])
    return xxhash.xxh3_64_digest(found) if found else b""


def note_inputs(args: tuple[Any, ...], kwargs: dict[str, Any], wrapper: int | None, model: int | None = None) -> None:
    """These go into a forward in training: the first are looked at, and ever fewer later."""
    number = _forwards.get((wrapper, model), 0)
    _forwards[wrapper, model] = number + 1
    writer = recorder.current()
    if writer is None or not is_told(number, EVERY_INPUT):
        return
    given = [*args, *kwargs.values()]
    try:
        found, queued = heads(given), _heads_on_gpus(given) if number < ON_GPUS else None
        sizes = shapes(given)
    except Exception as error:  # a tensor without memory; a container that fails
        signal_exceptions.let_through(error)
        return
    if not sizes:
        return
    batch = Tally.latest if Tally.latest is not None and Tally.latest.told and not Tally.latest.over else None
    record = partial(
        Inputs,
        **writer.next(),
        wrapper=wrapper,
        model=model,
        number=number,
        site=user_lines.here(),
        shapes=sizes,
        loader=batch.loader if batch is not None else None,
        pass_=batch.number if batch is not None else 0,
        batch=batch.batches - 1 if batch is not None else 0,
        given=batch.shapes if batch is not None else [],
        samples=batch.given if batch is not None else 0,
    )
    later_records.write(writer, record, digest=Derived(partial(_digest, found), queued))
