"""Is every logical element saved, under a name that means the same on all ranks? Judge of checkpoint-save-complete."""

from __future__ import annotations

from collections.abc import Iterator

from ddpcheck import evidence as ev
from ddpcheck.checks.checkpoint_save_complete import moments, names
from ddpcheck.facts.states import Piece, State, covered, every_save, saves, seen_in_part, together
from ddpcheck.judging.values_by_key import by_key
from ddpcheck.judging.world import Judged, World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing, ranks_text


def judge(world: World) -> Judged:
    """Lay what all ranks have saved side by side: its names, and the parts of each tensor."""
    findings = []
    compared: set[int] = set()
    seen: set[str] = set()
    all_seen = all(state.all_seen for state in every_save(world))  # what was not may have what the others lack
    saved_by = {(state.rank, state.record.n): place for place, group in enumerate(together(world)) for state in group}
    for place, group in enumerate(together(world)):
        if not all(state.all_seen for state in group):
            continue
        looked, found = names.judge(world, group)
        findings += found
        sharded = _by_name(group) if all_seen and _all_went_on(world, group) else {}
        if looked or any(map(covered, sharded.values())) or any(map(_is_whole, group)):
            compared.add(place)
        if sharded and str(group[0].where) not in seen:
            lost = dict(_lost(world, sharded))
            if lost:
                seen.add(str(group[0].where))
                findings.append(_parts_lost(group, lost))
    of_moments, found = moments.judge(world) if all_seen else ([], [])
    compared |= {saved_by[state.rank, state.record.n] for state in of_moments}
    findings += found
    because = "" if compared else _because(world)
    return Judged(checked=len(compared), of=len(together(world)), findings=tuple(findings), skipped_because=because)


def _because(world: World) -> str:
    if partly := seen_in_part(world):
        return partly
    if not saves(world):
        return "ddpcheck saw no state dict being saved"
    if any(map(_by_name, together(world))):
        return "ddpcheck did not see every rank go on after a save of shards, or not which elements these have"
    return "ddpcheck saw no saved tensor that is declared a shard, and no state that several ranks saved together"


def _by_name(group: list[State]) -> dict[str, list[Piece]]:
    """The parts of tensors, by name."""
    return by_key((p.entry.name, p) for state in group for p in state.pieces if p.sharded and p.box is not None)


def _is_whole(state: State) -> bool:
    """Whether it has parameters of which there is all: of a wrapped module, or gathered from all ranks."""
    wrapped = bool(state.rank.of(ev.Wrapped))
    return any(one.whole or (wrapped and one.role == "parameter" and one.layout is None) for one in state.form.entries)


def _lost(world: World, sharded: dict[str, list[Piece]]) -> Iterator[tuple[str, tuple[int, int]]]:
    """What no rank has ever saved of these tensors: their names, with the elements that are there and those of all."""
    ever: dict[str, list[Piece]] | None = None
    for name, pieces in sharded.items():
        there = covered(pieces)
        if there is None or there[0] >= there[1]:
            continue
        if ever is None:
            ever = _by_name(saves(world))
        of_shape = [one for one in ever.get(name, ()) if one.shape == pieces[0].shape]
        all_there = covered(of_shape)
        if all_there is not None and all_there[0] < all_there[1]:
            yield name, there


def _all_went_on(world: World, group: list[State]) -> bool:
    """Whether every rank has come past the save: none of them may still be about to write its part."""
    at = max(state.record.at for state in group)
    for rank in world:
        last = rank.last(ev.Step)
        over = bool(rank.of(ev.Ended)) and rank.signal is None and not rank.exit_code
        if not (over or (last is not None and last.at > at)):
            return False
    return world.complete and not any(rank.of(ev.Raised) for rank in world)


def _parts_lost(group: list[State], lost: dict[str, tuple[int, int]]) -> Finding:
    first, record = group[0], group[0].record
    assert isinstance(record, ev.StateSaved)
    ranks = tuple(sorted({state.rank.rank for state in group}))
    name, (there, whole) = next(iter(lost.items()))
    more = (
        f", and so it is with {count(len(lost) - 1, 'more name')}: {listing(list(lost)[1:])}" if len(lost) > 1 else ""
    )
    return Finding(
        rule="missing-shards",
        ranks=ranks,
        subject=name,
        expected="the parts that are saved of a tensor to make the whole",
        found=f"{ranks_text(ranks)} saving {there} of the {whole} elements of {name}{more}; no rank was seen "
        "to save the rest",
        cause="each rank holds a part of it, and not all ranks that hold one save theirs",
        advice="Save on all ranks with torch.distributed.checkpoint.save(); or gather the whole state on all ranks "
        "first, as get_model_state_dict() does with StateDictOptions(full_state_dict=True), and let one of them save "
        "it.",
        where=first.where,
        links=("saved state",),
    )
