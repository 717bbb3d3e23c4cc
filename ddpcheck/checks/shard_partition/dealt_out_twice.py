"""Samples that a sampler has dealt out to the ranks, and of which each rank takes its own part once more."""

from __future__ import annotations

from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import Finding

ENOUGH = 3
"""Forwards of each rank."""


class _Taken(NamedTuple):
    """What a rank has taken of each batch."""

    rank: Rank
    loader: ev.Loader
    first: ev.Inputs
    times: int


def judge(world: World) -> tuple[int, list[Finding]]:
    """How often all ranks were looked at, and the finding.

    Every rank has to take the part of its own number: half of a batch may be kept
    for something else, but not another half on each rank.
    """
    each = [_taken(rank) for rank in world]
    known = [one for one in each if one is not None]
    if len(known) < 2 or len(known) < len(each) or {one.loader.replicas for one in known} != {len(known)}:
        return 0, []
    if len({one.loader.rank for one in known}) < len(known):
        return 0, []
    return known[0].times, [_finding(known)]


def _taken(rank: Rank) -> _Taken | None:
    """Of a rank that never gives its wrapper anything but its own rows of what a sampler has dealt out to it."""
    loaders = {one.loader: one for one in rank.of(ev.Loader) if one.distributed and (one.replicas or 0) > 1}
    inputs = [one for one in rank.of(ev.Inputs) if one.loader is not None]
    if len(inputs) < ENOUGH or len({one.loader for one in inputs}) > 1:
        return None
    loader = loaders.get(inputs[0].loader or 0)
    if loader is None or not all(_is_own(one, loader.rank or 0, loader.replicas or 0) for one in inputs):
        return None
    return _Taken(rank, loader, inputs[0], len(inputs))


def _is_own(one: ev.Inputs, rank: int, replicas: int) -> bool:
    """Whether these rows of a batch are the part of a rank: every so many, or so many in a row."""
    if not one.rows:
        return False
    first, step, length = one.rows
    in_turn = first == rank and (step == replicas or length == 1) and length == len(range(rank, one.samples, replicas))
    return in_turn or (step == 1 and first == rank * length and length * replicas == one.samples)


def _finding(known: list[_Taken]) -> Finding:
    taken = known[0]
    replicas = taken.loader.replicas or 0
    made = taken.rank.where(taken.loader.sampler_site) or taken.rank.where(taken.loader.site)
    return Finding(
        rule="samples-dealt-out-twice",
        severity="warning",
        ranks=tuple(one.rank.rank for one in known),
        subject=f"the DataLoader over {taken.loader.dataset}",
        expected="each sample that is read to go into the model on the rank that has read it",
        found=f"1/{replicas} of each batch on every rank, in {taken.times} forwards looked at: rank {taken.rank.rank} "
        f"takes {taken.first.rows[2]} of {taken.first.samples} samples, and the rest goes nowhere",
        cause=f"the {taken.loader.sampler} has dealt the samples out to {replicas} ranks, and each rank takes the part "
        "of its number of that once more",
        advice="Let the sampler or the slice deal the samples out, and not both.",
        where=taken.rank.where(taken.first.site),
        count=taken.times,
        proof=((taken.rank.rank, made),) if made is not None else (),
        links=(f"loader {taken.loader.loader}",),
    )
