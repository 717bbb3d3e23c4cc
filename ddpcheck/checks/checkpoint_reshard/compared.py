"""One name, as it was saved and as it is held after a load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ddpcheck.judging.saved_state import Piece, whole
from ddpcheck.judging.tensor_kinds import dtype_of, shape_of
from ddpcheck.judging.values_by_key import by_key

Answer = Literal["equal", "order", "part", "values", ""]
"""The same; the same elements in another order; one rank's part for the whole; other values; not to be said."""

RULES: dict[Answer, str] = {"order": "reordered-elements", "part": "part-for-whole", "values": "changed-values"}
"""What a finding says by such an answer."""

Saved = tuple[int, str]
"""A name, and the rank that has saved a tensor under it; -1 where it means the same on all ranks."""


def compared(saved: Sequence[Piece], held: Sequence[Piece]) -> Answer:
    """Compare all parts of a tensor with all parts of it, each as it is cut."""
    if not saved or not held or len({dtype_of(one.entry.kind) for one in (*saved, *held)}) > 1:
        return ""
    first, second = saved[0], held[0]
    if first.shape != second.shape:
        parts = {shape_of(one.entry.kind) for one in saved if one.sharded}
        return "part" if not second.sharded and shape_of(second.entry.kind) in parts else ""
    if len(saved) == len(held) == 1 and not first.sharded and not second.sharded:
        return "" if not (first.seen and second.seen) else "equal" if first.digest == second.digest else "values"
    before, after = whole(saved), whole(held)
    if before is None or after is None:
        return ""
    if before == after:
        return "equal"
    return "order" if before.loose == after.loose else "values"


def saved_as(pieces: Sequence[Piece]) -> Saved:
    """Of all parts of a tensor."""
    return -1 if is_cut(pieces) else pieces[0].rank.rank, pieces[0].entry.name


def by_name(pieces: Sequence[Piece]) -> dict[str, list[Piece]]:
    """The parts of all ranks, by the names of what they belong to."""
    return by_key((one.entry.name, one) for one in pieces)


def is_cut(pieces: Sequence[Piece]) -> bool:
    """Whether somebody says that these are parts."""
    return any(one.sharded for one in pieces)
