"""A state dict, entry by entry: names, which part of which tensor each is, and sums of what it holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import msgspec
import torch
import xxhash

from ddpcheck.evidence import SUMS, UNSEEN, WIDTH, Entry, Layout, StateForm
from ddpcheck.probes.checkpoints.live import Training, Where, where
from ddpcheck.probes.devices.awaited import Derived
from ddpcheck.probes.digests import fast_digests, readable_memory, sketches
from ddpcheck.probes.layouts import declared
from ddpcheck.probes.moments.sketch_rows import SketchRows
from ddpcheck.probes.recording import recorder

MOST = 4096
"""Entries of one state dict."""
DEEPEST = 8
FEW = 16
"""Numbers in a row up to which each is an entry of its own."""

_MOST_ROW = 1 << 16
"""Numbers in a row, or letters of a text, up to which it is looked at."""
_MOST_BYTES = 1 << 26
"""Of an array of numpy's, the same."""
_BLOCK = 1 << 20
"""Elements that are added up at a time."""

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_STREAMS = ("uint8[5056]", "uint8[16]")
"""The states of torch's generators, on the CPU and on a GPU."""


class Looked(NamedTuple):
    """A state dict that was looked at."""

    form: int
    digests: bytes | Derived
    sums: bytes | Derived
    entries: list[Entry]
    tensors: list[torch.Tensor | None]
    """The tensors of the entries that can be looked at."""
    mistaken: list[tuple[int, int]]
    """The place of a copy, and of one that has the same elements: the model has these under the second's name alone."""


class _Leaf(NamedTuple):
    name: str
    value: Any
    layout: Layout | None = None


_forms: dict[str, int] = {}
_writer: recorder.Recorder | None = None


def look(writer: recorder.Recorder, state: Any, sums: bool = True, names_alone: bool = False) -> Looked:
    """Look at a state dict, or at its names and shapes alone; no device is waited for, and nothing is gathered."""
    training = Training(writer)
    leaves = list(_first(_leaves(state, "", DEEPEST), MOST + 1))
    each = [_entry(writer, training, leaf) for leaf in leaves[:MOST]]
    looked = _looked(writer, each, len(leaves) > MOST, sums, names_alone=names_alone)
    return looked._replace(mistaken=_mistaken(training, looked)) if sums else looked


def look_at(writer: recorder.Recorder, named: Iterable[tuple[Entry, torch.Tensor]]) -> Looked:
    """Look at tensors that are known by name."""
    each = list(_first(iter(named), MOST + 1))
    return _looked(writer, each[:MOST], len(each) > MOST, True, of_moments=True)


def _looked(
    writer: recorder.Recorder,
    each: list[tuple[Entry, Any]],
    more: bool,
    sums: bool,
    of_moments: bool = False,
    names_alone: bool = False,
) -> Looked:
    entries = [entry for entry, _ in each]
    tensors = [value if not names_alone and _is_seen(value) else None for _, value in each]
    others = {place: _digest_of(value) for place, (_, value) in enumerate(each) if tensors[place] is None}
    found = fast_digests.queued(tensors)
    # Later, where a device is still computing them.
    digests = _put(others, found) if isinstance(found, bytes) else Derived(partial(_put, others), found)
    rows = [_sums(e, t, of_moments) if sums and t is not None else None for e, t in zip(entries, tensors, strict=True)]
    return Looked(_form(writer, entries, more), digests, SketchRows(rows, SUMS).packed(), entries, tensors, [])


def _put(others: dict[int, bytes], found: bytes) -> bytes:
    each = [others.get(n, found[n * WIDTH : (n + 1) * WIDTH]) for n in range(len(found) // WIDTH)]
    return b"".join(each)


def _mistaken(training: Training, looked: Looked) -> list[tuple[int, int]]:
    """One copy under the names of several parameters or buffers, which the model itself holds apart.

    Two copies with the same elements may be meant: a model may be grown, and begin with layers of a smaller one.
    """
    same: dict[Where, int] = {}
    found = []
    for place, entry in enumerate(looked.entries):
        copy = looked.tensors[place]
        if entry.live or copy is None or entry.role not in ("parameter", "buffer"):
            continue
        if not readable_memory.is_on_cpu(copy) or fast_digests.is_filled(copy):
            continue
        at = where(copy)
        other = same.setdefault(at, place) if at is not None else place
        if other != place:
            for mine, its in ((place, other), (other, place)):
                if training.holds(looked.entries[its].of, copy) and training.lacks(looked.entries[mine].of, copy):
                    found.append((mine, its))
    return found


def _form(writer: recorder.Recorder, entries: list[Entry], more: bool) -> int:
    """The number of these entries, which are written down when they are met for the first time."""
    global _writer
    if _writer is not writer:
        _writer = writer
        _forms.clear()
    key = msgspec.msgpack.encode((entries, more))
    digest = fast_digests.text_digest(key.hex())
    if digest not in _forms:
        _forms[digest] = len(_forms)
        writer.write(StateForm(**writer.next(), form=_forms[digest], entries=entries, left_out=int(more)))
    return _forms[digest]


# --- leaves


def _leaves(value: Any, name: str, depth: int) -> Iterator[_Leaf]:
    if isinstance(value, torch.Tensor) or depth <= 0:
        yield _Leaf(name, value)
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from _leaves(one, f"{name}.{key}" if name else str(key), depth - 1)
    elif isinstance(value, (list, tuple)):
        if len(value) > FEW and all(isinstance(one, _PLAIN) for one in value):
            yield _Leaf(name, tuple(value))
            return
        for place, one in enumerate(value):
            yield from _leaves(one, f"{name}.{place}" if name else str(place), depth - 1)
    elif callable(getattr(type(value), "local_shards", None)):
        yield from _shards(value, name)
    else:
        yield _Leaf(name, value)


def _shards(value: Any, name: str) -> Iterator[_Leaf]:
    """The parts that this rank has of a ShardedTensor."""
    shape = tuple(int(one) for one in value.size())
    for shard in value.local_shards():
        offset = tuple(int(one) for one in shard.metadata.shard_offsets)
        local = tuple(int(one) for one in shard.tensor.shape)
        layout = Layout(ground="FSDP", shape=shape, placements=("S",), local=local, offset=offset)
        yield _Leaf(name, shard.tensor, layout)


def _first(each: Iterator[Any], most: int) -> Iterator[Any]:
    for _, one in zip(range(most), each, strict=False):
        yield one


# --- entries


def _entry(writer: recorder.Recorder, training: Training, leaf: _Leaf) -> tuple[Entry, Any]:
    value = leaf.value
    if not isinstance(value, torch.Tensor):
        return Entry(name=leaf.name, kind=type(value).__name__), value
    live = training.at(value)
    known = live or training.called(leaf.name, value)
    layout = leaf.layout or declared.layout_of(writer, value, whole=True)
    if layout is None and live is not None:
        layout = live.layout
    shown = kind(value)
    role = known.role if known is not None else "random" if shown in _STREAMS else ""
    return Entry(
        name=leaf.name,
        kind=shown,
        role=role,
        of=known.of if known is not None else "",
        key=known.key if known is not None else "",
        live=live is not None,
        layout=layout,
        whole=known is not None and known.whole and layout is None,
    ), value


def kind(tensor: torch.Tensor) -> str:
    part = readable_memory.own_part(tensor)
    return fast_digests.kind(part if part is not None else tensor)


def _is_seen(value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or value.device.type not in readable_memory.LOOKED_AT:
        return False
    return readable_memory.own_part(value) is not None


def _digest_of(value: Any) -> bytes:
    """Of what is no tensor that can be looked at: of numbers and texts by what they say."""
    if isinstance(value, (str, bytes, tuple)) and len(value) > _MOST_ROW:
        return UNSEEN
    if isinstance(value, _PLAIN) or (isinstance(value, tuple) and all(isinstance(one, _PLAIN) for one in value)):
        return bytes.fromhex(fast_digests.text_digest(repr(value)))
    if hasattr(value, "dtype") and not isinstance(value, torch.Tensor) and callable(getattr(value, "tobytes", None)):
        return xxhash.xxh3_64_digest(value.tobytes()) if value.nbytes <= _MOST_BYTES else UNSEEN  # numpy's
    return UNSEEN


def _sums(entry: Entry, tensor: torch.Tensor, of_moments: bool) -> torch.Tensor | None:
    """SUMS doubles on the tensor's device; None for one that has no elements of floating point, or no known place."""
    plain, layout = readable_memory.strided(tensor), entry.layout
    if plain is None or not plain.is_floating_point() or not plain.is_contiguous():
        return None
    if layout is None or not layout.sharded:
        # Of what an optimizer gives to be saved for a whole parameter, digests say enough.
        if entry.role == "moment" and not of_moments:
            return None
        shape, offset = tuple(plain.shape), (0,) * plain.dim()
    elif layout.offset is None or "P" in layout.placements:
        return None
    else:
        shape, offset = layout.shape, layout.offset
    added = torch.zeros(2, dtype=torch.float64, device=plain.device)
    for block in torch.split(plain.reshape(-1), _BLOCK):
        wide = block.double()
        added += torch.stack([wide.sum(), wide.dot(wide)])
    return torch.cat([sketches.of_box(plain, shape, offset), added])
