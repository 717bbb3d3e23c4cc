"""Digests of many tensors at a time, in about a microsecond each: what every training step can bear."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Iterable
from functools import partial

import torch
import xxhash

from ddpcheck.evidence import ABSENT, UNSEEN
from ddpcheck.probes.devices.awaited import Awaited, Derived
from ddpcheck.probes.digests import gpu_digests, readable_memory
from ddpcheck.probes.recording import recorder, signal_exceptions
from ddpcheck.probes.recording.lone_rank import is_lone
from ddpcheck.probes.recording.unwatchable_moments import is_out_of_memory, overlooked

WINDOW = 16 * 1024
"""Bytes of a tensor that are looked at where not all of them are: another part of it at each turn."""


class Queued(Awaited):
    """Digests of several tensors, of which a GPU is still computing some."""

    def __init__(self, found: list[bytes], on_gpus: list[int], queued: gpu_digests.Queued) -> None:
        self._found, self._on_gpus, self._queued = found, on_gpus, queued

    def is_there(self) -> bool:
        """Whether all of them are there; any thread may ask."""
        return self._queued.is_there()

    def told(self) -> bytes:
        """Eight bytes for each tensor, side by side; waits for them where they are not there yet."""
        for place, told in zip(self._on_gpus, self._queued.told(), strict=True):
            self._found[place] = UNSEEN if told is None else told[: len(UNSEEN)]
        return b"".join(self._found)

    def give_up(self) -> None:
        """UNSEEN for what has not arrived."""
        self._queued.give_up()

    def device_seconds(self) -> float | None:
        """How long the GPUs have worked on them; None where that is not known yet."""
        return self._queued.device_seconds()


def queued(
    tensors: Iterable[torch.Tensor | None], turn: int | None = None, but: Collection[int] = ()
) -> bytes | Queued:
    """Eight bytes for each tensor, side by side; with a ``turn``, of a window of each large one.

    Where some are on GPUs, what comes back is still being computed there. The window of a turn lies at the same place
    on all ranks. What lies at the places ``but`` is not looked at, nor is a tensor whose memory cannot be read.
    """
    listed = list(tensors)
    if is_lone():
        return _none_of(listed)
    noted = recorder.look_begins()
    try:
        with torch._C.DisableTorchFunctionSubclass():  # what a class of the user's answers for its tensors is not asked
            return _queued(listed, turn, but)
    finally:
        recorder.look_is_over(noted)


def digests(tensors: Iterable[torch.Tensor | None], turn: int | None = None, but: Collection[int] = ()) -> bytes:
    """The same, waited for."""
    found = queued(tensors, turn, but)
    return found if isinstance(found, bytes) else found.told()


def _queued(listed: list[torch.Tensor | None], turn: int | None, but: Collection[int]) -> bytes | Queued:
    try:
        found, on_gpus = [], []
        for place, tensor in enumerate(listed):
            own = tensor if tensor is None or place in but else readable_memory.own_part(tensor)
            known = ABSENT if tensor is None else UNSEEN if own is None or place in but else _digest(own, turn)
            if known is None:
                listed[place] = own
                on_gpus.append(place)
                known = UNSEEN
            found.append(known)
        if on_gpus:
            window = None if turn is None else (WINDOW, turn)
            there = [one for place in on_gpus if (one := listed[place]) is not None]
            return Queued(found, on_gpus, gpu_digests.queued(there, window))
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        overlooked("memory")
        return _none_of(listed)
    return b"".join(found)


def _none_of(listed: list[torch.Tensor | None]) -> bytes:
    """What stands for tensors that are not looked at."""
    return b"".join([ABSENT if tensor is None else UNSEEN for tensor in listed])


def _digest(tensor: torch.Tensor, turn: int | None) -> bytes | None:
    """Of one tensor; None for one that is on a GPU, and is looked at together with others."""
    lies = readable_memory.memory(tensor)
    if lies is None:
        if tensor.device.type not in readable_memory.LOOKED_AT:
            return UNSEEN
        if tensor.device.type == "cuda":
            return None
        copy = readable_memory.local(tensor)
        lies = None if copy is None else readable_memory.memory(copy)
        if lies is None:
            return UNSEEN
    start, size = lies
    if turn is not None and size > WINDOW:
        start += gpu_digests.place_of_turn(size, WINDOW, turn)
        size = WINDOW
    return xxhash.xxh3_64_digest((ctypes.c_char * size).from_address(start) if size else b"")


def filled(tensors: Iterable[torch.Tensor | None]) -> list[bool] | Derived:
    """Whether the elements in the first part of each tensor are all the same; of those on GPUs that is computed there.

    What could not be looked at there may be a constant, and is taken for one.
    """
    listed = list(tensors)
    own = [None if tensor is None else readable_memory.own_part(tensor) for tensor in listed]
    there = {place: one for place, one in enumerate(own) if one is not None and one.device.type == "cuda"}
    found = [one is not None and place not in there and is_filled(one) for place, one in enumerate(own)]
    for place, tensor in enumerate(listed):
        found[place] |= own[place] is None and tensor is not None and tensor.device.type == "cuda"
    if not there:
        return found
    try:
        computed = gpu_digests.constants(list(there.values()), WINDOW)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        overlooked("memory")
        return [one or place in there for place, one in enumerate(found)]
    return Derived(partial(_put, found, list(there)), computed)


def _put(found: list[bool], places: list[int], values: list[bool]) -> list[bool]:
    known = dict(zip(places, values, strict=True))
    return [known.get(place, one) for place, one in enumerate(found)]


def is_filled(tensor: torch.Tensor) -> bool:
    """The same of one in the CPU's memory; of one on a GPU nobody looks, and it is not."""
    own = readable_memory.own_part(tensor)
    lies = readable_memory.memory(own) if own is not None else None
    if lies is None or not lies[1]:
        return False
    width = tensor.element_size()
    found = ctypes.string_at(lies[0], min(lies[1], WINDOW))
    return found == found[:width] * (len(found) // width)


def text_digest(text: str) -> str:
    """Sixteen hexadecimal digits for a text."""
    return xxhash.xxh3_64_hexdigest(text.encode())


def number_digest(number: float) -> bytes:
    """Eight bytes for a number."""
    return xxhash.xxh3_64_digest(repr(number).encode())


def kind(tensor: torch.Tensor) -> str:
    """dtype and shape: ``float32[10, 4]``."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    try:
        return f"{dtype}{list(tensor.shape)}"
    except (RuntimeError, ValueError) as error:  # a nested tensor has no one shape, and a lazy one has none yet
        signal_exceptions.let_through(error)
        return dtype
