"""The state of optimizers that share their work among the ranks, and of which one rank saves its own part alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from ddpcheck import evidence as ev
from ddpcheck.facts.states import Piece, State, saves
from ddpcheck.judging.step_alignment import at
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import count, listing, ranks_text


def judge(world: World) -> tuple[list[State], list[Finding]]:
    """Compare whose moments were saved with which parameters the optimizers of all ranks step; the saves, too."""
    savers: dict[Rank, State] = {}
    keys: dict[Rank, set[str]] = defaultdict(set)
    for state in saves(world):
        its = {one.entry.key for one in state.pieces if one.entry.role == "moment"}
        keys[state.rank] |= its
        if its:
            savers.setdefault(state.rank, state)
    gathered = {state.rank for state in saves(world) if _has_copies(state, keys[state.rank])}
    others = [rank for rank in world if rank not in savers]
    if not savers or not world.complete or any(rank.of(ev.Raised) for rank in world):
        return [], []
    looked: list[State] = []
    findings = []
    for rank, state in savers.items():
        if not isinstance(state.record, ev.StateSaved) or state.record.how != "torch.save" or rank in gathered:
            continue
        looked.append(state)
        lost, holders = _lost(rank, state, others)
        if lost and len(savers) == 1:
            findings.append(_finding(state, lost, holders))
    return looked, findings


def _has_copies(state: State, keys: set[str]) -> bool:
    """Whether there are moments that are not the rank's own: what was gathered from others, most likely."""
    return any(
        not one.entry.role and "[" in one.entry.kind and one.entry.name.rpartition(".")[2] in keys
        for one in state.pieces
    )


def _lost(saver: Rank, state: State, others: list[Rank]) -> tuple[list[str], list[int]]:
    """The parameters whose moments are on ranks that save none, and these ranks."""
    parts = [one for one in state.pieces if one.entry.role == "moment" and _is_part(one)]
    if parts and others:
        return list(dict.fromkeys(one.entry.of for one in parts)), [rank.rank for rank in others]
    # An optimizer that is given all parameters may keep state for those alone whose updates fall to its rank.
    held, listed = _with_state(saver, state.record.at), set(_stepped(saver))
    mine = held or listed
    lines = {saver.where(one.site) for one in saver.of(ev.Optimizer)}
    models = {held.name for model in saver.of(ev.Model) for held in model.held}
    lost: list[str] = []
    holders = []
    for rank in others:
        # An optimizer of another line shares no work with it: such as that of a critic beside its actor.
        kept = _with_state(rank, state.record.at) if held else set[str]()
        its = [name for name in _stepped(rank, lines) if name in kept or name not in listed]
        theirs = [name for name in its if name in models and name not in mine]
        if theirs and mine and rank.of(ev.Step):
            holders.append(rank.rank)
            lost += theirs
    return list(dict.fromkeys(lost)), holders


def _is_part(one: Piece) -> bool:
    layout = one.entry.layout
    return layout is not None and layout.ground == "FSDP" and "R" not in layout.placements and layout.offset is None


def _stepped(rank: Rank, lines: Collection[CallSite | None] = ()) -> list[str]:
    """The parameters of models that the optimizers of a rank (those of these lines) step, by their paths."""
    every = [one for one in rank.of(ev.Optimizer) if not lines or rank.where(one.site) in lines]
    return [one.path for described in every for one in described.parameters if one.path]


def _with_state(rank: Rank, until: float) -> set[str]:
    """The parameters for which the optimizers of a rank had any state at the steps that were looked at by then."""
    paths = {one.optimizer: [p.path for p in one.parameters] for one in rank.of(ev.Optimizer)}
    found: set[str] = set()
    for step in rank.of(ev.Step):
        for digests in step.state.values() if step.at <= until else ():
            its = enumerate(paths.get(step.optimizer, ()))
            found.update(path for place, path in its if path and at(digests, place) not in (b"", ev.ABSENT))
    return found


def _finding(state: State, lost: list[str], holders: list[int]) -> Finding:
    ranks = (state.rank.rank,)
    return Finding(
        rule="missing-optimizer-state",
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
