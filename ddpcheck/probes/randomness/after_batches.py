"""What a program draws between a batch that it was handed and the forward that gets it: noise, or augmentation."""

from __future__ import annotations

import ctypes
import struct
from typing import NamedTuple

import torch
import xxhash

from ddpcheck.probes.digests import readable_memory
from ddpcheck.probes.randomness import seed_lines
from ddpcheck.probes.recording.missing_seams import attribute

BATCHES = 3
"""How many batches of a pass are looked at, where its contents are."""
_STATE_BYTES = 8192
_LEFT_AT = 8
"""Behind the seed."""
_BLOCK = 624
"""The numbers that torch's generator for the CPU makes at once."""


class Drawn(NamedTuple):
    """Drawn after a batch of this loader."""

    loader: int
    state: bytes
    """A digest of the state when the batch was handed out."""
    numbers: int
    """How many were drawn since; of more than a block, what is over."""


class _Handed(NamedTuple):
    loader: int
    state: bytes
    left: int
    seedings: int


_handed: _Handed | None = None
"""The batch that was handed out last, as long as no forward has begun since."""


def handed(loader: int) -> None:
    """A batch is given to the script."""
    global _handed
    found = _state()
    _handed = _Handed(loader, *found, seed_lines.times) if found is not None else None


def drawn() -> Drawn | None:
    """A forward begins: what was drawn since the last batch. None for nothing, and where a line has set the state."""
    global _handed
    before, _handed = _handed, None
    if before is None or before.seedings != seed_lines.times:
        return None
    found = _state()
    if found is None or found[0] == before.state:
        return None
    return Drawn(before.loader, before.state, (before.left - found[1]) % _BLOCK)


def _state() -> tuple[bytes, int] | None:
    """A digest of the state, and how many numbers of its block are left."""
    generator = attribute(torch, "default_generator", None)
    lies = readable_memory.memory(state := generator.get_state()) if generator is not None else None
    if lies is None or lies[1] < _LEFT_AT + 4:
        return None
    found = ctypes.string_at(lies[0], min(_STATE_BYTES, lies[1]))
    del state  # up to here its memory is read
    return xxhash.xxh3_64_digest(found), struct.unpack_from("<i", found, _LEFT_AT)[0]
