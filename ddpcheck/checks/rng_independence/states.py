"""Random states that were drawn from, and where they were equal."""

from __future__ import annotations

from collections.abc import Sequence

from ddpcheck import evidence as ev
from ddpcheck.judging.values_by_key import by_key
from ddpcheck.judging.world import Process
from ddpcheck.vocabulary.model import CallSite, Struct

APART = (
    "Seed each rank apart after the model is built: torch.manual_seed(seed + rank), and numpy and random likewise. "
    "What ranks have to draw alike (a shuffled order) needs a generator of its own."
)


class Drawn(Struct, frozen=True, kw_only=True):
    """A random state that was drawn from, and where it came from."""

    rank: int
    stream: ev.Stream
    seeded: CallSite | None
    """The line that last set it."""
    seed: str
    restored: bool
    """That line has put a state back that was kept."""
    place: int = 0
    """Of a fetch: the how-manieth pass of its loop."""


class Hits:
    """Where states were equal that must differ, of one loop, wrapper or model."""

    def __init__(self) -> None:
        self.compared = 0
        """Moments at which two ranks or more drew."""
        self.complete = 0
        """Of these, the ones at which all did."""
        self.equal: list[list[Drawn]] = []
        """On several ranks."""
        self.repeated: list[list[Drawn]] = []
        """In several passes of one rank."""
        self.by_sample = False
        """Some were left out, since the samples set them."""

    @property
    def all(self) -> list[list[Drawn]]:
        return [*self.equal, *self.repeated]

    @property
    def times(self) -> int:
        """The moments at which states were equal: on several ranks, or else in several passes."""
        moments = {(d.stream.kind, d.place, d.stream.worker, d.stream.number) for d, *_ in self.equal}
        return len(moments) or len(self.repeated)

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted({drawn.rank for hit in self.all for drawn in hit}))

    def culprits(self) -> list[CallSite]:
        """The lines that set the states to the same: each set each of its states by one seed."""
        found = {}
        for hit in self.all:
            first = hit[0]
            if first.seeded is not None and first.seed and len({(d.seeded, d.seed) for d in hit}) == 1:
                found[str(first.seeded)] = first.seeded
        return list(found.values())

    @property
    def restored(self) -> bool:
        return any(drawn.restored for hit in self.equal for drawn in hit)


def equal(several: Sequence[Drawn]) -> list[list[Drawn]]:
    """Those of them that are the same."""
    by_state = by_key((one.stream.state, one) for one in several)
    return [alike for alike in by_state.values() if len(alike) > 1]


def drawn(
    rank: int, stream: ev.Stream, process: Process, place: int = 0, given: tuple[CallSite | None, str] | None = None
) -> Drawn:
    """A record of a random state, with the line that has set it; ``given``: one that is known otherwise."""
    seeded, seed = process.where(stream.seeded), stream.seed
    if seeded is None and given is not None:
        seeded, seed = given
    return Drawn(rank=rank, stream=stream, seeded=seeded, seed=seed, restored=seed.startswith(ev.STATE), place=place)
