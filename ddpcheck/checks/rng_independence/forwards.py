"""The random states that forwards in training drew from: other ones where ranks read other data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ddpcheck.checks.rng_independence import forward_streams
from ddpcheck.checks.rng_independence.forward_streams import Which, Whose
from ddpcheck.checks.rng_independence.states import Drawn, Hits, drawn, equal
from ddpcheck.facts.readers import readers
from ddpcheck.judging import mesh_names
from ddpcheck.judging.first_forwards import numbered
from ddpcheck.judging.world import Rank, World


def of_all(world: World) -> dict[str, Hits]:
    """By the link of a wrapper or a model: where ranks drew from the same state that must not."""
    found: dict[str, Hits] = defaultdict(Hits)
    for group in readers(world):
        each = _by_forward(group.ranks, group.models)
        for its in sorted({which[0] for which in each}):
            hits = Hits()
            for which in sorted(which for which in each if which[0] == its):
                _compare(world, each[which], len(group.ranks), hits)
            _add(found[_link(group.ranks[0], its)], hits)
    for link, hits in _made_equal(world):
        if not found[link].equal:
            _add(found[link], hits)
    return {link: hits for link, hits in found.items() if hits.compared}


def _compare(world: World, several: Sequence[Drawn], ranks: int, hits: Hits) -> None:
    drew = len({one.rank for one in several})
    hits.compared += drew > 1
    hits.complete += drew == ranks > 1
    peers = mesh_names.peers(world)
    hits.equal += [one for one in equal(several) if not any({d.rank for d in one} <= set(group) for group in peers)]


def _add(found: Hits, hits: Hits) -> None:
    """Take these up; a single forward that is alike among others may be a rehearsal."""
    found.compared += hits.compared
    found.complete += hits.complete
    if len(hits.equal) > 1 or hits.compared == 1:
        found.equal += hits.equal


def _by_forward(ranks: Iterable[Rank], models: Mapping[Rank, set[int]] | None = None) -> dict[Which, list[Drawn]]:
    each = forward_streams.by_forward(ranks, models)
    return {which: [drawn(rank.rank, one, rank.process) for rank, one in drew] for which, drew in each.items()}


def _link(rank: Rank, whose: Whose) -> str:
    if whose[0] == "wrapper":
        return f"wrapper {whose[2]}"
    return f"model {next(number for number, name in numbered(rank).items() if name == whose[1:])}"


# --- what was apart, and is alike


def _made_equal(world: World) -> Iterator[tuple[str, Hits]]:
    """Ranks whose forwards drew from other states, until one state was put back on several of them."""
    each = _by_forward(world)
    alike: dict[tuple[int, ...], dict[Which, list[Drawn]]] = defaultdict(dict)
    for which, several in each.items():
        for one in equal([d for d in several if d.restored]):
            if which[0][0] == "model" and len({(d.seeded, d.seed) for d in one}) == 1 and one[0].seed:
                alike[tuple(d.rank for d in one)][which] = one
    for numbers, by_forward in alike.items():
        kinds = {(whose[1], kind) for whose, kind, _ in by_forward}
        before = [
            [d for d in several if d.rank in numbers]
            for (whose, kind, _), several in each.items()
            if (whose[1], kind) in kinds and all(not d.restored for d in several if d.rank in numbers)
        ]
        before = [one for one in before if len(one) == len(numbers)]
        if len(before) > 1 and len(by_forward) > 1 and not any(equal(one) for one in before):
            hits = Hits()
            hits.compared, hits.equal = len(by_forward), list(by_forward.values())
            rank = next(rank for rank in world if rank.rank == numbers[0])
            yield _link(rank, next(iter(by_forward))[0]), hits
