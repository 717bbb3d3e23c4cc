"""Ledger 6: state that was saved, read and held, entry by entry, and what the parts of all ranks make together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np

from ddpcheck import evidence as ev
from ddpcheck.evidence.sketches import NUMBERS
from ddpcheck.facts import sketches
from ddpcheck.facts.sketches import Numbers
from ddpcheck.judging.file_history import LOADS
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.tensor_kinds import dtype_of, shape_of
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite

ROUNDING = 1e-9
"""How far apart sums of the same elements may be that are added up in another order, over their size."""


class Piece(NamedTuple):
    """One entry of one rank's state."""

    rank: Rank
    entry: ev.Entry
    digest: bytes
    sums: Numbers
    """Its sketch, the sum of all elements, and that of their squares; not a number where it is not known."""

    @property
    def sketch(self) -> Numbers:
        return self.sums[:NUMBERS]

    @property
    def seen(self) -> bool:
        return self.digest not in (b"", ev.UNSEEN)

    @property
    def sharded(self) -> bool:
        return self.entry.layout is not None and self.entry.layout.sharded

    @property
    def dtype(self) -> str:
        return dtype_of(self.entry.kind)

    @property
    def size(self) -> tuple[int, ...]:
        """Of what this rank has."""
        return shape_of(self.entry.kind)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole tensor."""
        if self.entry.layout is not None and self.sharded:
            return self.entry.layout.shape
        return shape_of(self.entry.kind)

    @property
    def box(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Where it lies in the whole, and its shape; None where it is not known."""
        layout = self.entry.layout
        if layout is None or not layout.sharded:
            shape = shape_of(self.entry.kind)
            return (0,) * len(shape), shape
        return (layout.offset, layout.local) if layout.offset is not None else None


class State:
    """What one rank has given to be saved, or held after a load."""

    def __init__(self, rank: Rank, record: ev.StateSaved | ev.StateRead, form: ev.StateForm) -> None:
        self.rank, self.record, self.form = rank, record, form

    @cached_property
    def pieces(self) -> list[Piece]:
        width, sums = ev.WIDTH, np.frombuffer(self.record.sums, dtype="<f8").reshape(-1, ev.SUMS)
        each = enumerate(self.form.entries)
        return [Piece(self.rank, one, self.record.digests[p * width : (p + 1) * width], sums[p]) for p, one in each]

    @property
    def how(self) -> str:
        """The function that has saved or loaded it, or what it went into."""
        return self.record.how

    @property
    def where(self) -> CallSite | None:
        return self.rank.where(self.record.site)

    @property
    def all_seen(self) -> bool:
        """Whether every entry was looked at: one that was not may be there or not."""
        return not self.form.left_out


class Sums(NamedTuple):
    """What the parts of a tensor make together."""

    sums: Numbers

    @property
    def sketch(self) -> Numbers:
        """It goes by the places of elements."""
        return self.sums[:NUMBERS]

    def has_elements_of(self, other: Sums) -> bool:
        """Whether both are sums of the same elements, wherever these lie."""
        size = max(self.sums[-1], other.sums[-1])
        apart = np.abs(self.sums[NUMBERS:] - other.sums[NUMBERS:])
        return bool(apart[1] <= ROUNDING * size and apart[0] <= ROUNDING * np.sqrt(size))

    def is_same(self, other: Sums) -> bool:
        """Whether the same elements lie at the same places."""
        return self.has_elements_of(other) and sketches.are_alike(self.sketch, other.sketch)


@once_per_world
def every_save(world: World) -> list[State]:
    """All that was given to be saved, in the order of time, also what was looked at in part."""
    return _states(world, ev.StateSaved)


def saves(world: World) -> list[State]:
    """What was given to be saved, of which every entry was looked at, in the order of time."""
    return [state for state in every_save(world) if state.all_seen]


@once_per_world
def reads(world: World) -> list[State]:
    """What was looked at after a load, every entry of it, in the order of time; not what files have given."""
    return [state for state in _states(world, ev.StateRead) if state.all_seen and state.how != "torch.load"]


@once_per_world
def given_by_files(world: World) -> list[State]:
    """What torch.load has given, of which every entry was looked at, in the order of time."""
    return [state for state in _states(world, ev.StateRead) if state.all_seen and state.how == "torch.load"]


def seen_in_part(world: World) -> str:
    """That states were too large to be looked at as a whole, as a reason; empty where none was."""
    larger = [one for _, one in world.of(ev.StateForm) if one.left_out]
    if not larger:
        return ""
    return f"a state dict with more than {len(larger[0].entries):,} entries was looked at in part"


def _states(world: World, kind: type[ev.StateSaved] | type[ev.StateRead]) -> list[State]:
    found = []
    for rank in world:
        forms = {form.form: form for form in rank.of(ev.StateForm)}
        found += [State(rank, one, forms[one.form]) for one in rank.of(kind) if one.form in forms]
    return sorted(found, key=lambda state: state.record.at)


@once_per_world
def together(world: World) -> list[list[State]]:
    """Saves that belong together: of one checkpoint of all its ranks, or of the ranks' own files from one line."""
    groups: dict[tuple[object, ...], list[State]] = defaultdict(list)
    turns: dict[tuple[Rank, str], int] = defaultdict(int)
    for state in every_save(world):
        record = state.record
        assert isinstance(record, ev.StateSaved)
        if record.how == "torch.save":
            groups["torch.save", str(state.where), record.number].append(state)
        else:
            turn = turns[state.rank, record.path]
            turns[state.rank, record.path] += 1
            groups[record.path, record.ranks, turn].append(state)
    return list(groups.values())


def whole(pieces: Iterable[Piece]) -> Sums | None:
    """The sums over a whole tensor; None where not all of its elements were seen, or copies differ."""
    boxes: dict[tuple[tuple[int, ...], tuple[int, ...]], Piece] = {}
    shape: tuple[int, ...] | None = None
    for piece in pieces:
        box = piece.box
        if box is None or not piece.seen or shape not in (None, piece.shape):
            return None
        if boxes.setdefault(box, piece).digest != piece.digest:
            return None
        shape = piece.shape
    if shape is None or sum(prod(size) for _, size in boxes) != prod(shape):
        return None
    parts = [one.sums for (_, size), one in boxes.items() if prod(size)]
    added = np.sum(parts, axis=0) if parts else np.zeros(ev.SUMS)
    return Sums(added) if np.isfinite(added).all() else None


def covered(pieces: Iterable[Piece]) -> tuple[int, int] | None:
    """The elements of these parts, each counted once, and those of the whole tensor; None where it is not known."""
    boxes: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
    shape: tuple[int, ...] | None = None
    for piece in pieces:
        box = piece.box
        if box is None or shape not in (None, piece.shape):
            return None
        boxes.add(box)
        shape = piece.shape
    return (sum(prod(size) for _, size in boxes), prod(shape)) if shape is not None else None


# --- from which file


def sources(world: World, read: State) -> dict[str, float]:
    """The checkpoints that this rank has loaded since its last step: their paths, and when.

    Where it has loaded none, what it holds was sent to it: then they are those that any rank has loaded.
    """
    record = read.record
    assert isinstance(record, ev.StateRead)
    if record.path:
        return {record.path: record.at}
    n = record.when or record.n
    own = read.rank
    before = [one for one in own.of(ev.Step) if one.n < n]
    since = before[-1].at if before else 0.0
    until = _time(own, n, record.at)
    return _loaded(world, (own,), since, until) or _loaded(world, tuple(world), since, until)


def _loaded(world: World, ranks: tuple[Rank, ...], since: float, until: float) -> dict[str, float]:
    """The checkpoints that these ranks have loaded, in files and by torch.distributed.checkpoint."""
    found = {}
    for rank in ranks:
        for file in rank.of(ev.File):
            if file.op == "read" and file.how in LOADS and since <= file.at <= until:
                found[file.path] = file.at
    for read in reads(world):
        record = read.record
        assert isinstance(record, ev.StateRead)
        if read.rank in ranks and record.how == "dcp.load" and since <= record.at <= until:
            found[record.path] = record.at
    return found


def _time(rank: Rank, n: int, at: float) -> float:
    """When a record was made: of one without a time of its own, when the next one was."""
    return min((one.at for one in rank.of(ev.StateLoaded) if one.n >= n), default=at) if n else at


def saved_at(world: World, path: str, before: float) -> list[State]:
    """The last saves to a path before a moment, one of each rank."""
    last: dict[Rank, State] = {}
    for state in saves(world):
        if state.record.at < before and path in known_as(world, state.record.path, state.record.at, before):
            last[state.rank] = state
    return [] if any(_is_replaced(world, state, path, before) for state in last.values()) else list(last.values())


def _is_replaced(world: World, state: State, path: str, before: float) -> bool:
    """Whether something else stands there since: what it is, was not looked at."""
    since = state.record.at
    again = any(
        since < one.at < before and path in known_as(world, one.path, one.at, before)
        for one in state.rank.of(ev.SaveBegan)
    )
    return again or any(
        since < at < before and old not in known_as(world, state.record.path, since, at)
        for at, old in _put_there(world).get(path, ())
    )


def known_as(world: World, path: str, since: float, until: float) -> set[str]:
    """The names that a file or folder had: it may be renamed, or a folder that it is in."""
    names = {path}
    for at, old, new in _renames(world):
        if since <= at <= until:
            names |= {new + one[len(old) :] for one in list(names) if one == old or one.startswith(old + "/")}
    return names


@once_per_world
def _put_there(world: World) -> dict[str, list[tuple[float, str]]]:
    """By path, when something else than a save has put content there, and what was renamed for that, if it was."""
    found: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for _, one in world.of(ev.File):
        if one.op == "rename":
            found[one.target].append((one.at, one.path))
        elif one.op == "write" and one.how == "open":
            found[one.path].append((one.at, ""))
    return found


@once_per_world
def _renames(world: World) -> list[tuple[float, str, str]]:
    return sorted((one.at, one.path, one.target) for _, one in world.of(ev.File) if one.op == "rename")


def same_turn(world: World) -> Iterator[list[State]]:
    """Loads that several ranks made of one thing: the same in the order of their kind on each."""
    groups: dict[tuple[object, ...], list[State]] = defaultdict(list)
    turns: dict[tuple[object, ...], int] = defaultdict(int)
    for state in reads(world):
        record = state.record
        assert isinstance(record, ev.StateRead)
        key = (record.how, record.kind, record.path)
        turn = turns[state.rank, key]
        turns[state.rank, key] += 1
        groups[key, turn].append(state)
    yield from groups.values()


def prefix(state: State, names: Collection[str]) -> str | None:
    """What stands before a module's names in a state dict; None where there is nothing, or more than one."""
    there = {piece.entry.name for piece in state.pieces}
    one = min(names)
    found = [name[: -len(one)] for name in there if name == one or name.endswith("." + one)]
    fitting = [prefix for prefix in found if all(prefix + name in there for name in names)]
    return fitting[0] if len(fitting) == 1 else None
