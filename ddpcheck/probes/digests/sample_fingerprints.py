"""A fingerprint of a sample's content: the same on every rank for the same sample, whatever its index."""

from __future__ import annotations

import dataclasses
import pickle
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

import torch
import xxhash

from ddpcheck.probes.digests.exact_digests import tensor_bytes


def fingerprint(sample: Any) -> str:
    """Sixteen hexadecimal digits for a sample of tensors, arrays, numbers, text, and containers of these."""
    hasher = xxhash.xxh3_64()
    for part in _parts(sample):
        hasher.update(len(part).to_bytes(8, "little"))  # so that boundaries count
        hasher.update(part)
    return hasher.hexdigest()


def _parts(value: Any) -> Iterator[bytes | memoryview]:
    if isinstance(value, torch.Tensor):
        data = tensor_bytes(value)
        yield f"tensor {value.dtype} {tuple(value.shape)}".encode()
        yield data
    elif isinstance(value, (bytes, bytearray, memoryview)):
        yield b"bytes"
        yield bytes(value)
    elif isinstance(value, (bool, int, float, complex, str, type(None))):
        yield f"{type(value).__name__} {value!r}".encode("utf-8", "surrogatepass")
    elif isinstance(value, Mapping):
        yield f"mapping of {len(value)}".encode()
        for key in sorted(value, key=repr):
            yield from _parts(key)
            yield from _parts(value[key])
    elif isinstance(value, Set):
        yield f"set of {len(value)}".encode()
        for one in sorted(fingerprint(one) for one in value):
            yield one.encode()
    elif isinstance(value, Sequence):
        yield f"sequence of {len(value)}".encode()
        for one in value:
            yield from _parts(one)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield type(value).__qualname__.encode()
        for field in dataclasses.fields(value):
            yield field.name.encode()
            yield from _parts(getattr(value, field.name))
    elif hasattr(value, "tobytes"):  # arrays of numpy, images of Pillow
        dtype, shape = getattr(value, "dtype", ""), getattr(value, "shape", "")
        yield f"{type(value).__name__} {dtype} {shape}".encode()
        if getattr(dtype, "hasobject", False):  # its bytes are addresses
            yield from _parts(value.tolist())
        else:
            yield value.tobytes()
    else:
        # Only to be hashed here; it never crosses a process.
        yield pickle.dumps(value)


class Rows(Sequence[Any]):
    """A batch taken apart along its first dimension, as it is asked for; what has none is one sample."""

    def __init__(self, batch: Any, most: int = sys.maxsize) -> None:
        length = _length(batch)
        self._batch = batch
        self._is_one = length is None or length > most
        self._length = 1 if length is None or self._is_one else length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, place: Any) -> Any:
        if place >= self._length:
            raise IndexError(place)
        return self._batch if self._is_one else _pick(self._batch, place)


def _length(batch: Any) -> int | None:
    if hasattr(batch, "shape"):  # a tensor, or an array
        return int(batch.shape[0]) if len(batch.shape) else None
    if isinstance(batch, Mapping):
        lengths = [_length(v) for v in batch.values()]
    elif isinstance(batch, (list, tuple)):
        if all(isinstance(v, (str, bytes, int, float)) for v in batch):
            return len(batch)
        lengths = [_length(v) for v in batch]
    else:
        return None
    return lengths[0] if lengths and len(set(lengths)) == 1 else None


def _pick(batch: Any, position: int) -> Any:
    if isinstance(batch, Mapping):
        return {key: _pick(value, position) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)) and not all(isinstance(v, (str, bytes, int, float)) for v in batch):
        return tuple(_pick(value, position) for value in batch)
    return batch[position]
