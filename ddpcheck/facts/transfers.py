"""Ledger 6: state on its way, what was saved and what is held under the same name once it has been loaded.

A transfer says by itself what it can prove: what a program has made of a state by itself may be anything.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.facts import states
from ddpcheck.facts.mixing import is_trained_apart
from ddpcheck.facts.states import Piece, State, reads, same_turn, saved_at, saves, sources
from ddpcheck.judging.file_history import LOADS
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.values_by_key import by_key
from ddpcheck.judging.world import Rank, World

How = Literal["checkpoint", "module", "optimizer", "merged"]
"""Into the tensors that torch.distributed.checkpoint was given; into a module; into an optimizer; into another file."""
Proof = Literal["order", "part", "values", "rank", "name"]
"""The same elements in another order; one rank's part for the whole; other values; what another rank has saved under
this name; what was saved under another name."""


class Transfer(NamedTuple):
    """What was saved and what is held, by name."""

    how: How
    before: Mapping[str, Sequence[Piece]]
    """Of all ranks that have saved something under the name, or have saved what was read."""
    after: Mapping[str, Sequence[Piece]]
    save: State
    """The first of them."""
    load: State
    """The first of them."""
    proves: frozenset[Proof]
    are_apart: bool
    """Ranks step copies each for itself, and one's state may serve all."""


_Transfer = tuple[How, Mapping[str, Sequence[Piece]], Mapping[str, Sequence[Piece]], State, State, frozenset[Proof]]


@once_per_world
def of(world: World) -> list[Transfer]:
    """All of a run, where it shows both the save and the load."""
    apart = is_trained_apart(world)
    each = (*_checkpoints(world), *_modules(world), *_optimizers(world), *_merged(world))
    return [Transfer(*one, apart) for one in each]


def reason(world: World) -> str:
    """Why there is none, or none that could be compared."""
    if partly := states.seen_in_part(world):
        return partly
    if not saves(world) or not reads(world):
        return "ddpcheck did not see both a save and a load of state"
    return "ddpcheck saw no tensor that was loaded from a save of this run, whole or in declared shards"


def is_cut(pieces: Sequence[Piece]) -> bool:
    """Whether any of these is declared a part."""
    return any(one.sharded for one in pieces)


def _by_name(each: Sequence[State]) -> dict[str, list[Piece]]:
    return by_key((piece.entry.name, piece) for state in each for piece in state.pieces)


# --- into the tensors of a state dict


def _checkpoints(world: World) -> Iterator[_Transfer]:
    for group in same_turn(world):
        path = group[0].record.path
        if group[0].how == "dcp.load" and path:
            given = saved_at(world, path, min(state.record.at for state in group))
            if given:
                proves = frozenset[Proof](("order", "part", "values", "rank"))
                yield ("checkpoint", _by_name(given), _by_name(group), given[0], group[0], proves)


# --- into modules


def _modules(world: World) -> Iterator[_Transfer]:
    """What is cut is put together over all ranks.

    What is whole comes from what its own rank has loaded: stages of a model may have one name for different parameters.
    """
    for group in same_turn(world):
        if group[0].how == "module":
            for each, cut in ((group, True), *(([state], False) for state in group)):
                yield from _of_module(_sources(world, each), each, cut)


def _of_module(given: Sequence[State], each: Sequence[State], cut: bool) -> Iterator[_Transfer]:
    found: dict[frozenset[Proof], tuple[dict[str, list[Piece]], dict[str, list[Piece]]]] = {}
    for name, before, held in _named(given, each):
        if before and is_cut(held) is cut and (cut or is_cut(before) or len(before) == 1):
            proves: set[Proof] = set()
            if is_cut(before):
                proves |= {"order", "values"}  # of a whole one the program may have made anything
            if any(one.rank is not held[0].rank for one in before):
                proves.add("part")  # its own part may go into a module that was made for it
            saved, now = found.setdefault(frozenset(proves), ({}, {}))
            saved[name], now[name] = before, held
    for proof, (saved, now) in found.items():
        yield ("module", saved, now, given[0], each[0], proof)


def _sources(world: World, each: Sequence[State]) -> list[State]:
    """What was saved of the files that these ranks have loaded: of each rank that saved one, its last save of it."""
    found: dict[tuple[object, ...], State] = {}
    for read in each:
        for path, at in sources(world, read).items():
            for state in saved_at(world, path, at):
                found[state.rank, state.record.path] = state
    return list(found.values())


def _named(given: Sequence[State], each: Sequence[State]) -> Iterator[tuple[str, list[Piece], list[Piece]]]:
    """By the names of a module: all that was saved, and all that is held."""
    if not given or len({state.rank for state in given}) < len(given):
        return  # several saves of one rank: what was made of them is the program's own
    first = {piece.entry.name for piece in each[0].pieces if piece.entry.role == "parameter"}
    record = each[0].record
    if not first or not isinstance(record, ev.StateRead) or record.given < len(first):
        return
    prefixes = {states.prefix(state, first) for state in given} - {None}
    if len(prefixes) == 1:
        prefix = prefixes.pop()
        saved, held = _by_name(given), _by_name(each)
        for name in sorted(first):
            yield name, saved.get(f"{prefix}{name}", []), held.get(name, [])


# --- into optimizers


def _optimizers(world: World) -> Iterator[_Transfer]:
    """The moments that an optimizer holds after a load, and those that were saved, by parameter and key."""
    for read in reads(world):
        if read.how != "optimizer":
            continue
        given = [state for path, at in sources(world, read).items() for state in saved_at(world, path, at)]
        own = next((state for state in reversed(given) if state.rank is read.rank), None)
        if own is None:
            continue
        before, after = by_key(_moments(own)), by_key(_moments(read))
        if before and after:
            yield ("optimizer", before, after, own, read, frozenset(("name",)))


def _moments(state: State) -> Iterator[tuple[str, Piece]]:
    """By the parameter's path and the key; without those of names that two parameters have."""
    found: dict[str, list[Piece]] = defaultdict(list)
    for piece in state.pieces:
        if piece.entry.role == "moment" and piece.entry.of and piece.seen and "[]" not in piece.entry.kind:
            found[f"{piece.entry.of} {piece.entry.key}"].append(piece)
    return ((name, pieces[0]) for name, pieces in found.items() if len(pieces) == 1)


# --- into other files


def _merged(world: World) -> Iterator[_Transfer]:
    """What was made of the parts that a rank has loaded from several ranks' files, and is saved."""
    for state in saves(world):
        plain = by_key(
            (one.entry.name, one)
            for one in state.pieces
            if not one.sharded and not one.entry.live and "[" in one.entry.kind
        )
        given = _loaded_for(world, state) if plain else []
        if given and len({one.rank for one in given}) >= max(2, len(given)):
            parts = by_key((one.entry.name, one) for other in given for one in other.pieces if one.sharded)
            names = plain.keys() & parts.keys()
            before, after = ({name: its[name] for name in sorted(names)} for its in (parts, plain))
            yield ("merged", before, after, given[0], state, frozenset(("order", "part")))


def _loaded_for(world: World, state: State) -> list[State]:
    """What was saved of the files that this rank has loaded since it saved, or stepped, the last time."""
    rank, n = state.rank, state.record.n
    since = max((one.n for kind in (ev.StateSaved, ev.Step) for one in rank.of(kind) if one.n < n), default=0)
    found: dict[tuple[Rank, str], State] = {}
    for file in rank.of(ev.File):
        if file.op == "read" and file.how in LOADS and since < file.n < n:
            found.update({(one.rank, one.record.path): one for one in saved_at(world, file.path, file.at)})
    return list(found.values())
