"""Parameters that were loaded into copies, while the model goes on with the shards that it was cut into before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ddpcheck import evidence as ev
from ddpcheck.judging.saved_state import State, reads, saved_at
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import count, listing


def judge(world: World) -> Iterator[Finding]:
    """Of each line that loads, say it once.

    That nothing was written to a shard since it was cut is seen at the first
    forward; and what was sharded or loaded after the copies may have got them.
    """
    groups: dict[CallSite | None, list[tuple[State, list[str]]]] = defaultdict(list)
    for state in reads(world):
        record = state.record
        if isinstance(record, ev.StateRead) and record.how == "dcp.load":
            names = _untouched(world, state, record)
            if names:
                groups[state.where].append((state, names))
    for where, each in groups.items():
        _, names = each[0]
        yield Finding(
            rule="unused-loaded-copies",
            severity="warning",
            ranks=tuple(sorted({state.rank.rank for state, _ in each})),
            subject=names[0],
            expected="a training that loads parameters of its model to go on with them",
            found=f"{count(len(names), 'parameter')} that {'were' if len(names) > 1 else 'was'} loaded into copies, "
            f"and that the model has as they were before when it trains on: {listing(names)}",
            cause="torch.distributed.checkpoint fills the tensors of the state dict that it is given: those of a full "
            "or a CPU state dict are no longer the model's",
            advice="Call set_model_state_dict(model, state) after the load, or load_state_dict() of the model.",
            where=where,
            count=len(each),
        )


def _untouched(world: World, state: State, record: ev.StateRead) -> list[str]:
    """Parameters of which copies were loaded, and whose shards nobody has written to before the first forward."""
    rank = state.rank
    copies = {one.of for one in state.form.entries if one.role == "parameter" and not one.live}
    own = any(one.role == "parameter" and one.live for one in state.form.entries)
    steps = [step.n for step in rank.of(ev.Step) if step.n > record.n]
    model = next((one for one in rank.of(ev.Model) if one.n > record.n), None)
    if not copies or own or not steps or model is None or model.n > steps[0]:
        return []
    # Who has loaded the model from elsewhere before reads something else here: an anchor, or an average of weights.
    if any(one.owner == "module" and one.n < record.n for one in rank.of(ev.StateLoaded)):
        return []
    later = [one.n for one in (*rank.of(ev.StateLoaded), *rank.of(ev.Parallelised)) if one.n > record.n]
    if later and min(later) < steps[0]:
        return []
    held = {one.name: one for one in model.held if not one.buffer}
    known = sorted(copies & held.keys())
    if not all(held[name].cut_from for name in known) or _are_the_same(world, state, held):
        return []
    return known


def _are_the_same(world: World, state: State, held: dict[str, ev.Held]) -> bool:
    """Whether the checkpoint holds what the model holds anyway, as one that is only tried out does."""
    saved = {
        piece.entry.of: piece.digest
        for one in saved_at(world, state.record.path, state.record.at)
        for piece in one.pieces
        if one.rank is state.rank and piece.entry.role == "parameter"
    }
    return bool(saved) and all(name in held and held[name].digest == digest for name, digest in saved.items())
