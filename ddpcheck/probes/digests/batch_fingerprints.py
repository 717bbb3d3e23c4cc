"""A fingerprint for each sample of a collated batch, straight from memory: cheap enough for every batch."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
import xxhash

from ddpcheck.probes.digests import readable_memory
from ddpcheck.probes.digests.sample_fingerprints import fingerprint

HEAD = 16 * 1024
"""The bytes of a long row that are looked at."""
_PIECE = HEAD // 8
_ZEROS = bytes(4096)
_AT_ONCE = 1 << 20
"""A batch up to this size is read in one go."""
_LABELS = ("labels", "label", "targets", "target", "y")
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


class Rows(NamedTuple):
    """The fingerprints of a batch's samples, eight bytes each, and those of their last parts."""

    samples: int
    prints: bytes
    labels: bytes


def fingerprints(batch: Any, samples: int | None = None, places: Sequence[int] | None = None) -> Rows | None:
    """Fingerprint the samples at these places of a batch (all of them, by default).

    None for a batch that cannot be taken apart into so many samples. Zeros at
    the end of a row do not count: a sample is padded to the longest of its batch.
    """
    found: int | None = None
    label: int | None
    if type(batch) in (list, tuple) and len(batch) > 1 and all(type(part) is torch.Tensor for part in batch):
        # What most loaders give, without a closer look.
        found, parts, label = _common_length(batch), list(batch), len(batch) - 1
    if found is None:
        found, (parts, label) = length(batch), _parts(batch)
    if not found or (samples is not None and found != samples):
        return None
    wanted = range(found) if places is None else places
    columns = [_column(part, found, wanted) for part in parts]
    column = _together(columns)
    if column is None:
        return None
    labels = columns[label] if label is not None else None
    return Rows(found, b"".join(column), b"".join(labels or ()))


def head(tensor: torch.Tensor, size: int) -> bytes:
    """A digest of a tensor's first bytes; raises ValueError for one whose elements cannot be looked at."""
    lies = readable_memory.memory(tensor)
    if lies is None and (plain := readable_memory.strided(tensor)) is not None:
        first = readable_memory.local(plain.flatten()[: size // tensor.element_size()])
        lies = readable_memory.memory(first := first.cpu()) if first is not None else None
    if lies is None:
        raise ValueError("a tensor without memory")
    return xxhash.xxh3_64_digest(ctypes.string_at(lies[0], min(size, lies[1])))


# --- parts


def _common_length(parts: Sequence[torch.Tensor]) -> int | None:
    lengths = {part.size(0) for part in parts if part.dim()}
    return lengths.pop() if len(lengths) == 1 else None


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


def _parts(batch: Any) -> tuple[list[Any], int | None]:
    """The parts of a batch, and the place of the one that is its label: the last one, or the one of that name."""
    if isinstance(batch, Mapping):
        named = next((place for place, name in enumerate(batch) if name in _LABELS), len(batch) - 1)
        return list(batch.values()), named if len(batch) > 1 else None
    if isinstance(batch, (list, tuple)) and len(batch) > 1 and not isinstance(batch[0], _PLAIN) and _collated(batch):
        return list(batch), len(batch) - 1
    return [batch], None


# --- digests, sample by sample


def _column(value: Any, samples: int, places: Sequence[int]) -> list[bytes] | None:
    """A digest of the part of a value that belongs to each sample; None if it is not divided by samples."""
    if isinstance(value, torch.Tensor):
        return _of_tensor(value, samples, places)
    if hasattr(value, "__array_interface__"):
        return _of_array(value, samples, places)
    if isinstance(value, Mapping):
        return _together([_column(part, samples, places) for part in value.values()])
    if isinstance(value, (list, tuple)):
        if length(value, 1) == samples and (not value or _collated(value)) and not isinstance(value[0], _PLAIN):
            return _together([_column(part, samples, places) for part in value])
        if len(value) == samples:
            return [bytes.fromhex(fingerprint(value[place])) for place in places]
    return None


def _together(columns: list[list[bytes] | None]) -> list[bytes] | None:
    """One digest for each sample, of all its parts."""
    known = [column for column in columns if column is not None]
    if len(known) < 2:
        return known[0] if known else None
    return [xxhash.xxh3_64_digest(b"".join(parts)) for parts in zip(*known, strict=True)]


def _of_tensor(tensor: torch.Tensor, samples: int, places: Sequence[int]) -> list[bytes] | None:
    if readable_memory.memory(tensor) is None:
        plain = readable_memory.strided(tensor)
        if plain is None:
            return None
        tensor = plain
    if not tensor.dim() or tensor.size(0) != samples or not tensor.is_cpu:
        return None
    if not tensor.is_contiguous() and not _rows_are_dense(tensor, tensor.numel() // samples):
        tensor = tensor.contiguous()
    size = tensor.element_size()
    width, step = tensor.numel() // samples * size, tensor.stride(0) * size
    if not width:
        return [xxhash.xxh3_64_digest(b"")] * len(places)
    start = tensor.data_ptr()
    digest, at = xxhash.xxh3_64_digest, ctypes.string_at
    if width > HEAD and tensor.dim() > 3:
        # Pictures and films: their edges may all be white.
        parts = [start + (width - _PIECE) * part // 3 for part in range(4)]
        return [digest(b"".join([at(part + place * step, _PIECE) for part in parts])) for place in places]
    if width > HEAD:
        return [digest(_without_padding(at(start + place * step, HEAD))) for place in places]
    if step * samples > _AT_ONCE:
        return [digest(_without_padding(at(start + place * step, width))) for place in places]
    memory = at(start, step * (samples - 1) + width)
    return [digest(_without_padding(memory[place * step : place * step + width])) for place in places]


def _rows_are_dense(tensor: torch.Tensor, elements: int) -> bool:
    """Whether each row fills a stretch of memory of its own, in whatever order: channels may come last."""
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape[1:], tensor.stride()[1:], strict=True))
    return reach + 1 == elements and tensor.stride(0) >= elements


def _of_array(array: Any, samples: int, places: Sequence[int]) -> list[bytes] | None:
    if not len(array.shape) or array.shape[0] != samples or getattr(array.dtype, "hasobject", False):
        return None
    return [xxhash.xxh3_64_digest(_without_padding(array[place].tobytes()[:HEAD])) for place in places]


def _without_padding(row: bytes) -> bytes:
    """A row without the zeros at its end."""
    size = len(row)
    if not size or row[-1]:
        return row
    for chunk in (4096, 512, 64):
        while size >= chunk and row[size - chunk : size] == _ZEROS[:chunk]:
            size -= chunk
    # One by one, this is slow.
    return row[:size].rstrip(b"\0")
