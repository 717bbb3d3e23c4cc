"""Models that are sharded or wrapped along some dimensions of a mesh, and brought together along no other one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.judging import mesh_names, step_alignment
from ddpcheck.judging.tensor_kinds import elements_in
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import count, listing, ranks_text

ENOUGH = 2
"""Steps after which copies are not the same any more."""

SMALLEST = 32
"""Elements of what may be a part of a model, and no number for a log."""

Key = tuple[int, str, str, tuple[str, ...], int]
"""Which optimizer it is in; its name and kind; how it lies, and which of the parts it is."""


class _Part(NamedTuple):
    """What a rank has of a parameter that is reduced over a group of ranks."""

    rank: Rank
    described: ev.Optimizer
    place: int
    over: frozenset[int]
    """The ranks that it is sharded or reduced among."""

    @property
    def parameter(self) -> ev.Parameter:
        return self.described.parameters[self.place]

    @property
    def begun(self) -> bytes:
        return step_alignment.at(self.described.values, self.place)

    @property
    def rates(self) -> tuple[float, ...]:
        """At the first step."""
        steps = (one for one in self.rank.of(ev.Step) if one.optimizer == self.described.optimizer)
        return next((tuple(one.rates) for one in steps), ())

    def values(self) -> dict[int, bytes]:
        """What it is after each step that was looked at in full."""
        return {
            step.number: value
            for step in self.rank.of(ev.Step)
            if step.optimizer == self.described.optimizer and step.whole
            if (value := step_alignment.at(step.parameters, self.place)) not in (b"", ev.ABSENT, ev.UNSEEN)
        }


def judge(world: World) -> Iterator[Finding]:
    """Of each dimension that is left out, say it once.

    Ranks that differ in nothing but the part of a sequence, or the data, that
    they read train one model, by the names of the mesh. What began as one on
    them, and goes its own way on each, was meant to be one: members of an
    ensemble begin apart, and those of a search have rates of their own.
    """
    lines = mesh_names.copied(world)
    if not lines:
        return
    parts = {rank.rank: _parts(world, rank) for rank in world}
    found: dict[str, list[tuple[list[int], list[_Part]]]] = defaultdict(list)
    for name, ranks in lines:
        apart = _apart(world, [parts[number] for number in ranks])
        if apart:
            found[name].append((ranks, apart))
    for name, each in found.items():
        if len(each) == sum(one == name for one, _ in lines):
            yield _finding(name, each)


def _parts(world: World, rank: Rank) -> dict[Key, _Part]:
    """The parameters that a wrapper, or what has sharded them, reduces over some ranks."""
    found: dict[Key, _Part] = {}
    described = rank.of(ev.Optimizer)
    groups = {one.wrapper: one.group for one in rank.of(ev.Wrapped)}
    meshes = {one.mesh: one for one in rank.of(ev.Mesh)}
    for turn, one in enumerate(described):
        if one.number or sum(other.optimizer == one.optimizer for other in described) > 1:
            continue
        for place, parameter in enumerate(one.parameters):
            over: tuple[int, ...] = ()
            layout = parameter.layout
            if layout is not None and layout.ground == "DTensor" and layout.mesh in meshes:
                over = meshes[layout.mesh].ranks
            elif parameter.wrapper in groups and layout is None:
                over = tuple(it.rank for it in step_alignment.members(world, groups[parameter.wrapper]))
            if rank.rank in over and not parameter.filled:
                lies = layout.placements if layout is not None else ()
                key = (turn, parameter.path, parameter.kind, lies, over.index(rank.rank) if lies else 0)
                found[key] = _Part(rank, one, place, frozenset(over))
    return found


def _apart(world: World, each: list[dict[Key, _Part]]) -> list[_Part]:
    """Those of the first rank that began as one on all of these, in groups of their own, and diverge."""
    found = []
    for key in set(each[0]).intersection(*each[1:]):
        its = [one[key] for one in each]
        if len({one.begun for one in its}) > 1 or its[0].begun in (b"", ev.ABSENT, ev.UNSEEN):
            continue
        if any(one.over & other.over for one, other in combinations(its, 2)):
            continue
        if len({one.rates for one in its}) > 1:
            continue
        values = [one.values() for one in its]
        common = sorted(set(values[0]).intersection(*values[1:]))
        if len(common) < ENOUGH or any(len({one[number] for one in values}) == 1 for number in common):
            continue
        if any(_may_meet(world, one) for one in its):
            return []
        found.append(its[0])
    return sorted(found, key=lambda one: one.place)


def _may_meet(world: World, part: _Part) -> bool:
    """Whether the program may bring it together with ranks beyond those itself, in whatever way.

    What is as large as it may be a change of it: who sends that seldom may have no look at a step right after it.
    """
    size = max(elements_in(part.parameter.kind) // len(part.over), SMALLEST)
    begun = next(step.n for step in part.rank.of(ev.Step) if step.optimizer == part.described.optimizer)
    for call in part.rank.of(ev.Call):
        if call.n > begun and elements_in(call.detail) >= size and _goes_beyond(world, part, call.group):
            return True
    optimizer = part.described.optimizer
    moves = [one for one in part.rank.of(ev.MovedBetween) if one.optimizer == optimizer]
    if not moves or any(part.place in one.moved for one in moves):
        return True
    groups = {
        carried.group
        for record in part.rank.of(ev.Exchanged)
        if record.optimizer == optimizer
        for carried in (*record.carried, *record.parts)
        if carried.place == part.place
    }
    return any(_goes_beyond(world, part, one) for one in groups)


def _goes_beyond(world: World, part: _Part, group: str) -> bool:
    return not part.over.issuperset(it.rank for it in step_alignment.members(world, group))


def _finding(name: str, each: list[tuple[list[int], list[_Part]]]) -> Finding:
    ranks, parts = each[0]
    first = parts[0]
    names = [one.parameter.path or one.parameter.name for one in parts]
    return Finding(
        rule="mesh-dimension-not-reduced",
        severity="warning",
        ranks=tuple(sorted(number for its, _ in each for number in its)),
        subject=names[0],
        expected=f"ranks that differ in {name} alone to train one model: they began with the same numbers",
        found=f"{count(len(names), 'parameter')} that {ranks_text(ranks)} began alike with, reduced among "
        f"{ranks_text(sorted(first.over))} and such groups alone, and other ones on each of them after every step: "
        f"{listing(names)}",
        cause=f"the model was sharded or wrapped over a part of the mesh that leaves out {name}, and nothing adds up "
        "the gradients along it",
        advice=f"Shard or wrap over the mesh with {name} in it, flattened or as replicas; or reduce the gradients "
        f"along {name} before each step.",
        where=_made(first.rank, first.parameter),
        links=(f"optimizer {first.described.optimizer}",),
    )


def _made(rank: Rank, parameter: ev.Parameter) -> CallSite | None:
    """The line that has sharded or wrapped it."""
    if parameter.wrapper is not None:
        return next((rank.where(one.site) for one in rank.of(ev.Wrapped) if one.wrapper == parameter.wrapper), None)
    return next((rank.where(one.site) for one in rank.of(ev.Parallelised) if one.stage is None), None)
