"""What a program draws for a batch before the forward: noise of its own for samples of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ddpcheck import evidence as ev
from ddpcheck.checks.rng_independence import forward_streams, states
from ddpcheck.checks.rng_independence.states import Drawn
from ddpcheck.facts.readers import readers
from ddpcheck.judging import mesh_names
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import ranks_text

FEW = 4
"""As many numbers may be a choice that all ranks have to make alike: a size, a layer that is left out."""

Alike = tuple[int, ...]


def judge(world: World) -> tuple[int, list[Finding]]:
    """Compare the states between ranks to which a sampler has dealt out other samples."""
    checked, alike = 0, dict[Alike, list[list[Drawn]]]()
    peers = mesh_names.peers(world)
    for group in readers(world):
        each = forward_streams.by_forward(group.ranks, group.models, "batch")
        found: dict[Alike, list[list[Drawn]]] = defaultdict(list)
        for _, drew in sorted(each.items()):
            several = [(rank, one) for rank, one in drew if one.numbers > FEW]
            if len(several) < 2 or not _are_dealt_out(several):
                continue
            checked += len({rank.rank for rank, _ in several}) == len(group.ranks)
            for one in states.equal([states.drawn(rank.rank, its, rank.process) for rank, its in several]):
                ranks = tuple(sorted({d.rank for d in one}))
                if not any(set(ranks) <= set(its) for its in peers):
                    found[ranks].append(one)
        # A single batch that is alike may be a rehearsal.
        alike |= {ranks: ones for ranks, ones in found.items() if len(ones) > 1}
    return checked, [_finding(world, alike)] if alike else []


def _are_dealt_out(several: Sequence[tuple[Rank, ev.Stream]]) -> bool:
    """Whether each rank's batch is from another place of one sampler: no batch of all, of which ranks take a part."""
    places = []
    for rank, stream in several:
        loader = next((one for one in rank.of(ev.Loader) if one.loader == stream.loader), None)
        if loader is None or not loader.distributed:
            return False
        places.append((loader.replicas, loader.rank))
    return len(set(places)) == len(places)


def _finding(world: World, alike: dict[Alike, list[list[Drawn]]]) -> Finding:
    ones = [one for each in alike.values() for one in each]
    first = ones[0][0]
    rank = next(one for one in world if one.rank == first.rank)
    use = rank.where(first.stream.site)
    lines = {str(d.seeded): d.seeded for one in ones for d in one}
    line = next(iter(lines.values())) if len(lines) == 1 else None
    return Finding(
        rule="same-noise-for-batches",
        # Many trainings do so, and learn all the same.
        severity="warning",
        ranks=tuple(sorted({number for ranks in alike for number in ranks})),
        subject="torch's random state",
        expected="random numbers of its own on every rank, for the samples that it alone has",
        found=f"the same state on {' and on '.join(map(ranks_text, alike))} when batches were handed out, and numbers "
        "drawn from it before the forward: the same noise, time steps or augmentation for other samples",
        cause="the seed is the same on these ranks" if line is not None else "their generators were never seeded apart",
        advice=states.APART,
        where=line or use,
        count=len({one[0].stream.number for one in ones}),
        proof=((rank.rank, use),) if use is not None and line is not None and use != line else (),
    )
