"""What goes into the model of each rank, forward by forward, on ranks that train copies of one model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.facts import exchanges, moments, sketches
from ddpcheck.facts.passes import Pass, every_pass
from ddpcheck.facts.readers import Readers, readers
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite


class GroupInputs(NamedTuple):
    """The forwards that all ranks of a group had."""

    ranks: tuple[int, ...]
    is_declared: bool
    """A wrapper, or what shards a model, says that its gradients are averaged over them."""
    name: str
    """What it went into, for a person."""
    line: CallSite | None
    """Of the first forward."""
    digests: list[tuple[bytes, ...]]
    """By forward, what went in on each rank."""
    contributions: bool | None
    """Whether all ranks have contributed the same by every backward(); None where that is not known."""
    draws: bool
    """Random numbers are drawn in the forwards."""

    @property
    def equal(self) -> int:
        """The forwards into which the same went on all ranks."""
        return sum(len(set(one)) == 1 for one in self.digests)

    @property
    def change(self) -> bool:
        """Whether something else goes in each time."""
        return len({one[0] for one in self.digests}) == len(self.digests)


class Replay(NamedTuple):
    """A pass through a loader that shuffles, after which models are given its batches once more, in their order."""

    rank: int
    first: Pass
    forwards: int
    """So many, one after the other, are seen to be the same."""


@once_per_world
def replays(world: World) -> list[Replay]:
    """Of each rank and loader the first one."""
    return [one for rank, passes in zip(world, every_pass(world), strict=True) for one in _replays(rank, passes)]


def _replays(rank: Rank, passes: Sequence[Pass]) -> Iterator[Replay]:
    over = {(p.begun.loader, p.begun.number): p for p in passes if p.exhausted and _is_shuffled(p)}
    for by_number in _inputs(rank, None).values():
        given = [by_number[number] for number in sorted(by_number) if number < ev.EVERY_INPUT]
        for key, its in groupby(given, lambda one: (one.loader, one.pass_)):
            one = over.pop(key, None) if key[0] is not None else None
            if one is None:
                continue
            first = list(its)
            later = [g for g in given if g.n > max(first[-1].n, one.end) and not any(p.is_open(g.n) for p in passes)]
            pairs = list(zip(first, later, strict=False))
            differ = len({a.digest for a, _ in pairs}) == len(pairs)  # else they are no batches
            if len(pairs) >= ENOUGH and differ and all(a.digest == b.digest for a, b in pairs):
                yield Replay(rank.rank, one, len(pairs))


def _is_shuffled(one: Pass) -> bool:
    """Whether the sampler says that it shuffles, or has an epoch on which its order depends."""
    return one.loader is not None and (
        one.loader.shuffle or (one.loader.shuffle is None and one.begun.epoch is not None)
    )


_Key = tuple[int | None, int | None]


ENOUGH = 3
"""Forwards that have to be equal, one after the other."""


@once_per_world
def of(world: World) -> list[GroupInputs]:
    """By group, and by wrapper or model."""
    found = []
    groups = [one for one in readers(world) if len(one.ranks) > 1 and not one.apart]
    if not groups:
        # What an optimizer of the program's own exchanges, such as parts of gradients, may be in no parameter's shape.
        groups = [Readers([rank for rank in world if rank.rank in one], {}) for one in exchanges.between(world)]
    for group in groups:
        ranks = tuple(rank.rank for rank in group.ranks)
        alike, draws = _contribute_alike(group.ranks), any(map(_draws, group.ranks))
        # Each rank counts its models in no wrapper for itself: the first ones belong together, and so on.
        for forwards in zip(*(_inputs(rank, group.models).values() for rank in group.ranks), strict=False):
            numbers = sorted(set(forwards[0]).intersection(*forwards[1:]))
            if not numbers:
                continue
            first = forwards[0][numbers[0]]
            name = f"wrapper {first.wrapper}" if first.wrapper is not None else f"model {first.model}"
            digests = [tuple(by_number[number].digest for by_number in forwards) for number in numbers]
            line = group.ranks[0].where(first.site)
            found.append(GroupInputs(ranks, group.models is None, name, line, digests, alike, draws))
    return found


def _inputs(rank: Rank, models: Mapping[Rank, set[int]] | None) -> dict[_Key, dict[int, ev.Inputs]]:
    """By wrapper or model, and number; of the models that are meant."""
    found: dict[_Key, dict[int, ev.Inputs]] = {}
    meant = models.get(rank) if models else None
    for one in rank.of(ev.Inputs):
        if one.digest and (not meant or one.model is None or one.model in meant):
            found.setdefault((one.wrapper, one.model), {})[one.number] = one
    return found


Contributions = Mapping[tuple[int, int, str], sketches.Numbers]
"""By backward() call, model and parameter."""


def contributions(rank: Rank) -> Contributions:
    """What each backward() of a rank has contributed to each parameter."""
    return {
        (one.backward, moments.pieces(rank)[piece].model, moments.pieces(rank)[piece].path): one.sketch
        for window in moments.windows(rank).values()
        for its in window
        for piece, each in its.contributions.items()
        for one in each
    }


def _contribute_alike(ranks: Sequence[Rank]) -> bool | None:
    each = [contributions(rank) for rank in ranks]
    common = set(each[0]).intersection(*each[1:])
    # What is stepped and in no module may be where ranks contribute otherwise.
    if not common or not all(map(_are_known, ranks, each)):
        return None
    return all(sketches.are_alike(each[0][key], other[key]) for key in common for other in each[1:])


def _are_known(rank: Rank, contributed: Contributions) -> bool:
    """Whether it is known of all that a rank steps what backward() contributes to it."""
    stepped = {piece for its in moments.windows(rank).values() for window in its for piece in window.places}
    pieces = moments.pieces(rank)
    return {(pieces[one].model, pieces[one].path) for one in stepped} <= {key[1:] for key in contributed}


def _draws(rank: Rank) -> bool:
    return any(one.where == "forward" and one.consumed for one in rank.of(ev.Stream))
