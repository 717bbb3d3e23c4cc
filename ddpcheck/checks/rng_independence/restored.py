"""Ranks that drew apart until random states were put back, and draw the same from then on."""

from __future__ import annotations

from collections import defaultdict

import xxhash

from ddpcheck import evidence as ev
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import ranks_text

_RESTORES = ("set_rng_state", "setstate", "set_state")

Key = tuple[str, int, int]
"""The kind of stream, the model, and the how-manieth of its forwards."""


def judge(world: World) -> tuple[int, list[Finding]]:
    """How many forwards were compared after a state was put back, and a finding for each line that has done so."""
    forwards = _forwards(world)
    drew: dict[int, bytes] = defaultdict(bytes)
    checked = 0
    found: dict[CallSite, list[tuple[tuple[int, ...], ev.Stream]]] = defaultdict(list)
    for each in forwards.values():
        put_back = {rank.rank: (rank, stream) for rank, stream in each if _is_put_back(rank, stream)}
        alike: dict[bytes, list[int]] = defaultdict(list)
        for number, (_, stream) in put_back.items():
            alike[stream.state].append(number)
        checked += len(put_back) > 1
        for numbers in alike.values():
            if len({drew[number] for number in numbers}) > 1:
                rank, stream = put_back[numbers[0]]
                line = rank.where(stream.seeded)
                if line is not None:
                    found[line].append((tuple(numbers), stream))
        for rank, stream in each:
            drew[rank.rank] = xxhash.xxh3_64_digest(drew[rank.rank] + stream.state)
    return checked, [_finding(world, line, hits) for line, hits in found.items() if len(hits) > 1]


def _forwards(world: World) -> dict[Key, list[tuple[Rank, ev.Stream]]]:
    """What each rank drew in the same forward, in the order of the first rank's."""
    found: dict[Key, list[tuple[Rank, ev.Stream]]] = defaultdict(list)
    for rank in world:
        for stream in rank.of(ev.Stream):
            if stream.where == "forward" and stream.consumed and stream.model is not None:
                found[stream.kind, stream.model, stream.number].append((rank, stream))
    return {key: each for key, each in found.items() if len(each) > 1}


def _is_put_back(rank: Rank, stream: ev.Stream) -> bool:
    return any(word in rank.process.line(stream.seeded) for word in _RESTORES)


def _finding(world: World, line: CallSite, hits: list[tuple[tuple[int, ...], ev.Stream]]) -> Finding:
    numbers, first = hits[0]
    drawn = next(rank for rank in world if rank.rank == numbers[0]).where(first.site)
    groups = " and on ".join(dict.fromkeys(ranks_text(ranks) for ranks, _ in hits))
    return Finding(
        severity="warning",
        ranks=tuple(sorted({number for ranks, _ in hits for number in ranks})),
        subject="the random state that is put back",
        expected="ranks that have drawn other numbers than each other to go on with their own streams",
        found=f"the same state on {groups} since it was put back, and others before: what dropout leaves out is the "
        "same on them now",
        cause="the random state of one rank was restored on several",
        advice="Save the random state of every rank, and let each restore its own.",
        where=line,
        count=len(hits),
        proof=((numbers[0], drawn),) if drawn is not None else (),
    )
