"""Is the optimizer's state of a sharded parameter declared to be parts of the same whole?"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from ddpcheck import evidence as ev
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing


def findings(world: World) -> Iterator[Finding]:
    """State whose parts have the shapes of the parameter's on every rank, and whose whole has another one on each.

    Of a rank whose part has another shape the state may be padded on purpose, so
    that nothing is said then.
    """
    told: dict[int, dict[int, ev.StateOfAnotherWhole]] = {}
    for rank, record in world.of(ev.StateOfAnotherWhole):
        told.setdefault(record.optimizer, {})[rank.rank] = record
    for number, records in sorted(told.items()):
        ranks = {rank.rank: rank for rank in world if rank.rank in records}
        first = ranks[min(ranks)]
        described = next((one for one in first.of(ev.Optimizer) if one.optimizer == number), None)
        if described is None:
            continue
        record = records[first.rank]
        wrong = [at for at, place in enumerate(record.places) if _is_everywhere(world, number, place, records)]
        if wrong:
            yield _finding(first, described, record, wrong, tuple(sorted(ranks)))


def _is_everywhere(world: World, number: int, place: int, records: dict[int, ev.StateOfAnotherWhole]) -> bool:
    """Whether every rank that has a part of the parameter says so."""
    for rank in world:
        described = next((one for one in rank.of(ev.Optimizer) if one.optimizer == number), None)
        if described is None or place >= len(described.parameters):
            continue
        layout = described.parameters[place].layout
        if layout is None or not prod(layout.local):
            continue
        if rank.rank not in records or place not in records[rank.rank].places:
            return False
    return True


def _finding(
    rank: Rank, described: ev.Optimizer, record: ev.StateOfAnotherWhole, wrong: list[int], ranks: tuple[int, ...]
) -> Finding:
    parameters = [described.parameters[record.places[at]] for at in wrong]
    layout = parameters[0].layout
    whole = list(layout.shape) if layout is not None else []
    names = [f"{parameter.name} ({record.keys[at]})" for parameter, at in zip(parameters, wrong, strict=True)]
    return Finding(
        rule="state-of-wrong-shape",
        severity="warning",
        ranks=ranks,
        subject=parameters[0].name,
        step=0,
        expected=f"state that the {described.kind} keeps of a sharded parameter to be parts of a tensor of its shape",
        found=f"state of {count(len(wrong), 'parameter')} that is declared to be of another whole, such as "
        f"{list(record.wholes[wrong[0]])} for {whole}: {listing(names)}",
        cause="the state was made of each rank's part as if all parts were equally large",
        advice="Make state by torch.zeros_like(parameter), or give DTensor.from_local() shape= and stride= of the "
        "whole: what is gathered, saved or resharded of it is wrong otherwise.",
        where=rank.where(record.site),
        links=(f"optimizer {described.optimizer}",),
    )
