"""Plain parameters of a model that is otherwise sharded: nothing reduces them, unless the program does."""

from __future__ import annotations

from collections.abc import Iterator

from ddpcheck import evidence as ev
from ddpcheck.checks.reducer_coverage.separate_models import shards, with_gradient
from ddpcheck.facts.tensors import beside
from ddpcheck.judging import first_forwards, step_alignment
from ddpcheck.judging.replicated_parameters import histories
from ddpcheck.judging.step_alignment import Aligned
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing


def judge(world: World) -> Iterator[Finding]:
    """The plain parameters beside sharded ones that each rank trains for itself.

    It counts as no check: whether what is sharded is reduced was not looked at.
    """
    for optimizer in beside(world):
        looked = [(n, s) for n, s in optimizer.compared() if all(one.gradients for one in s)]
        yield from _apart(world, optimizer, looked)


def _apart(world: World, optimizer: Aligned, looked: list[tuple[int, list[ev.Step]]]) -> Iterator[Finding]:
    exchanged = {c.place for records in histories(optimizer) for record in records for c in record.carried}
    apart = {place for _, step in looked for place in step_alignment.differing([s.gradients for s in step])}
    # An optimizer of the program's own may bring together what it makes of them.
    apart &= {place for _, step in looked for place in step_alignment.differing([s.parameters for s in step])}
    places = sorted((apart & with_gradient(optimizer, looked)) - exchanged)
    if not places:
        return
    described = optimizer.described[0].parameters
    values = [one.values for one in optimizer.described]
    equal = [p for p in places if p not in step_alignment.differing(values) and not described[p].filled]
    ignored = all(
        one.layout is not None and one.layout.ground == "ignored" for one in map(described.__getitem__, places)
    )
    names = [described[p].name for p in places]
    rank = optimizer.ranks[0]
    stepped = rank.where(looked[0][1][0].site)
    model = next((one for one in rank.of(ev.Model) if one.model == described[places[0]].model), None)
    lines = [
        rank.where(described[places[0]].site),
        first_forwards.sharded_at(rank, model) if model is not None else None,
    ]
    yield Finding(
        rule="unreduced-beside-sharded",
        # What begins as copies, and is trained on shards of one dataset, is one model; otherwise each rank may be meant
        # to own its part, such as the head of a task.
        severity="error" if equal and not ignored and shards(world) is not None else "warning",
        ranks=tuple(one.rank for one in optimizer.ranks),
        subject=names[0],
        expected="the gradient of every parameter that is no shard to be reduced over the ranks before it is stepped",
        found=f"{count(len(places), 'plain parameter')} beside sharded ones to have gradients that differ between "
        f"ranks, and no collective over them: {listing(names)}",
        cause="they were given to the wrapper to ignore, which leaves their gradients to the program"
        if ignored
        else "they were not in the model when it was sharded, or are none of its wrappers'",
        advice="Average their gradients over the ranks before each step, or leave them to the wrapper."
        if ignored
        else "Add them to the model before it is sharded, or average their gradients over the ranks before each step; "
        "broadcast them once, too, where each rank has drawn its own.",
        where=stepped,
        links=(f"optimizer {optimizer.number}",),
        proof=tuple((rank.rank, site) for site in lines if site is not None),
    )
