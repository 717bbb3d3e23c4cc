"""The mode of the forwards that the backward() calls of a window reach, on the ranks that hold one model.

Several forwards before one backward() may run in different modes, of which it
reaches one: which one is not known, and the window of that rank is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ddpcheck import evidence as ev
from ddpcheck.facts import moments, settings, tensors
from ddpcheck.facts.holdings import Ground, Holding, Look
from ddpcheck.facts.readers import models_of
from ddpcheck.judging import first_forwards, step_alignment
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.step_alignment import Aligned
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite


class Mode(NamedTuple):
    """That of a model's forwards in one window of a rank."""

    modules: list[str]
    parameters: list[str]
    training: list[bytes]
    """A byte for each module, in each of its modes."""
    trained: list[bytes]
    """A byte for each parameter."""
    site: int


@once_per_world
def of(world: World) -> list[Holding]:
    """By optimizer: the modes of the models whose copies or slices its ranks hold."""
    shared: list[tuple[Aligned, Sequence[int], Ground]] = [
        (held.optimizer, range(len(held.optimizer.ranks)), held.ground)
        for held in tensors.copies(world)
        if held.parameters
    ]
    for optimizer in step_alignment.optimizers(world):
        shared += [(optimizer, holders, settings.SLICES) for holders in settings.slices(optimizer)]
    found: dict[tuple[object, ...], Holding] = {}
    for optimizer, holders, ground in shared:
        alike = ground._replace(is_rounded=False, usual="most" if len(holders) > 2 else "none")
        for holding in _of_optimizer(optimizer, holders, alike):
            found.setdefault((holding.moment, holding.ranks, holding.links), holding)
    return list(found.values())


def _of_optimizer(optimizer: Aligned, holders: Sequence[int], ground: Ground) -> Iterator[Holding]:
    stepped = models_of(optimizer)
    ranks = [optimizer.ranks[holder] for holder in holders]
    by_name = [{name: model for model, name in first_forwards.numbered(rank).items() if model in stepped[rank]}
               for rank in ranks]  # fmt: skip
    for name in sorted(set(by_name[0]).intersection(*by_name[1:])):
        modes = [_modes(rank, models[name]) for rank, models in zip(ranks, by_name, strict=True)]
        found = []
        for number, steps in optimizer.common():
            each = [
                _of_window(rank, steps[holder], own) if own else None
                for rank, holder, own in zip(ranks, holders, modes, strict=True)
            ]
            if any(each):
                found.append((number, each))
        known = next((mode for _, each in found for mode in each if mode is not None), None)
        if known is None:
            continue
        for moment, places in (("training", known.modules), ("trained", known.parameters)):
            looks = []
            for number, each in found:
                values = tuple(_flags(mode, known, moment) for mode in each)
                looks.append(Look(number, values, _lines(ranks, each)))
            yield Holding(
                moment,
                tuple(rank.rank for rank in ranks),
                [place or name[0] for place in places],
                range(len(places)),
                ground,
                looks,
                links=(f"model {by_name[0][name]}", f"optimizer {optimizer.number}"),
                optimizer=optimizer.number,
            )


def _flags(mode: Mode | None, known: Mode, moment: str) -> tuple[str | None, ...]:
    """In words, place by place; none where the mode is not known, or the model has other modules."""
    if mode is None or (mode.modules, mode.parameters) != (known.modules, known.parameters):
        return (None,) * len(known.modules if moment == "training" else known.parameters)
    words, flags = ("evaluation mode", "training mode"), mode.training
    if moment == "trained":
        words, flags = ("frozen", "trained"), mode.trained
    return tuple(" and ".join(words[one] for one in sorted(set(places))) for places in zip(*flags, strict=True))


def _lines(ranks: Sequence[Rank], modes: Sequence[Mode | None]) -> Callable[[int], CallSite | None]:
    def line(holder: int) -> CallSite | None:
        mode = modes[holder]
        return ranks[holder].where(mode.site) if mode is not None else None

    return line


def _modes(rank: Rank, model: int) -> dict[int, ev.Modes]:
    """By backward() call, with the names in each."""
    found: dict[int, ev.Modes] = {}
    modules: list[str] = []
    parameters: list[str] = []
    for one in rank.of(ev.Modes):
        if one.model == model:
            modules, parameters = one.modules or modules, one.parameters or parameters
            found[one.backward] = replace(one, modules=modules, parameters=parameters)
    return found


def _of_window(rank: Rank, step: ev.Step, modes: dict[int, ev.Modes]) -> Mode | None:
    """The modes of the forwards that a window's backward() calls reach; None where these are not known."""
    window = moments.window(rank, step.optimizer, step.number)
    if window is None:
        return None
    backwards = {one.backward for its in window.contributions.values() for one in its if one.how == "backward"}
    found = [modes[number] for number in sorted(backwards) if number in modes]
    names = {(*one.modules, *one.parameters) for one in found}
    if not found or any(one.several for one in found) or len(names) > 1:
        return None
    first = found[0]
    training, trained = [one.training for one in found], [one.trained for one in found]
    return Mode(first.modules, first.parameters, training, trained, first.site)
