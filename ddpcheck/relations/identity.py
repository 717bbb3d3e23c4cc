"""R6: what is read under a key is what was last written under it, on any mesh."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from ddpcheck.facts.optimizer_loads import OptimizerLoad, is_varied
from ddpcheck.facts.sketches import share_of
from ddpcheck.facts.states import Piece, whole
from ddpcheck.facts.transfers import Proof, Transfer, is_cut

Answer = Literal["equal", "order", "part", "values", "rank", "name", ""]
"""The same, or what is another: see Proof. Nothing where it cannot be said."""


class Deviation(NamedTuple):
    """Names under which something else is held than was saved."""

    answer: Proof
    transfer: Transfer
    names: list[str]
    ranks: tuple[int, ...]
    matters: bool
    """It is a part of a tensor, is trained, or is the state of a random stream; but one's copy may serve all that are
    trained apart."""
    of: str
    """The name under which the first of them was saved, or the rank that has saved it."""


class Compared(NamedTuple):
    """What was found of one transfer."""

    names: set[tuple[int, str]]
    """What was compared: by name, and the rank that saved it where each rank has its own under one name."""
    deviations: list[Deviation]


class _Found(NamedTuple):
    """What is held under one name, on one rank or on all together."""

    name: str
    answer: Answer
    of: str
    before: Sequence[Piece]
    held: Sequence[Piece]

    @property
    def saved_by(self) -> int:
        """The rank that has saved it, where each may have its own; -1 where all ranks mean the same."""
        return -1 if is_cut(self.before) else self.before[0].rank.rank


def identity(transfer: Transfer) -> Compared:
    """Compare what is held with what was saved, name by name."""
    each = [
        found
        for name, held in transfer.after.items()
        if (before := transfer.before.get(name))
        for found in _compared(transfer, name, before, held)
    ]
    if transfer.how == "merged" and not any(one.answer in ("equal", "order") for one in each):
        return Compared(set(), [])  # where all are parts, none was meant to be the whole
    known = [one for one in each if one.answer == "equal" or one.answer in transfer.proves]
    names = {(-1 if transfer.how == "checkpoint" else one.saved_by, one.name) for one in known}
    other: dict[tuple[Proof, bool], list[_Found]] = defaultdict(list)
    for one in known:
        if one.answer != "equal" and one.answer:
            other[one.answer, _matters(transfer, one)].append(one)
    return Compared(names, [_deviation(transfer, answer, matters, its) for (answer, matters), its in other.items()])


def _compared(transfer: Transfer, name: str, before: Sequence[Piece], held: Sequence[Piece]) -> Iterator[_Found]:
    if transfer.how != "optimizer" and (is_cut(before) or is_cut(held)):
        yield _Found(name, _of_parts(before, held), "", before, held)
        return
    for piece in held:
        answer, of = _of_rank(transfer, name, before, piece)
        yield _Found(name, answer, of, before, [piece])


def _matters(transfer: Transfer, one: _Found) -> bool:
    roles = {piece.entry.role for piece in one.before}
    return is_cut(one.before) or "random" in roles or (bool(roles & {"parameter", "moment"}) and not transfer.are_apart)


def _deviation(transfer: Transfer, answer: Proof, matters: bool, its: Sequence[_Found]) -> Deviation:
    names = list(dict.fromkeys(one.name for one in its))
    ranks = tuple(sorted({piece.rank.rank for one in its for piece in one.held}))
    return Deviation(answer, transfer, names, ranks, matters, its[0].of)


# --- one name


def _of_parts(before: Sequence[Piece], held: Sequence[Piece]) -> Answer:
    """Compare all parts of a tensor with all parts of it, each as it is cut."""
    if len({one.dtype for one in (*before, *held)}) > 1:
        return ""
    if before[0].shape != held[0].shape:
        parts = {one.size for one in before if one.sharded}
        return "part" if not held[0].sharded and held[0].size in parts else ""
    first, second = whole(before), whole(held)
    if first is None or second is None:
        return ""
    if first.is_same(second):
        return "equal"
    return "order" if first.has_elements_of(second) else "values"


def _of_rank(transfer: Transfer, name: str, before: Sequence[Piece], piece: Piece) -> tuple[Answer, str]:
    """Compare what one rank holds with what it has saved itself, or the one that has; with whose it is otherwise."""
    own = next((one for one in before if one.rank is piece.rank), None if len(before) > 1 else before[0])
    if own is None or not (own.seen and piece.seen) or own.entry.kind != piece.entry.kind:
        return "", ""
    if own.digest == piece.digest:
        return "equal", ""
    if "name" in transfer.proves:
        if sum(_is_same(one, piece) for held in transfer.after.values() for one in held if one.rank is piece.rank) > 1:
            return "", ""  # such as moments that are begun anew: whose these are does not show
        for other, its in transfer.before.items():
            if other != name and any(one.rank is own.rank and _is_same(one, piece) for one in its):
                return "name", its[0].entry.of or other
    rank = next((one.rank.rank for one in before if one.rank is not piece.rank and _is_same(one, piece)), None)
    if rank is not None:
        return "rank", str(rank)
    first, second = whole([own]), whole([piece])
    is_moved = first is not None and second is not None and first.has_elements_of(second)
    return "order" if is_moved else "values", ""


def _is_same(one: Piece, other: Piece) -> bool:
    return (one.digest, one.entry.kind, one.entry.key) == (other.digest, other.entry.kind, other.entry.key)


# --- moments and their parameters


class Parted(NamedTuple):
    """Parameters whose moments belong to others."""

    names: list[str]
    loads: list[OptimizerLoad]
    compared: int
    """The parameters whose moments were found to be their own, and these."""


def shared(group: Sequence[OptimizerLoad]) -> Parted:
    """Moments that several ranks hold alike, of parameters that are not alike: they belong to one of them at most."""
    names: dict[str, set[int]] = {}
    compared: set[str] = set()
    for one in group:
        for (name, key), moment in one.moments.items():
            for other in group:
                theirs = other.moments.get((name, key))
                if other is one or theirs is None or not {name} <= one.weights.keys() & other.weights.keys():
                    continue
                if one.may_share and moment.entry.of:
                    continue
                if theirs.entry.kind != moment.entry.kind or one.weights[name].digest == other.weights[name].digest:
                    continue
                if moment.entry.of and not _have_some_alike(one, other):
                    continue
                compared.add(name)
                if theirs.digest == moment.digest:
                    names.setdefault(name, set()).update((one.rank.rank, other.rank.rank))
    ranks = {rank for its in names.values() for rank in its}
    return Parted(list(names), [one for one in group if one.rank.rank in ranks], len(compared))


def _have_some_alike(one: OptimizerLoad, other: OptimizerLoad) -> bool:
    """Whether two ranks hold any parameter alike, of this optimizer or none: else each trains a model of its own."""
    mine, theirs = ({**each.loaded, **each.weights} for each in (one, other))
    return any(name in theirs and theirs[name].digest == its.digest for name, its in mine.items())


def parted(group: Sequence[OptimizerLoad]) -> list[Parted]:
    """Parameters that have moments, and have nothing of what was loaded with these when they are stepped.

    What a rank was sent by another one is what that one has loaded; what was clamped, masked or rounded has some of it.
    """
    known = {(name, piece.digest) for one in group for name, piece in one.loaded.items()}
    found = []
    for one in group:
        with_moments = {name for name, _ in one.moments}
        pairs = {
            name: (one.loaded[name], weight)
            for name, weight in one.weights.items()
            if name in with_moments and name in one.loaded and one.loaded[name].entry.kind == weight.entry.kind
        }
        other = [name for name, (_, weight) in pairs.items() if (name, weight.digest) not in known]
        constant = [name for name in other if is_varied(pairs[name][0]) and not is_varied(pairs[name][1])]
        varied = [name for name in other if is_varied(pairs[name][0]) and is_varied(pairs[name][1])]
        names = constant + (varied if _is_nothing_left([pairs[name] for name in varied]) else [])
        found.append(Parted([name for name in other if name in names], [one], len(pairs)))
    return found


def _is_nothing_left(pairs: Sequence[tuple[Piece, Piece]]) -> bool:
    """Whether what these are has no share of what was loaded."""
    if not pairs:
        return False
    share = share_of([(before.sketch, now.sketch) for before, now in pairs])
    return share is not None and share.is_nothing
