"""Which places of a batch, along its second dimension, have gone into a loss: its graph keeps what it was made from.

Nothing is unpacked that a hook has packed: that may run a part of the forward again. What lies on devices is not looked
at, since that would be waited for.
"""

from __future__ import annotations

import re
import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch
import xxhash

from ddpcheck.evidence import Part, Sequences
from ddpcheck.probes.data.loader_pass import Tally
from ddpcheck.probes.digests import readable_memory
from ddpcheck.probes.optimizers import gradient_events
from ddpcheck.probes.recording import recorder, signal_exceptions, user_lines
from ddpcheck.probes.recording.pace import is_due
from ddpcheck.probes.recording.shapes import tensors

MOST_NODES, MOST_PARTS = 4096, 64
LARGEST = 1 << 18
"""Elements of a tensor that is looked at."""
SHORTEST = 4
"""Places; fewer are the channels of a picture."""

_KEPT = re.compile(r"_raw_saved_(?!tensors|result|weight|total_weight|bias|rng)")
"""What an operation has made itself, and its parameters, are nothing of a batch; a list has no hook to ask for."""
_ATTENTION = "_raw_saved_result"
"""What a softmax keeps: zeros where a place does not see another one."""
MOST_SEEN = 1 << 15
"""Elements of that; more of them are compared by several threads, which a fork has not got."""
_GATHERED = "AllGather"
"""In the names of what torch's own functions put into a graph for a gather."""

_names: weakref.WeakKeyDictionary[type, list[str]] = weakref.WeakKeyDictionary()
"""By the kind of operation: the attributes with what it keeps. What is compiled makes a kind of its own each time."""
_backwards = 0


class _Whole(NamedTuple):
    """A tensor of the batch."""

    tensor: torch.Tensor
    columns: list[int]
    """A number for what is at each place, in all samples."""
    at: dict[int, int]
    """The places by these numbers, where no two are the same."""


def watch() -> None:
    """See what backwards need again from now on."""
    gradient_events.BACKWARD.also(_begins)


def _begins(losses: Any, _: Any) -> None:
    global _backwards
    writer = recorder.current()
    number = _backwards
    _backwards += 1
    if writer is not None and is_due(number) and Tally.latest is not None and Tally.latest.handed:
        _look(writer, number, losses, user_lines.here())


def _look(writer: recorder.Recorder, number: int, losses: Any, site: int) -> None:
    roots = [losses] if isinstance(losses, torch.Tensor) else list(tensors(losses))
    if any(one.is_cuda for one in roots):
        writer.write(Sequences(**writer.next(), number=number, site=site, unseen=True))
        return
    handed = Tally.latest.handed if Tally.latest is not None else []
    alive = [one for ref in handed if (one := ref()) is not None]
    with recorder.silence(), torch.no_grad():
        batch = [_Whole(one, *_numbered(one)) for one in alive if _is_readable(one) and one.shape[1] >= SHORTEST]
        if not batch or len(alive) < len(handed):
            return
        parts, joined = _parts_in(roots, batch)
    if parts:
        digests = b"".join(xxhash.xxh3_64_digest(repr(whole.columns).encode()) for whole in batch)
        record = Sequences(
            **writer.next(),
            number=number,
            site=site,
            digests=digests,
            lengths=[len(whole.columns) for whole in batch],
            parts=parts,
            breaks=[_breaks(whole.columns) for whole in batch],
            in_rank_order=joined.in_rank_order,
            any_order=joined.any_order,
        )
        writer.write(record)


class _Joined:
    """What is known of how the parts of a sequence were joined."""

    def __init__(self) -> None:
        self.in_rank_order = False
        self._fronts: set[bool] = set()

    @property
    def any_order(self) -> bool:
        """Attention was seen, and none that takes the places for those of the sequence."""
        return self._fronts == {False}

    def note(self, node: Any) -> None:
        """One more operation of the graph."""
        self.in_rank_order = self.in_rank_order or _joins_in_rank_order(node)
        front = _sees_fronts(node)
        if front is not None:
            self._fronts.add(front)


def _parts_in(losses: Iterable[torch.Tensor], batch: Sequence[_Whole]) -> tuple[list[Part], _Joined]:
    waiting = [loss.grad_fn for loss in losses if loss.grad_fn is not None]
    seen = set(waiting)
    parts: list[Part] = []
    joined = _Joined()
    for node in waiting:
        joined.note(node)
        for name in _names_of(node):
            kept = _kept(node, name) if len(parts) < MOST_PARTS else None
            part = _part(kept, re.sub(r"Backward\d*$", "", node.name()), batch) if kept is not None else None
            parts += [part] if part is not None and part not in parts else []
        for further, _ in node.next_functions:
            if further is not None and further not in seen and len(waiting) < MOST_NODES:
                seen.add(further)
                waiting.append(further)
    return parts, joined


def _kept(node: Any, name: str) -> Any:
    """A tensor that an operation keeps as it was; None of a list of them, and of what this torch says nothing of."""
    try:
        kept = getattr(node, name)
        return kept.data if getattr(kept, "unpack_hook", kept) is None else None
    except RuntimeError as error:  # let go of with another backward(), and none of what this one needs
        signal_exceptions.let_through(error)
        return None


def _names_of(node: Any) -> list[str]:
    kind = type(node)
    if kind not in _names:
        _names[kind] = [name for name in dir(node) if _KEPT.match(name)]
    return _names[kind]


def _joins_in_rank_order(node: Any) -> bool:
    """Whether it joins all that one gather has given, along the second dimension, as it came."""
    if not node.name().startswith("CatBackward") or getattr(node, "_saved_dim", None) != 1:
        return False
    sources = {one for one, _ in node.next_functions}
    places = [place for _, place in node.next_functions]
    source = next(iter(sources))
    return len(sources) == 1 and source is not None and _GATHERED in source.name() and places == [*range(len(places))]


def _sees_fronts(node: Any) -> bool | None:
    """Of attention to more places than a rank has: whether each of its own sees those up to some one.

    None where it is no such attention. Who sees all places, or some with others in between, needs no order, or another.
    """
    kept = _kept(node, _ATTENTION) if node.name().startswith("SoftmaxBackward") else None
    if not isinstance(kept, torch.Tensor) or kept.dim() < 2 or type(kept) is not torch.Tensor or not kept.is_cpu:
        return None
    own, every = kept.shape[-2:]
    if own < 2 or every <= own or every % own or readable_memory.strided(kept) is None:
        return None
    one = kept[(0,) * (kept.dim() - 2)][:: max(1, own // 8)]
    if one.numel() > MOST_SEEN:
        return None
    seen = one != 0
    return not bool(seen.all()) and not bool((seen[:, 1:] & ~seen[:, :-1]).any())


# --- places


def _part(kept: Any, by: str, batch: Sequence[_Whole]) -> Part | None:
    """Where in the batch the tensor is from; None where it is from nowhere."""
    if not isinstance(kept, torch.Tensor) or not _is_readable(kept, 1):
        return None
    best: Part | None = None
    for number, whole in enumerate(batch):
        lies = _like(kept, whole.tensor)
        if lies is None or lies.shape[1] < 2:
            continue
        places = _by_memory(lies, whole.tensor) or _by_content(_columns(lies), whole)
        known = sum(place >= 0 for place in places)
        if known >= 2 and known * 2 >= len(places) and (best is None or known > sum(n for _, _, n in best.runs)):
            best = Part(tensor=number, by=by, size=len(places), runs=_runs(places))
    return best


def _like(kept: torch.Tensor, whole: torch.Tensor) -> torch.Tensor | None:
    """The same with samples first and then places, if it can be a part of that."""
    samples, further = whole.shape[0], whole.shape[2:]
    if further or kept.shape[0] != samples:
        each = max(1, samples * further.numel())
        fits = kept.shape[0] % samples == 0 and kept.numel() % each == 0 and tuple(kept.shape[1:]) == tuple(further)
        if kept.dim() == whole.dim() and kept.shape[0] == samples and tuple(kept.shape[2:]) == tuple(further):
            return kept
        return kept.reshape(samples, -1, *further) if fits else None
    if kept.dim() == 2:
        return kept
    lengths = [size for size in kept.shape[1:] if size != 1]
    return kept.reshape(samples, -1) if len(lengths) == 1 else None


def _by_memory(lies: torch.Tensor, whole: torch.Tensor) -> list[int]:
    """The places, where it is a view of the batch; none where it is not."""
    same = lies.dtype == whole.dtype and lies.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
    if not same or lies.stride() != whole.stride() or not whole.stride(1):
        return []
    first, rest = divmod(int(lies.storage_offset()) - int(whole.storage_offset()), whole.stride(1))
    inside = not rest and first >= 0 and first + lies.shape[1] <= whole.shape[1]
    return [*range(first, first + lies.shape[1])] if inside else []


def _by_content(columns: Sequence[int], whole: _Whole) -> list[int]:
    """The places, and -1 for what is at none; one that could be at several is where its neighbours lead to."""
    places = [whole.at.get(one, -1) for one in columns]
    for order, step in ((range(1, len(places)), 1), (range(len(places) - 2, -1, -1), -1)):
        for own in order:
            place = places[own - step] + step
            if places[own] < 0 <= places[own - step] and 0 <= place < len(whole.columns):
                places[own] = place if whole.columns[place] == columns[own] else -1
    return places


def _runs(places: Sequence[int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for own, place in enumerate(places):
        if place < 0:
            continue
        if runs and own == runs[-1][0] + runs[-1][2] and place == runs[-1][1] + runs[-1][2]:
            runs[-1][2] += 1
        else:
            runs.append([own, place, 1])
    return runs


def _breaks(columns: Sequence[int]) -> list[int]:
    """The places, after the first, where another text may begin: with what that begins with, or after its end."""
    found = (p for p in range(1, len(columns)) if columns[p] == columns[0] or columns[p - 1] == columns[-1])
    return [*islice(found, MOST_PARTS)]


# --- contents


def _is_readable(one: torch.Tensor, dimensions: int = 2) -> bool:
    plain = type(one) is torch.Tensor and one.device.type == "cpu" and one.layout is torch.strided
    small = one.dim() >= dimensions and 0 < one.numel() <= LARGEST
    if not plain or not small or one.is_complex() or one.is_quantized or one.requires_grad:
        return False
    # A frozen weight that FSDP has let go of until its backward says that it lies somewhere, and has no memory.
    return readable_memory.strided(one) is not None


def _numbered(one: torch.Tensor) -> tuple[list[int], dict[int, int]]:
    columns = _columns(one)
    often = Counter(columns)
    return columns, {number: place for place, number in enumerate(columns) if often[number] == 1}


def _columns(one: torch.Tensor) -> list[int]:
    """A number for what is at each place, whatever kind of number it is written in."""
    bits = (one.reshape(one.shape[0], one.shape[1], -1).double() + 0.0).view(torch.int64)
    bits = bits ^ (bits >> 32)
    # Whole numbers are taken modulo 2 ** 64: those of a row are those of one sample's elements.
    rows = torch.arange(1, bits.shape[0] * bits.shape[2] + 1, device="cpu") * 0x9E3779B97F4A7C1 + 0x632BE59BD9B4E01
    found: list[int] = (bits * rows.reshape(bits.shape[0], 1, bits.shape[2])).sum((0, 2)).tolist()
    return found
