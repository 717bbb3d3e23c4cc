"""One parameter under two names: tied when the model was built, reduced as one, or begun as one table of two stages."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ddpcheck import evidence as ev
from ddpcheck.facts import moments
from ddpcheck.facts.holdings import Ground, Holding, Look, at
from ddpcheck.judging import first_forwards, parameter_history, step_alignment
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.replicated_parameters import lasts
from ddpcheck.judging.tensor_kinds import shape_of
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite
from ddpcheck.vocabulary.wording import count, listing, ranks_text

FEW = 16
"""Elements below which equal numbers may be a coincidence."""
CLOSE = 1e-4
"""The distance of two sketches, over their size, below which whole tensors may be the same numbers."""


class Side(NamedTuple):
    """One of the names that were given the same parameter."""

    rank: Rank
    model: int
    name: str

    def after_steps(self) -> dict[int, tuple[ev.Step, Any]]:
        """By the number of each step that was looked at in full, its digest."""
        return {
            step.number: (step, digest)
            for step, digest in parameter_history.after_steps(self.rank, self.model, self.name)
        }


@once_per_world
def of(world: World) -> list[Holding]:
    """What must be one parameter, or copies of one, under each of its names."""
    return [*_tied(world), *_summed(world), *_tables_of_stages(world)]


def _holding(
    sides: Sequence[Side], histories: Sequence[dict[int, tuple[ev.Step, Any]]], ground: Ground, words: dict[str, str]
) -> Holding:
    common = sorted(set(histories[0]).intersection(*histories[1:]))
    first = sides[0]
    return Holding(
        "names",
        tuple(sorted({side.rank.rank for side in sides})),
        [sides[-1].name],
        [0],
        ground,
        [Look(n, tuple((its[n][1],) for its in histories), _line(first.rank, histories[0][n][0].site)) for n in common],
        empty=lambda _: frozenset({None, ev.ABSENT, ev.UNSEEN}),
        cause="ranks" if len({side.rank for side in sides}) > 1 else "names",
        words={"names": _names(sides), "times": count(len(common), "step"), **words},
        links=(f"model {first.model}",),
    )


def _line(rank: Rank, site: int) -> Callable[[int], CallSite | None]:
    return lambda _: rank.where(site)


def _names(sides: Sequence[Side]) -> str:
    apart = len({side.rank for side in sides}) > 1
    return " and ".join(f"{side.name} (rank {side.rank.rank})" if apart else side.name for side in sides)


# --- tied when the model was built


def _tied(world: World) -> Iterator[Holding]:
    for rank, model in world.of(ev.Model):
        for tie in model.ties:
            if tie.first and tie.second and tie.same:
                sides = [Side(rank, model.model, name) for name in (tie.first, tie.second)]
                yield _holding(sides, [{}, {}], Ground("tied"), {})._replace(looks=[_ONE_TENSOR])
    whole: set[tuple[str, str, str]] = set()
    for words, first, second in (*_on_one_rank(world), *_on_two_ranks(world)):
        one, other = (first_forwards.held(_model(side)).get(side.name) for side in (first, second))
        if one is None or other is None:
            continue
        if _are_comparable(one, other):
            histories = [first.after_steps(), second.after_steps()]
        elif (words, first.name, second.name) not in whole:  # the wholes are the same ones on all ranks
            whole.add((words, first.name, second.name))
            histories = _by_sketches(world, first, second)
        else:
            continue
        yield _holding([first, second], histories, Ground("tied", whom=words, usual="none"), {})


_ONE_TENSOR = Look(0, ((1,), (1,)), lambda _: None)
"""Both names still are those of one tensor."""


def _model(side: Side) -> ev.Model:
    return next(one for one in side.rank.of(ev.Model) if one.model == side.model)


def _on_one_rank(world: World) -> Iterator[tuple[str, Side, Side]]:
    for rank, model in world.of(ev.Model):
        for tie in model.ties:
            if tie.first and tie.second and not tie.same:
                yield tie.words, Side(rank, model.model, tie.first), Side(rank, model.model, tie.second)


def _on_two_ranks(world: World) -> Iterator[tuple[str, Side, Side]]:
    """Ties of which ranks have one name each, as the first and the last stage of a pipeline."""
    firsts: dict[str, list[Side]] = defaultdict(list)
    seconds: dict[str, list[Side]] = defaultdict(list)
    for rank, model in world.of(ev.Model):
        for tie in model.ties:
            if bool(tie.first) != bool(tie.second):
                side = Side(rank, model.model, tie.first or tie.second)
                (firsts if tie.first else seconds)[tie.words].append(side)
    for words, sides in firsts.items():
        for first, second in zip(sides, seconds[words], strict=False):
            yield words, first, second


def _are_comparable(one: ev.Held, other: ev.Held) -> bool:
    """Whether both are the same part of a tensor of the same shape, in memory of its own."""
    if one.kind != other.kind:
        return False
    if one.layout is None or other.layout is None:
        return one.layout is other.layout
    if "FSDP" in (one.layout.ground, other.layout.ground):
        return False
    return (one.layout.placements, one.layout.local) == (other.layout.placements, other.layout.local)


def _by_sketches(world: World, first: Side, second: Side) -> list[dict[int, tuple[ev.Step, Any]]]:
    """Of shards: whether the sketches of both wholes, added up over their pieces on all ranks, are the same."""
    found: list[dict[int, tuple[ev.Step, Any]]] = [{}, {}]
    if first.rank is not second.rank:
        return found
    for step in first.rank.of(ev.Step):
        sketches = [one for side in (first, second) if (one := _sketch(world, side, step)) is not None]
        if len(sketches) == 2:
            apart, *sizes = (float(np.linalg.norm(one)) for one in (sketches[0] - sketches[1], *sketches))
            for side, history in enumerate(found):
                history[step.number] = step, 0 if apart <= CLOSE * max(sizes) else side
    return found


def _sketch(world: World, side: Side, step: ev.Step) -> Any:
    """The sum of the sketches of a parameter's pieces on all ranks after a step; None where one is missing."""
    name = first_forwards.numbered(side.rank)[side.model]
    values = []
    for rank in world:
        window = moments.window(rank, step.optimizer, step.number)
        model = next((model for model, its in first_forwards.numbered(rank).items() if its == name), None)
        pieces = moments.pieces(rank)
        own = [piece for piece, one in pieces.items() if (one.model, one.path) == (model, side.name)]
        if window is None or any(piece not in window.after for piece in own):
            return None
        values += [window.after[piece].sketch for piece in own]
    return sum(values) if values and np.isfinite(values).all() else None


# --- gradients that the program adds up, of parameters at other places of the ranks' optimizers


class _End(NamedTuple):
    """A parameter of one rank whose gradient goes over a group at every step."""

    rank: Rank
    described: ev.Optimizer
    place: int

    @property
    def parameter(self) -> ev.Parameter:
        return self.described.parameters[self.place]

    def steps(self) -> dict[int, tuple[ev.Step, bytes, bytes]]:
        """By number: its gradient on entry, and its value afterwards."""
        found = {}
        for step in self.rank.of(ev.Step):
            if step.optimizer == self.described.optimizer and step.whole:
                gradient, value = at(step.gradients, self.place), at(step.parameters, self.place)
                if not {gradient, value} & {b"", ev.ABSENT, ev.UNSEEN}:
                    found[step.number] = step, gradient, value
        return found


def _summed(world: World) -> Iterator[Holding]:
    """Parameters with the same gradients by a reduction over them.

    Parameters at the same place of the same optimizer are in the ledger of
    tensors: here are those that other ranks have elsewhere, as the first and
    the last stage have a table.
    """
    for ends in _ends(world):
        steps = [one.steps() for one in ends]
        common = sorted(set(steps[0]).intersection(*steps[1:]))
        alike = {number for number in common if len({one[number][1] for one in steps}) == 1}
        histories = [{n: (step, value) for n, (step, _, value) in one.items() if n in alike} for one in steps]
        begun = len({at(one.described.values, one.place) for one in ends}) > 1
        sides = [Side(one.rank, -1, one.parameter.name) for one in ends]
        ranks = ranks_text([one.rank.rank for one in ends])
        names = listing([f"{one.parameter.name} (rank {one.rank.rank})" for one in ends])
        holding = _holding(
            sides,
            histories,
            Ground("reduced", "warning", ranks, usual="none", least=2, is_lasting=True),
            {"names": names},
        )
        yield holding._replace(
            ranks=tuple(one.rank.rank for one in ends),
            cause="start" if begun else "steps",
            links=(f"optimizer {ends[0].described.optimizer}",),
        )


def _ends(world: World) -> Iterator[list[_End]]:
    """The parameters whose gradients go through one call, where they have other places."""
    by_call: dict[tuple[str, int, int], list[_End]] = defaultdict(list)
    for rank, described in world.of(ev.Optimizer):
        records = [one for one in rank.of(ev.Exchanged) if one.optimizer == described.optimizer]
        # An optimizer that was given other parameters meanwhile has other places.
        twice = sum(one.optimizer == described.optimizer for one in rank.of(ev.Optimizer)) > 1
        if described.number or not records or records[0].number or twice:
            continue
        alone = Counter((one.group, one.number) for one in records[0].carried)
        for one in records[0].carried:
            if alone[one.group, one.number] > 1:
                continue  # in a bucket, whose order may be wrong
            if one.of == "gradient" and one.alike and not (one.flat or one.inside) and lasts(records, one):
                by_call[one.group, one.number, one.offset].append(_End(rank, described, one.place))
    for (group, _, _), ends in by_call.items():
        ranks = [rank.rank for rank in step_alignment.members(world, group)]
        parameters = [one.parameter for one in ends]
        plain = all(p.layout is None and p.wrapper is None for p in parameters)
        alike = len({p.kind for p in parameters}) == 1
        places = {(one.place, len(one.described.parameters)) for one in ends}
        if len(ranks) > 1 and [one.rank.rank for one in ends] == ranks and plain and alike and len(places) > 1:
            yield ends


# --- two stages of a pipeline that begin with one and the same table


class _Stage(NamedTuple):
    """A rank of a pipeline with all that it trains."""

    rank: Rank
    models: list[ev.Model]

    @property
    def drawn(self) -> list[tuple[ev.Model, ev.Held]]:
        """Its matrices of numbers that are not all the same."""
        return [
            (model, one)
            for model in self.models
            for one in model.held
            if not (one.buffer or one.filled or one.same_as)
            and one.layout is None
            and len(shape := shape_of(one.kind)) > 1
            and prod(shape) >= FEW
            and one.digest not in (b"", ev.ABSENT, ev.UNSEEN)
        ]

    @property
    def form(self) -> list[tuple[str, str]]:
        """The names and shapes of its parameters: stages have different ones, and copies of one model the same."""
        return sorted((one.name, one.kind) for model in self.models for one in model.held if not one.buffer)


def _tables_of_stages(world: World) -> Iterator[Holding]:
    """One matrix that is the same in two stages, of which all others were drawn differently."""
    for stages in _pipelines(world):
        for one, other in combinations(stages, 2):
            pairs = [
                (mine, its) for mine in one.drawn for its in other.drawn
                if (mine[1].kind, mine[1].digest) == (its[1].kind, its[1].digest)
            ]  # fmt: skip
            if one.form == other.form or len(pairs) != 1:
                continue
            each = zip((one, other), pairs[0], strict=True)
            sides = [Side(of.rank, model.model, held.name) for of, (model, held) in each]
            holding = _holding(
                sides,
                [side.after_steps() for side in sides],
                Ground("stages", "warning", usual="none", is_lasting=True),
                {},
            )
            if any(_may_meet(*side) for side in sides):  # they may differ until then
                holding = holding._replace(looks=[look for look in holding.looks if len({*look.values}) == 1])
            yield holding


def _pipelines(world: World) -> Iterator[list[_Stage]]:
    """The ranks that hold stages of one pipeline: as is declared, or as they send each other activations."""
    stages = {rank.rank: _Stage(rank, models) for rank in world if (models := rank.of(ev.Model))}
    declared = {one.pipeline for _, one in world.of(ev.Parallelised) if one.stage is not None}
    for ranks in declared or _sent(world):
        mine = [stages[number] for number in ranks if number in stages]
        if len(mine) == len(ranks) > 1:
            yield mine


def _sent(world: World) -> set[tuple[int, ...]]:
    """Sets of ranks that send each other something at every step, both ways, and share none of it beyond."""
    found: set[frozenset[int]] = set()
    for rank in world:
        peers = [call.peer for call in rank.of(ev.Call) if call.op in ev.PAIRWISE]
        for peer in set(peers):
            if peer is not None and peers.count(peer) >= 2 * len(rank.of(ev.Step)) > 0:
                mine = frozenset((rank.rank, peer))
                apart = [one for one in found if not one & mine]
                found = {*apart, mine.union(*(one for one in found if one & mine))}
    return {tuple(sorted(one)) for one in found}


def _may_meet(rank: Rank, model: int, name: str) -> bool:
    """Whether a collective of its own goes over a parameter, or its gradient, or it is written to between steps.

    Also without a look at that, as on a device.
    """
    places: dict[int, int] = {}
    for one in rank.of(ev.Optimizer):
        for place, parameter in enumerate(one.parameters):
            if (parameter.model, parameter.path) == (model, name):
                places[one.optimizer] = place
    carried = any(
        places.get(record.optimizer) == one.place
        for record in rank.of(ev.Exchanged)
        for one in (*record.carried, *record.parts)
    )
    looked = [one for one in rank.of(ev.MovedBetween) if one.optimizer in places]
    return carried or not looked or any(places[one.optimizer] in one.moved for one in looked)
