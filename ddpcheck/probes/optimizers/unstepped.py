"""Trainable parameters of a model that no optimizer has, at steps of one that has the others.

The stages of a pipeline that one process holds are one model.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial

import torch

from ddpcheck.evidence import WIDTH, Unstepped
from ddpcheck.probes.digests import fast_digests
from ddpcheck.probes.layouts import models
from ddpcheck.probes.layouts.own_names import own_name
from ddpcheck.probes.optimizers import gradient_events
from ddpcheck.probes.processes import later_records
from ddpcheck.probes.recording import recorder
from ddpcheck.probes.recording.pace import is_due


def watch() -> None:
    """Look at the first steps of each optimizer from now on, and at some of those that follow."""
    gradient_events.STEP.also(_entered)


def _entered(
    writer: recorder.Recorder, optimizer: int, number: int, parameters: Sequence[torch.Tensor], site: int
) -> None:
    if not is_due(number):  # what is stepped seldom, or later on, changes between some of them
        return
    every = list(models.named(writer))
    own = set(map(id, parameters))
    mine = models.with_other_stages({model for model, _, one in every if id(one) in own})
    if not mine:
        return
    held = own.union(id(one) for _, each in gradient_events.optimizers(lambda _: True) for one in each)
    left: dict[int, list[tuple[str, torch.Tensor]]] = defaultdict(list)
    among: dict[int, int] = defaultdict(int)
    for model, name, one in every:
        among[model] += 1
        if model in mine and id(one) not in held and one.grad is not None:
            left[model].append((own_name(name), one))
    for model, each in left.items():
        record = partial(
            Unstepped,
            **writer.next(),
            optimizer=optimizer,
            number=number,
            model=model,
            among=among[model],
        )
        with recorder.silence():
            later_records.write(
                writer,
                partial(_made, record, [path for path, _ in each]),
                values=fast_digests.queued([one for _, one in each]),
                constant=fast_digests.filled([one.grad for _, one in each]),
            )


def _made(record: Callable[..., Unstepped], names: list[str], values: bytes, constant: list[bool]) -> Unstepped | None:
    """Of those whose gradient is no constant, where there are any."""
    left = [place for place, one in enumerate(constant) if not one]
    values = b"".join(values[WIDTH * place : WIDTH * (place + 1)] for place in left)
    return record(names=[names[place] for place in left], values=values) if left else None
