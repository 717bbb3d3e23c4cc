"""The facts of a rank in the order of a training: micro-batches, and the steps that they went into."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ddpcheck.evidence import training_record
from ddpcheck.trainings.whole_tensors import with_whole_tensors


class Micro(NamedTuple):
    """One micro-batch of one rank: its forward, and what became of its loss."""

    forward: training_record.Forward
    losses: tuple[training_record.Lost, ...]
    factors: tuple[float, ...]
    """By which factors the gradients came back to its losses."""


class Window(NamedTuple):
    """What went into one optimizer step of one rank."""

    micros: tuple[Micro, ...]
    step: training_record.Step

    @property
    def samples(self) -> list[list[int]]:
        """By micro-batch: the numbers of its samples."""
        return [micro.forward.samples for micro in self.micros]


STREAMS: dict[str, Callable[[training_record.Forward], list[float]]] = {
    "torch": lambda forward: [float(math.floor(draw)) for draw in forward.draws],
    "Python": lambda forward: [draw % 1.0 for draw in forward.draws],
    "numpy": lambda forward: forward.of_numpy if any(forward.of_numpy) else [],  # nothing, where it is not installed
}
"""What each of the random streams that augmentation may draw from has drawn for the samples of a batch."""


class Trace:
    """All that one rank has recorded of one training."""

    def __init__(self, recorded: Iterable[Any]) -> None:
        self.facts: list[Any] = list(recorded)
        self.windows: list[Window] = []
        self.rest: list[Micro] = []
        """Micro-batches that no step has followed."""
        self.evaluated = 0
        """Forwards in evaluation mode."""
        self._arrange()

    def _arrange(self) -> None:
        pending: list[tuple[training_record.Forward, list[training_record.Lost], list[float]]] = []
        for fact in self.facts:
            match fact:
                case training_record.Forward(training=True):
                    pending.append((fact, [], []))
                case training_record.Forward():
                    self.evaluated += 1
                case training_record.Lost() if pending:
                    pending[-1][1].append(fact)
                case training_record.Pulled(factor=factor) if pending:
                    pending[-1][2].append(factor)
                case training_record.Step():
                    self.windows.append(Window(_micros(pending), fact))
                    pending = []
        self.rest = list(_micros(pending))

    def of(self, kind: type[Any]) -> list[Any]:
        """The facts of one kind, in order."""
        return [fact for fact in self.facts if isinstance(fact, kind)]

    def first(self, kind: type[Any]) -> Any:
        """The first fact of one kind, or None."""
        return next((fact for fact in self.facts if isinstance(fact, kind)), None)

    def scheduled(self, first: int, last: int) -> int:
        """How often a scheduler was stepped with an evaluation, after so many optimizer steps and no more than that."""
        steps = found = 0
        for fact in self.facts:
            steps += isinstance(fact, training_record.Step)
            found += isinstance(fact, training_record.Scheduled) and first <= steps <= last
        return found

    @property
    def began(self) -> bool:
        return self.first(training_record.Began) is not None

    @property
    def returned(self) -> bool:
        return self.first(training_record.Returned) is not None

    @property
    def names(self) -> list[str]:
        """The parameters that are trained."""
        began = self.first(training_record.Began)
        return list(began.parameters) if began is not None else []

    @property
    def micros(self) -> list[Micro]:
        """All micro-batches of the training, in order."""
        return [micro for window in self.windows for micro in window.micros] + self.rest

    @property
    def steps(self) -> list[training_record.Step]:
        return [window.step for window in self.windows]


def traces_of(folder: Path, world_size: int) -> list[Trace]:
    """What the ranks of a training have recorded in a folder, with the whole of what each had a part of."""
    recorded = [[*training_record.read(training_record.file_of(folder, rank))] for rank in range(world_size)]
    return [Trace(facts) for facts in with_whole_tensors(recorded)]


def _micros(
    pending: Sequence[tuple[training_record.Forward, list[training_record.Lost], list[float]]],
) -> tuple[Micro, ...]:
    return tuple(Micro(forward, tuple(lost), tuple(factors)) for forward, lost, factors in pending)
