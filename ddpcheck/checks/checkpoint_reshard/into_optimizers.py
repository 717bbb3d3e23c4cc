"""Moments that were loaded into optimizers: those of which parameter, and of which rank."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.checks.checkpoint_reshard.compared import Saved, saved_as
from ddpcheck.judging.saved_state import Piece, State, reads, saved_at, sources
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing

Key = tuple[str, str]
"""A parameter's path, and which of its moments."""


class _Strange(NamedTuple):
    """A parameter that has moments of another one, or of another rank."""

    name: str
    of: str
    rank: int


def judge(world: World) -> tuple[set[Saved], list[Finding]]:
    """Compare the moments that an optimizer holds after a load with those that were saved, by parameter."""
    names = set[Saved]()
    mixed: dict[str, list[tuple[State, State, list[_Strange]]]] = defaultdict(list)
    for read in reads(world):
        record = read.record
        if not isinstance(record, ev.StateRead) or record.how != "optimizer":
            continue
        given = [state for path, at in sources(world, read).items() for state in saved_at(world, path, at)]
        own = next((state for state in reversed(given) if state.rank is read.rank), None)
        if own is None:
            continue
        looked, strange = _compared(world, read, own, given)
        names |= looked
        if strange:
            mixed[str(read.where)].append((read, own, strange))
    return names, [_finding(each) for each in mixed.values()]


def _moments(state: State) -> dict[Key, Piece]:
    """By parameter and key; without those of names that two parameters have."""
    found: dict[Key, list[Piece]] = defaultdict(list)
    for piece in state.pieces:
        if piece.entry.role == "moment" and piece.entry.of and piece.seen and "[]" not in piece.entry.kind:
            found[piece.entry.of, piece.entry.key].append(piece)
    return {key: pieces[0] for key, pieces in found.items() if len(pieces) == 1}


def _compared(world: World, read: State, own: State, given: list[State]) -> tuple[set[Saved], list[_Strange]]:
    saved, held = _moments(own), _moments(read)
    others = {state.rank.rank: _moments(state) for state in given if state.rank is not own.rank}
    looked, strange = set[Saved](), []
    for key, piece in held.items():
        before = saved.get(key)
        if before is None or before.entry.kind != piece.entry.kind or before.sharded != piece.sharded:
            continue
        looked.add(saved_as([before]))
        if before.digest == piece.digest:
            continue
        name, which = key
        if sum(_same(one, piece) for one in held.values()) > 1:
            continue  # such as moments that are begun anew: whose these are does not show
        twin = next((o for (o, k), one in saved.items() if k == which and o != name and _same(one, piece)), None)
        if twin is not None:
            strange.append(_Strange(name, twin, own.rank.rank))
            continue
        rank = next((r for r, its in others.items() if key in its and _same(its[key], piece)), None)
        if rank is not None and _weights_are_own(world, read, own, given, name, rank):
            strange.append(_Strange(name, name, rank))
    return looked, strange


def _same(one: Piece, other: Piece) -> bool:
    return one.digest == other.digest and one.entry.kind == other.entry.kind


def _weights_are_own(world: World, read: State, own: State, given: list[State], name: str, rank: int) -> bool:
    """Whether the parameter itself came back as this rank has saved it, and that rank has saved another one."""
    mine = _parameter(own, name)
    theirs = next((_parameter(state, name) for state in given if state.rank.rank == rank), None)
    if mine is None or theirs is None or mine.digest == theirs.digest:
        return False
    loaded = [
        state
        for state in reads(world)
        if state.rank is read.rank and isinstance(state.record, ev.StateRead) and state.record.how == "module"
    ]
    same = (p for state in loaded for p in state.pieces if f".{name}".endswith(f".{p.entry.name}"))
    return any(p.digest == mine.digest for p in same)


def _parameter(state: State, name: str) -> Piece | None:
    return next((p for p in state.pieces if p.entry.role == "parameter" and p.entry.of == name and p.seen), None)


def _finding(each: list[tuple[State, State, list[_Strange]]]) -> Finding:
    read, own, strange = each[0]
    first = strange[0]
    names = list(dict.fromkeys(one.name for one in strange))
    elsewhere = first.of != first.name
    ranks = tuple(sorted({one.rank.rank for one, _, _ in each}))
    whose = f"those of {first.of}" if elsewhere else f"those that rank {first.rank} has saved for its own {first.name}"
    return Finding(
        rule="moments-of-another-parameter" if elsewhere else "moments-of-another-rank",
        ranks=ranks,
        subject=first.name,
        expected="each parameter to get back its own moments",
        found=f"{count(len(names), 'parameter')} with the moments of another one: {first.name} has {whose} "
        f"({listing(names)})",
        cause="an optimizer's state goes by the order of its parameters, and that is another one now"
        if elsewhere
        else "the parameters came from this rank's file, and their moments from another rank's",
        advice="List the parameters in the same order before a save and after a load, or save by name: "
        "get_optimizer_state_dict() and set_optimizer_state_dict()."
        if elsewhere
        else "Load the state of what each rank has for itself from what that rank has saved.",
        where=read.where,
        proof=own.rank.proof(own.record.site),
        links=("loaded state",),
    )
