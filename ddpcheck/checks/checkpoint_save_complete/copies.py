"""Parts of a tensor that several ranks save for the same place of the whole, as they declare: one of them is written.

What the training itself declares to be copies, parameter-sync and its kin
compare. Here it is the save that says so: DTensors that are made of plain
tensors for it. That parts overlap otherwise, or leave holes in the whole,
torch's planner sees by itself, and refuses to save.
"""

from __future__ import annotations

from collections import defaultdict

from ddpcheck import evidence as ev
from ddpcheck.judging.brought_together import is_trained_apart
from ddpcheck.judging.saved_state import Piece, State
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing


def judge(world: World, group: list[State]) -> tuple[int, list[Finding]]:
    """Of the ranks of one checkpoint: compare what they give for one place of one name."""
    record = group[0].record
    if not isinstance(record, ev.StateSaved) or record.how == "torch.save" or len(group) < 2:
        return 0, []
    by_place: dict[tuple[object, ...], list[Piece]] = defaultdict(list)
    for state in group:
        for piece in state.pieces:
            layout = piece.entry.layout
            if layout is not None and layout.ground == "DTensor" and _names_one_part(layout) and piece.seen:
                by_place[piece.entry.name, layout.shape, piece.box].append(piece)
    common = [pieces for pieces in by_place.values() if len(pieces) > 1 and pieces[0].box is not None]
    trained = _declared(world)
    apart = [
        pieces
        for pieces in common
        if len({one.digest for one in pieces}) > 1 and not any(one.entry.of in trained for one in pieces)
    ]
    if not apart:
        return len(common), []
    # Of statistics that each rank takes for itself, those of one rank are saved for all by many programs.
    own = is_trained_apart(world) or all(one.entry.role == "buffer" for pieces in apart for one in pieces)
    return len(common), [_finding(group, apart, own)]


def _names_one_part(layout: ev.Layout) -> bool:
    return all(one[:1] in ("R", "S") for one in layout.placements)


def _declared(world: World) -> set[str]:
    """The parameters and buffers that the training has as DTensors itself."""
    return {
        held.name
        for rank in world
        for model in rank.of(ev.Model)
        for held in model.held
        if held.layout is not None and held.layout.ground == "DTensor"
    }


def _finding(group: list[State], apart: list[list[Piece]], own: bool) -> Finding:
    first = apart[0]
    names = list(dict.fromkeys(pieces[0].entry.name for pieces in apart))
    other = next(one for one in first if one.digest != first[0].digest)
    return Finding(
        rule="conflicting-shards",
        severity="warning" if own else "error",
        ranks=tuple(sorted({one.rank.rank for pieces in apart for one in pieces})),
        subject=names[0],
        expected="ranks that save the same part of a tensor, by its placements, to hold the same values",
        found=f"{count(len(names), 'name')} under which rank {first[0].rank.rank} and rank {other.rank.rank} save "
        f"other values for the same part ({listing(names)}); it is written once, and what the other ranks have is lost",
        cause="the placements that a tensor is given for the save are not those that it has, or its copies have "
        "drifted apart in the training",
        advice="Say for each dimension of the mesh what the tensor is there: Shard where each rank has another part, "
        "and Replicate where all have the same; and reduce the gradients of what is replicated.",
        where=group[0].where,
        links=("saved state", *(f"entry {name}" for name in names[:10])),
    )
