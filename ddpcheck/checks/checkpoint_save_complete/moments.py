"""The state of optimizers that share their work among the ranks, and of which one rank saves its own part alone."""

from __future__ import annotations

from ddpcheck import evidence as ev
from ddpcheck.judging.saved_state import Piece, State, saves
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing, ranks_text


def judge(world: World) -> tuple[int, list[Finding]]:
    """Compare whose moments were saved with which parameters the optimizers of all ranks step."""
    savers: dict[Rank, State] = {}
    for state in saves(world):
        if any(one.entry.role == "moment" for one in state.pieces):
            savers.setdefault(state.rank, state)
    others = [rank for rank in world if rank not in savers]
    if not savers or not world.complete or any(rank.of(ev.Raised) for rank in world):
        return 0, []
    looked, findings = 0, []
    for rank, state in savers.items():
        if not isinstance(state.record, ev.StateSaved) or state.record.how != "torch.save" or _has_copies(state):
            continue
        looked += 1
        lost, holders = _lost(rank, state, others)
        if lost and len(savers) == 1:
            findings.append(_finding(state, lost, holders))
    return looked, findings


def _has_copies(state: State) -> bool:
    """Whether there are moments beside the rank's own: what was gathered from others, most likely."""
    keys = {one.entry.key for one in state.pieces if one.entry.role == "moment"}
    return any(
        not one.entry.role and "[" in one.entry.kind and one.entry.name.rpartition(".")[2] in keys
        for one in state.pieces
    )


def _lost(saver: Rank, state: State, others: list[Rank]) -> tuple[list[str], list[int]]:
    """The parameters whose moments are on ranks that save none, and these ranks."""
    parts = [one for one in state.pieces if one.entry.role == "moment" and _is_part(one)]
    if parts and others:
        return list(dict.fromkeys(one.entry.of for one in parts)), [rank.rank for rank in others]
    mine = set(_stepped(saver))
    models = {held.name for model in saver.of(ev.Model) for held in model.held}
    lost: list[str] = []
    holders = []
    for rank in others:
        theirs = [name for name in _stepped(rank) if name in models and name not in mine]
        if theirs and mine and rank.of(ev.Step):
            holders.append(rank.rank)
            lost += theirs
    return list(dict.fromkeys(lost)), holders


def _is_part(one: Piece) -> bool:
    layout = one.entry.layout
    return layout is not None and layout.ground == "FSDP" and layout.offset is None


def _stepped(rank: Rank) -> list[str]:
    """The parameters of models that the optimizers of a rank step, by their paths."""
    return [one.path for described in rank.of(ev.Optimizer) for one in described.parameters if one.path]


def _finding(state: State, lost: list[str], holders: list[int]) -> Finding:
    ranks = (state.rank.rank,)
    return Finding(
        ranks=ranks,
        subject=lost[0],
        expected="the moments of every parameter to be saved",
        found=f"{ranks_text(ranks)} saving the optimizer's own state, while {ranks_text(holders)}, where the optimizer "
        f"has that of {count(len(lost), 'parameter')} of the same model, or a part of it, saves none: {listing(lost)}",
        cause="the optimizer's state is shared out among the ranks, and what one of them has is taken for all of it",
        advice="Gather the optimizer's state before one rank saves it (get_optimizer_state_dict() with "
        "full_state_dict, FSDP.optim_state_dict(), ZeroRedundancyOptimizer.consolidate_state_dict()), or let every "
        "rank save its part.",
        where=state.where,
        links=("saved state",),
    )
