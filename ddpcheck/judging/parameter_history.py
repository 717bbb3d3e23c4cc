"""What became of one parameter of a model, step by step."""

from __future__ import annotations

from collections.abc import Iterator

from ddpcheck import evidence as ev
from ddpcheck.judging import step_alignment
from ddpcheck.judging.world import Rank


def after_steps(rank: Rank, model: int, name: str) -> Iterator[tuple[ev.Step, bytes]]:
    """The steps of the optimizers that hold it, with its digest after each that was looked at in full."""
    places: dict[int, int] = {}
    records: list[ev.Optimizer | ev.Step] = [*rank.of(ev.Optimizer), *rank.of(ev.Step)]
    for record in sorted(records, key=lambda one: one.n):
        if isinstance(record, ev.Optimizer):
            place = next((p for p, one in enumerate(record.parameters) if (one.model, one.path) == (model, name)), None)
            places.pop(record.optimizer, None)
            if place is not None:
                places[record.optimizer] = place
        elif record.optimizer in places and record.whole:
            digest = step_alignment.at(record.parameters, places[record.optimizer])
            if digest not in (b"", ev.UNSEEN):
                yield record, digest
