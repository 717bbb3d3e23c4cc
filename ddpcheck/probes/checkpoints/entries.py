"""A state dict, entry by entry: names, which part of which tensor each is, and prints of what it holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import torch

from ddpcheck.evidence import ABSENT, UNSEEN, Entry, Layout, StateForm
from ddpcheck.probes.checkpoints.live import Training, Where, where
from ddpcheck.probes.digests import fast_digests, readable_memory, whole_prints
from ddpcheck.probes.layouts import declared
from ddpcheck.probes.recording import recorder

MOST = 4096
"""Entries of one state dict."""
DEEPEST = 8
FEW = 16
"""Numbers in a row up to which each is an entry of its own."""

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_STREAMS = ("uint8[5056]", "uint8[16]")
"""The states of torch's generators, on the CPU and on a GPU."""


class Looked(NamedTuple):
    """A state dict that was looked at."""

    form: int
    digests: bytes
    prints: bytes
    entries: list[Entry]
    tensors: list[torch.Tensor | None]
    """The tensors of the entries that are on the CPU."""
    mistaken: list[tuple[int, int]]
    """The place of a copy, and of one that has the same elements: the model has these under the second's name alone."""


class _Leaf(NamedTuple):
    name: str
    value: Any
    layout: Layout | None = None


_forms: dict[str, int] = {}
_writer: recorder.Recorder | None = None


def look(writer: recorder.Recorder, state: Any, prints: bool = True) -> Looked:
    """Look at a state dict; nothing on a device is waited for, and nothing gathered."""
    training = Training(writer)
    leaves = list(_first(_leaves(state, "", DEEPEST), MOST + 1))
    looked = _looked(writer, [_entry(writer, training, leaf) for leaf in leaves[:MOST]], len(leaves) > MOST, prints)
    return looked._replace(mistaken=_mistaken(training, looked)) if prints else looked


def look_at(writer: recorder.Recorder, named: Iterable[tuple[Entry, torch.Tensor]]) -> Looked:
    """Look at tensors that are known by name."""
    each = list(_first(iter(named), MOST + 1))
    return _looked(writer, each[:MOST], len(each) > MOST, True)


def digests(tensors: list[torch.Tensor | None]) -> bytes:
    """Of those that are on the CPU."""
    return fast_digests.digests(tensors)


def _looked(writer: recorder.Recorder, each: list[tuple[Entry, Any]], more: bool, prints: bool) -> Looked:
    entries = [entry for entry, _ in each]
    tensors = [value if _is_seen(value) else None for _, value in each]
    found = digests(tensors)
    width = len(ABSENT)
    digest = [
        found[p * width : (p + 1) * width] if tensors[p] is not None else _digest_of(value)
        for p, (_, value) in enumerate(each)
    ]
    printed = [
        _print(e, t) if prints and t is not None else whole_prints.NONE for e, t in zip(entries, tensors, strict=True)
    ]
    return Looked(_form(writer, entries, more), b"".join(digest), b"".join(printed), entries, tensors, [])


def _mistaken(training: Training, looked: Looked) -> list[tuple[int, int]]:
    """One copy under the names of several parameters or buffers, which the model itself holds apart.

    Two copies with the same elements may be meant: a model may be grown, and begin with layers of a smaller one.
    """
    same: dict[Where, int] = {}
    found = []
    for place, entry in enumerate(looked.entries):
        copy = looked.tensors[place]
        if entry.live or copy is None or entry.role not in ("parameter", "buffer") or fast_digests.is_filled(copy):
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
    return isinstance(value, torch.Tensor) and readable_memory.is_on_cpu(value)


def _digest_of(value: Any) -> bytes:
    """Of what is no tensor that can be looked at: of numbers and texts by what they say."""
    if isinstance(value, _PLAIN) or (isinstance(value, tuple) and all(isinstance(one, _PLAIN) for one in value)):
        return bytes.fromhex(fast_digests.text_digest(repr(value)))
    if hasattr(value, "dtype") and not isinstance(value, torch.Tensor) and callable(getattr(value, "tobytes", None)):
        return bytes.fromhex(fast_digests.text_digest(value.tobytes().hex()))  # numpy's
    return UNSEEN


def _print(entry: Entry, tensor: torch.Tensor) -> bytes:
    part = readable_memory.own_part(tensor)
    if part is None:
        return whole_prints.NONE
    layout = entry.layout
    if layout is None or not layout.sharded:
        # The whole is compared with parts, where there are any; else its digest says as much.
        if not declared.is_any_known() or entry.role == "moment":
            return whole_prints.NONE
        return whole_prints.of_part(part, tuple(part.shape), (0,) * part.dim())
    if layout.offset is None or "P" in layout.placements:
        return whole_prints.NONE
    return whole_prints.of_part(part, layout.shape, layout.offset)
