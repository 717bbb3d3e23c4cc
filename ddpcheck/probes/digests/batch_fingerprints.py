"""A fingerprint for each sample, as its dataset gave it, straight from memory: cheap enough for every batch."""

from __future__ import annotations

import ctypes
import dataclasses
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import xxhash

from ddpcheck.evidence import ABSENT
from ddpcheck.probes.data.rank_attributes import held
from ddpcheck.probes.digests import readable_memory

HEAD = 16 * 1024
"""The bytes of a large tensor or text that are looked at; of a tensor here and there: its edges may be all alike."""
MOST = 2048
"""The parts of one value, those of its parts included, that are looked at; a value of more has no digest."""
DEEPEST = 8
"""Containers in each other."""
FEW = 16
"""Parts of a sample; a list of more is one part."""
_PIECES = 4
_PLAIN = (bool, int, float, complex, str, bytes, bytearray, type(None))
_LISTS, _MAPPINGS = (list, tuple), (dict, OrderedDict, defaultdict)
"""Python's own: of other classes, even one of these, any question may run code of the program's."""


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
        each = [digest(part) for part in parts]
        known = [one for one in each if one is not None]
        # One that is known in part may be another sample with the same label.
        whole = known[0] if len(known) == 1 else xxhash.xxh3_64_digest(b"".join(known))
        found.append(whole if each and len(known) == len(each) else ABSENT)
        labels.append((each[-1] or ABSENT) if len(parts) > 1 else b"")
    return Prints(b"".join(found), b"".join(labels) if all(labels) else b"")


def _parts(sample: Any) -> Sequence[Any]:
    if type(sample) in _MAPPINGS and len(sample) <= FEW:
        return list(sample.values())
    return sample if _is_list(sample) and len(sample) <= FEW else [sample]


def _is_list(value: Any) -> bool:
    """Whether it is a list or tuple of Python's own, or a named tuple that is no more than that."""
    kind = type(value)
    return kind in _LISTS or (tuple in kind.__bases__ and hasattr(kind, "_fields") and "__iter__" not in vars(kind))


def digest(value: Any) -> bytes | None:
    """Eight bytes for a value; None for one that is too long, or cannot be read without code of the program's."""
    return _digest_within(value, [MOST], DEEPEST)


def _digest_within(value: Any, left: list[int], depth: int) -> bytes | None:
    """The same, with how many parts may still be looked at, and how deep."""
    left[0] -= 1
    kind = type(value)
    if left[0] < 0 or depth < 0:
        return None
    if isinstance(value, torch.Tensor):
        return _of_tensor(value)
    if kind in _PLAIN:
        return xxhash.xxh3_64_digest(_bytes(value))
    if kind in _MAPPINGS:
        return _together([*value.keys(), *value.values()], left, depth) if len(value) <= MOST else None
    if _is_list(value) or kind is range:
        return _together(value, left, depth)
    if kind in (set, frozenset):
        each = [_digest_within(part, left, depth - 1) for part in value] if len(value) <= MOST else [None]
        known = sorted(one for one in each if one is not None)
        return xxhash.xxh3_64_digest(b"".join(known)) if len(known) == len(each) else None
    if dataclasses.is_dataclass(kind) and kind.__getattribute__ is object.__getattribute__:
        return _together([held(value, field.name) for field in dataclasses.fields(kind)], left, depth)
    if kind.__module__ == "numpy" and hasattr(value, "dtype") and not value.dtype.hasobject:
        return _of_pieces(value) if value.ndim else xxhash.xxh3_64_digest(value.tobytes())
    return None


def _bytes(value: Any) -> bytes | memoryview:
    if isinstance(value, (bytes, bytearray)):
        return memoryview(value)[:HEAD]
    text = value[:HEAD] if isinstance(value, str) else value
    return f"{type(value).__name__} {text!r}".encode("utf-8", "surrogatepass")


def _together(values: Sequence[Any], left: list[int], depth: int) -> bytes | None:
    """One digest of all parts, and of how many there are; None where one of them has none."""
    number = len(values)
    if type(values) is range or all(type(one) in (bool, int, float) for one in values[:HEAD]):
        shown = values if type(values) is range else list(values[:HEAD])
        return xxhash.xxh3_64_digest(f"{number} {shown!r}".encode())
    if number > left[0]:
        return None
    each: list[bytes] = []
    for part in values:
        found = _digest_within(part, left, depth - 1)
        if found is None:
            return None
        each.append(found)
    return xxhash.xxh3_64_digest(str(number).encode() + b"".join(each))


def _of_tensor(tensor: torch.Tensor) -> bytes | None:
    lies = readable_memory.memory(tensor)
    if lies is None:
        plain = readable_memory.strided(tensor)
        return _of_pieces(plain) if plain is not None and plain.is_cpu else None
    start, size = lies
    if size <= HEAD:
        return xxhash.xxh3_64_digest(ctypes.string_at(start, size))
    piece = HEAD // _PIECES
    starts = [start + (size - piece) * place // (_PIECES - 1) for place in range(_PIECES)]
    return xxhash.xxh3_64_digest(b"".join([ctypes.string_at(one, piece) for one in starts]))


def _of_pieces(value: Any) -> bytes | None:
    """Of a tensor or array that does not lie in a row: a few of its rows are put into one, and never all of it."""
    found = []
    for one in _pieces(value, _PIECES):
        if isinstance(one, torch.Tensor):
            lies = readable_memory.memory(one := one.contiguous())
            if lies is None:
                return None
            found.append(ctypes.string_at(*lies))
        else:
            found.append(one.tobytes())
    return xxhash.xxh3_64_digest(b"".join(found))


def _pieces(value: Any, number: int) -> Iterator[Any]:
    if value.nbytes <= HEAD:
        yield value
        return
    rows = value.shape[0]
    if value.ndim == 1:
        yield value[: HEAD // _PIECES // value.itemsize]
        return
    for place in sorted({(rows - 1) * place // max(1, number - 1) for place in range(number)}):
        yield from _pieces(value[place], 2)


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
