"""Ledger 6: models that no optimizer steps and that are written to from trained ones, as they are at each use.

Then a tensor of such a model is ``before + share * (trained - before)``: nothing of the trained model where it was left
as it was, all of it in a copy, a part in an average. The share is worked out from sketches.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple

import numpy as np

from ddpcheck import evidence as ev
from ddpcheck.facts import sketches
from ddpcheck.facts.mixing import DIFFER, ROUNDING
from ddpcheck.facts.sketches import Numbers
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite

ERRORS = 3.0
"""By how many times its rounding a share may be off."""


class Value(NamedTuple):
    """What a whole tensor holds."""

    sketch: Numbers
    digests: tuple[bytes, ...]
    """Of its parts, by rank."""
    dtype: str
    shape: tuple[int, ...]
    is_buffer: bool


class Share(NamedTuple):
    """By how much of the way to a trained tensor one of a follower has come since the use before."""

    share: float
    error: float

    def is_alike(self, other: Share) -> bool:
        """Whether they may be the same number."""
        return abs(self.share - other.share) <= self.error + other.error

    @property
    def is_none(self) -> bool:
        """Whether it may have come no way."""
        return abs(self.share) <= self.error


class Source(NamedTuple):
    """A trained tensor that one of a follower may have taken over something of."""

    model: int
    name: str
    is_earlier: bool = False
    """As it was at the use before."""


class Use:
    """A follower's use that comes after another one that was looked at."""

    def __init__(self, rank: Rank, before: _Look, now: _Look) -> None:
        self.steps, self.line = now.record.steps, rank.where(now.record.site)
        self.used = frozenset(name for name, one in zip(now.values, now.record.used, strict=False) if one)
        """The tensors whose modules were called."""
        self.written = frozenset(
            name
            for name, value in now.values.items()
            if not value.is_buffer and name in before.values and before.values[name].digests != value.digests
        )
        """The parameters that were written to since the use before."""
        self._before, self._now = before, now

    def share(self, name: str, of: Source) -> Share | None:
        """What a tensor has taken over of a trained one; None where it would not show, or is no such sum."""
        ways = self._ways(name, of)
        if ways is None:
            return None
        way, gone, rounding = ways
        length = float(np.linalg.norm(way))
        share = float(way @ gone) / length**2
        if float(np.linalg.norm(gone - share * way)) > ERRORS * rounding:
            return None
        return Share(share, ERRORS * rounding / length)

    def shows(self, name: str, of: Source) -> bool:
        """Whether something else than what a share explains would show: a buffer may change by itself."""
        is_buffer = name in self._now.values and self._now.values[name].is_buffer
        return not is_buffer and self._ways(name, of) is not None

    def drift(self, names: Mapping[str, str], of: int) -> Share | None:
        """How far tensors have come together, of several steps of which those between are not known."""
        each = [ways for name, other in names.items() if (ways := self._ways(name, Source(of, other))) is not None]
        if not each:
            return None
        way, gone = (np.concatenate([one[turn] / np.linalg.norm(one[0]) for one in each]) for turn in (0, 1))
        share = float(way @ gone / (way @ way))
        rest = float(np.linalg.norm(gone - share * way) / np.linalg.norm(way))
        return Share(share, ERRORS * rest / np.sqrt(len(way)))

    def _ways(self, name: str, of: Source) -> tuple[Numbers, Numbers, float] | None:
        """From what it was to the trained one, and to what it is now; and how large rounding is."""
        old, new = self._before.values.get(name), self._now.values.get(name)
        trained = self._trained(of.model, of.is_earlier).get(of.name)
        if old is None or new is None or trained is None or not old.shape == new.shape == trained.shape:
            return None
        each = (old, new, trained)
        rounding = max(ROUNDING.get(one.dtype, 1.0) for one in each)
        rounding *= max(float(np.linalg.norm(one.sketch)) for one in each)
        way = trained.sketch - old.sketch
        if not float(np.linalg.norm(way)) > DIFFER * rounding:
            return None
        gone = new.sketch - old.sketch if old.digests != new.digests else np.zeros_like(way)
        return way, gone, rounding

    def sources(self, name: str, model: int) -> Iterator[Source]:
        """A trained model's tensors of a tensor's shape."""
        shape = self._now.values[name].shape
        for is_earlier in (False, True):
            for other, value in self._trained(model, is_earlier).items():
                if value.shape == shape:
                    yield Source(model, other, is_earlier)

    def trained_digests(self, model: int, name: str) -> tuple[bytes, ...] | None:
        """Of a trained tensor, when the follower is used."""
        value = self._trained(model, False).get(name)
        return value.digests if value is not None else None

    def _trained(self, model: int, is_earlier: bool) -> Mapping[str, Value]:
        look = self._before if is_earlier else self._now
        return look.trained[model][1] if model in look.trained else {}


class Follower(NamedTuple):
    """A model that no optimizer steps, beside a trained one with tensors of the same names."""

    ranks: tuple[int, ...]
    model: int
    kind: str
    trained: int
    """The number of the model that it is compared with."""
    trained_kind: str
    names: Mapping[str, str]
    """By the name of a tensor, that of the trained one: of those that training changes."""
    unpaired: frozenset[str]
    """Its parameters that have no counterpart by name, though the trained model has others of their shapes."""
    uses: Sequence[Use]
    often: int
    """How often it was used, up to the last use that was looked at."""
    begun_as: frozenset[int]
    """The trained models that it was a copy of when both were used for the first time."""
    written_at: CallSite | None
    """The line that loads state into it between its uses."""


class _Look(NamedTuple):
    record: ev.ModelUsed
    values: dict[str, Value]
    trained: dict[int, tuple[ev.ModelUsed, dict[str, Value]]]


@once_per_world
@np.errstate(all="ignore")
def of(world: World) -> list[Follower]:
    """All that were used twice, on each rank; those that several ranks have alike are one."""
    found: dict[tuple[object, ...], Follower] = {}
    values = _values(world)
    for rank in world:
        for model, looks in _looks(rank, values).items():
            for trained in dict.fromkeys(number for look in looks for number in look.trained):
                one = _follower(rank, model, trained, looks)
                if one is None:
                    continue
                held = tuple(one.uses[-1].trained_digests(trained, other) for other in one.names.values())
                key = (model, trained, one.kind, held, tuple((use.steps, use.written) for use in one.uses))
                known = found.get(key)
                found[key] = one if known is None else known._replace(ranks=(*known.ranks, rank.rank))
    return list(found.values())


def differ_as_trained(world: World, models: Mapping[int, int]) -> bool:
    """Whether the trained models differ between ranks that these follow; by rank, the number of each."""
    held: dict[tuple[int, str], set[tuple[bytes, ...]]] = defaultdict(set)
    for one in of(world):
        if any(models.get(rank) == one.model for rank in one.ranks):
            for use in one.uses:
                for name, other in one.names.items():
                    if (digests := use.trained_digests(one.trained, other)) is not None:
                        held[use.steps, name].add(digests)
    return any(len(each) > 1 for each in held.values())


# --- what models held


def _values(world: World) -> dict[tuple[Rank, int], dict[str, Value]]:
    """By rank and record: what whole tensors held, put together from the parts of all ranks that looked then."""
    forms: dict[tuple[Rank, int], ev.ModelUsed] = {}
    parts: dict[tuple[object, ...], list[tuple[ev.Layout | None, Numbers, bytes]]] = defaultdict(list)
    keys: dict[tuple[Rank, int], list[tuple[int, tuple[object, ...]]]] = {}
    for rank, record in world.of(ev.ModelUsed):
        if record.names:
            forms[rank, record.model] = record
        form = forms.get((rank, record.model))
        if form is None or len(form.names) != len(record.digests) // ev.WIDTH:
            continue
        keys[rank, record.n] = []
        forms[rank, -record.n - 1] = form
        for place, row in enumerate(sketches.unpacked(record.sketches)):
            layout = record.layouts.get(place)
            is_part = layout is not None and layout.sharded
            key = (record.look, record.model, record.steps, form.names[place], None if is_part else rank)
            digest = record.digests[place * ev.WIDTH : (place + 1) * ev.WIDTH]
            parts[key].append((layout if is_part else None, row, digest))
            keys[rank, record.n].append((place, key))
    wholes = {key: _whole(each) for key, each in parts.items()}
    found: dict[tuple[Rank, int], dict[str, Value]] = {}
    for (rank, n), its in keys.items():
        form = forms[rank, -n - 1]
        found[rank, n] = {
            form.names[place]: Value(
                *whole, form.dtypes[place], tuple(form.shapes[place]), place >= len(form.names) - form.buffers
            )
            for place, key in its
            if (whole := wholes[key]) is not None
        }
    return found


def _whole(each: Sequence[tuple[ev.Layout | None, Numbers, bytes]]) -> tuple[Numbers, tuple[bytes, ...]] | None:
    boxes: dict[object, tuple[int, Numbers]] = {}
    shape: tuple[int, ...] = ()
    for layout, row, digest in each:
        if digest == ev.UNSEEN or not np.isfinite(row).all():
            return None
        if layout is None:
            return row, (digest,)
        boxes[layout.offset, layout.local], shape = (prod(layout.local), row), layout.shape
    if sum(size for size, _ in boxes.values()) != prod(shape):
        return None
    return np.sum([row for _, row in boxes.values()], axis=0), tuple(digest for *_, digest in each)


def _looks(rank: Rank, values: Mapping[tuple[Rank, int], dict[str, Value]]) -> dict[int, list[_Look]]:
    """By follower, the looks at it with what was trained beside it, in order."""
    by_look: dict[int, list[ev.ModelUsed]] = defaultdict(list)
    for record in rank.of(ev.ModelUsed):
        by_look[record.look].append(record)
    found: dict[int, list[_Look]] = defaultdict(list)
    for records in by_look.values():
        own = [one for one in records if not one.trained]
        if len(own) == 1:
            theirs = {one.model: (one, values.get((rank, one.n), {})) for one in records if one.trained}
            found[own[0].model].append(_Look(own[0], values.get((rank, own[0].n), {}), theirs))
    return found


# --- one follower beside one trained model


def _follower(rank: Rank, model: int, trained: int, looks: Sequence[_Look]) -> Follower | None:
    theirs = [look.trained[trained] for look in looks if trained in look.trained]
    uses = [Use(rank, before, now) for before, now in pairwise(looks) if trained in now.trained]
    pairs = _named_alike(looks[0].values, theirs[0][1])
    moved = {
        name: other
        for name, other in pairs.items()
        if len({held[other].digests for _, held in theirs if other in held}) > 1  # of others nothing would show
    }
    if not moved or not uses:
        return None
    first, last = looks[0].record, looks[-1].record
    sites = [s.site for s in rank.of(ev.StateLoaded) if s.model == model and first.n < s.n < last.n]
    often = [site for site, times in Counter(sites).most_common(1) if times > 1]
    written = rank.where(often[0]) if often else None
    begun = frozenset(number for number in looks[-1].trained if _is_copy(rank, looks[0].values, number))
    unpaired = _unpaired(looks[0].values, theirs[0][1], pairs)
    kinds = last.kind, theirs[0][0].kind
    return Follower((rank.rank,), model, kinds[0], trained, kinds[1], moved, unpaired, uses, last.uses, begun, written)


def _unpaired(own: Mapping[str, Value], trained: Mapping[str, Value], pairs: Mapping[str, str]) -> frozenset[str]:
    spare = {value.shape for name, value in trained.items() if name not in pairs.values()}
    rest = {name: value for name, value in own.items() if name not in pairs and not value.is_buffer}
    return frozenset(name for name, value in rest.items() if value.shape in spare)


def _is_copy(rank: Rank, own: Mapping[str, Value], trained: int) -> bool:
    """Whether a model began with what a follower was at its first use."""
    model = next((one for one in rank.of(ev.Model) if one.model == trained), None)
    held = {one.name: one.digest for one in model.held if not one.filled} if model is not None else {}
    common = [name for name in own if name in held]
    return bool(common) and all(own[name].digests == (held[name],) for name in common)


def _named_alike(own: Mapping[str, Value], trained: Mapping[str, Value]) -> dict[str, str]:
    """By name: that of a trained tensor of the same shape, where most have one behind one prefix."""
    ends: Counter[tuple[str, str]] = Counter()
    for name, value in own.items():
        for other, candidate in trained.items():
            if value.shape == candidate.shape and (other == name or other.endswith("." + name)):
                ends[other[: -len(name)], ""] += 1
            elif value.shape == candidate.shape and name.endswith("." + other):
                ends["", name[: -len(other)]] += 1
    if not ends:
        return {}
    (more, less), _ = ends.most_common(1)[0]
    pairs = {name: more + name.removeprefix(less) for name in own if name.startswith(less)}
    found = {name: other for name, other in pairs.items() if other in trained}
    return {name: other for name, other in found.items() if own[name].shape == trained[other].shape}
