"""A fingerprint for each sample, as its dataset gave it, straight from memory: cheap enough for every batch."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import xxhash

from ddpcheck.evidence import ABSENT
from ddpcheck.probes.digests import readable_memory

HEAD = 16 * 1024
"""The bytes of a long tensor that are looked at."""
MANY = 2048
"""The parts of a long container that are."""
DEEPEST = 4
"""Containers in each other."""
_PIECE = HEAD // 8
_PLAIN = (bool, int, float, complex, str, bytes, bytearray, type(None))


class Prints(NamedTuple):
    """The fingerprints of samples, eight bytes each, and those of their last parts; ABSENT for what cannot be read."""

    samples: bytes
    labels: bytes
    """Empty where a sample has one part."""


def of_samples(samples: Iterable[Any]) -> Prints:
    """Fingerprint samples of tensors, arrays, numbers, text, and containers of these; no code of theirs is run."""
    found: list[bytes] = []
    labels: list[bytes] = []
    for sample in samples:
        parts = _parts(sample)
        each = [one for one in map(digest, parts) if one is not None]
        found.append(each[0] if len(each) == 1 else xxhash.xxh3_64_digest(b"".join(each)) if each else ABSENT)
        labels.append((each[-1] if each else ABSENT) if len(parts) > 1 else b"")
    return Prints(b"".join(found), b"".join(labels) if all(labels) else b"")


def _parts(sample: Any) -> list[Any]:
    if isinstance(sample, Mapping):
        return list(sample.values())
    return list(sample) if isinstance(sample, (list, tuple)) and len(sample) <= MANY else [sample]


def digest(value: Any, depth: int = 0) -> bytes | None:
    """Eight bytes for a value; None for one that cannot be read without running code of the program's."""
    if isinstance(value, torch.Tensor):
        return _of_tensor(value)
    if isinstance(value, _PLAIN):
        return xxhash.xxh3_64_digest(value[:HEAD] if isinstance(value, (bytes, bytearray)) else _text(value))
    if depth >= DEEPEST:
        return None
    if isinstance(value, Mapping):
        return _together([*value.keys(), *value.values()], depth)
    if isinstance(value, (list, tuple, range)):
        return _together(value, depth)
    if isinstance(value, (set, frozenset)):
        each = sorted(one for one in (digest(part, depth + 1) for part in value) if one is not None)
        return xxhash.xxh3_64_digest(b"".join(each))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _together([vars(value).get(field.name) for field in dataclasses.fields(value)], depth)
    if type(value).__module__ == "numpy" and hasattr(value, "dtype") and not value.dtype.hasobject:
        return xxhash.xxh3_64_digest(value.reshape(-1)[: HEAD // max(1, value.itemsize)].tobytes())
    return None


def _text(value: Any) -> bytes:
    return f"{type(value).__name__} {value!r}".encode("utf-8", "surrogatepass")


def _together(values: Any, depth: int) -> bytes | None:
    """One digest of all parts that can be read, and of how many there are."""
    number = len(values)
    parts = values if number <= MANY else [*values[: MANY // 2], *values[-MANY // 2 :]]
    if isinstance(parts, range) or all(type(one) in (bool, int, float, str) for one in parts):
        return xxhash.xxh3_64_digest(f"{number} {list(parts)!r}".encode("utf-8", "surrogatepass"))
    each = [one for one in (digest(part, depth + 1) for part in parts) if one is not None]
    return xxhash.xxh3_64_digest(str(number).encode() + b"".join(each)) if each or not number else None


def _of_tensor(tensor: torch.Tensor) -> bytes | None:
    lies = readable_memory.memory(tensor)
    if lies is None:
        plain = readable_memory.strided(tensor)
        if plain is None or not plain.is_cpu:
            return None
        tensor = plain.contiguous()
        lies = readable_memory.memory(tensor)
    if lies is None or not tensor.is_cpu:
        return None
    start, size = lies
    if size > HEAD and tensor.dim() > 2:
        # Pictures and films: their edges may all be white.
        pieces = [start + (size - _PIECE) * part // 3 for part in range(4)]
        return xxhash.xxh3_64_digest(b"".join([ctypes.string_at(piece, _PIECE) for piece in pieces]))
    return xxhash.xxh3_64_digest(ctypes.string_at(start, min(size, HEAD)))


def head(tensor: torch.Tensor, size: int) -> bytes:
    """A digest of a tensor's first bytes; raises ValueError for one whose elements cannot be looked at."""
    lies = readable_memory.memory(tensor)
    if lies is None and (plain := readable_memory.strided(tensor)) is not None:
        first = readable_memory.local(plain.flatten()[: size // tensor.element_size()])
        lies = readable_memory.memory(first := first.cpu()) if first is not None else None
    if lies is None:
        raise ValueError("a tensor without memory")
    return xxhash.xxh3_64_digest(ctypes.string_at(lies[0], min(size, lies[1])))


# --- batches


def length(batch: Any, depth: int = 0) -> int | None:
    """How many samples a batch has: the first dimension of its first part that has one."""
    if hasattr(batch, "shape"):
        return int(batch.shape[0]) if len(batch.shape) else None
    if depth > 4:
        return None
    if isinstance(batch, Mapping):
        parts = list(batch.values())
    elif isinstance(batch, (list, tuple)):
        if batch and (isinstance(batch[0], _PLAIN) or not _collated(batch)):
            return len(batch)
        parts = list(batch)
    else:
        return None
    return next((n for part in parts if (n := length(part, depth + 1)) is not None), None)


def _collated(parts: Sequence[Any]) -> bool:
    """Whether these are the parts of a batch, and not its samples: all have one length."""
    lengths = {length(part, 1) for part in parts} - {None}
    return len(lengths) == 1 and not all(isinstance(part, Mapping) for part in parts)
