"""The same wrapper, optimizer and step on every rank of a group: what steps are compared by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.evidence import WIDTH
from ddpcheck.judging import happens_before, optimizer_pairing
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.optimizer_pairing import Built, Phases, Steps
from ddpcheck.judging.values_by_key import by_key
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite
from ddpcheck.vocabulary.wording import listing


class Replicas(NamedTuple):
    """One wrapper on all ranks of its group."""

    number: int
    """On the first of them."""
    ranks: list[Rank]
    wrapped: list[ev.Wrapped]
    """Rank by rank."""

    def of(self, rank: Rank) -> int:
        """Its number on one of the ranks."""
        return self.wrapped[self.ranks.index(rank)].wrapper

    @property
    def called(self) -> tuple[int, int]:
        """The first of its ranks, and its number there: no other wrapper has both."""
        return self.ranks[0].rank, self.number

    @property
    def link(self) -> str:
        """The wrapper's name in a finding."""
        return f"wrapper {self.number}"


class Aligned(NamedTuple):
    """One optimizer on all ranks that train with it, as long as it has the same parameters."""

    number: int
    """On the first of them."""
    ranks: list[Rank]
    described: list[ev.Optimizer]
    """Rank by rank, as it was at the first of these steps."""
    steps: list[Steps]
    """Rank by rank: the steps on record."""
    first: bool
    """They begin with its first step."""
    orders: list[list[int] | None]
    """Rank by rank, where the rank itself has each parameter; None where it has them in this order."""

    def common(self) -> Iterator[tuple[int, list[ev.Step]]]:
        """The steps that every rank has on record, in order, each with its number on the first rank."""
        for key in sorted(set(self.steps[0]).intersection(*self.steps[1:])):
            yield self.steps[0][key].number, [steps[key] for steps in self.steps]

    def compared(self) -> Iterator[tuple[int, list[ev.Step]]]:
        """Of these, the ones of which all ranks have looked at the same parts."""
        for number, steps in self.common():
            if all(s.parameters for s in steps) and len({(s.whole, len(s.parameters)) for s in steps}) == 1:
                yield number, steps

    def blind_before(self, number: int) -> str:
        """Of which steps right before one nobody knows what happened in them, as a clause; empty where all were seen.

        They were not compared, or only by a part of every tensor.
        """
        begun = min((step.number for step in self.steps[0].values()), default=number)
        full = [n for n, step in self.compared() if n < number and all(s.whole for s in step)]
        last = max(full, default=begun - 1)
        if last == number - 1:
            return ""
        since = f"since step {last}" if full else "until then"
        return f"not every step was looked at in full {since}, so that they may have parted in any of these"

    def by_wrapper(self, places: Iterable[int] | None = None) -> dict[int | None, set[int]]:
        """Its parameters (those at these places), wrapper by wrapper: each may have a fault of its own."""
        parameters = self.described[0].parameters
        found: dict[int | None, set[int]] = {}
        for place in range(len(parameters)) if places is None else places:
            found.setdefault(parameters[place].wrapper, set()).add(place)
        return found

    def wrapper_links(self, places: Iterable[int] | None = None) -> tuple[str, ...]:
        """The wrappers that hold some of its parameters (those at these places), as links."""
        return tuple(sorted(f"wrapper {one}" for one in self.by_wrapper(places) if one is not None))

    @property
    def kind(self) -> str:
        return self.described[0].kind


@once_per_world
def optimizers(world: World) -> list[Aligned]:
    """The optimizers that stepped on every rank of a group.

    The group is the smallest that one of its wrappers reduces over, or else the
    program itself. What a rank optimizes for itself, again and again within
    its training, is left out.
    """
    by_group: dict[tuple[int, ...], dict[int, list[Built]]] = defaultdict(lambda: defaultdict(list))
    for rank in world:
        groups = {w.wrapper: members(world, w.group) for w in rank.of(ev.Wrapped)}
        for phases in lasting(rank):
            described = phases[0][0]
            over = [groups[p.wrapper] for p in described.parameters if p.wrapper in groups]
            over = over or [members(world, group) for group in _reduced_over(rank, described.optimizer)]
            smallest = min((group for group in over if len(group) > 1), key=len, default=list(world))
            by_group[tuple(r.rank for r in smallest)][rank.rank].append(Built(rank, phases))
    known = common_wrappers(world)
    found: list[Aligned] = []
    for numbers, by_rank in by_group.items():
        ranks = [rank for rank in world if rank.rank in numbers]
        if len(ranks) < 2:
            continue
        for everywhere in optimizer_pairing.paired([by_rank[rank.rank] for rank in ranks], known):
            for place, same in enumerate(zip(*(one.phases for one in everywhere), strict=False)):
                if len({len(described.parameters) for described, _ in same}) == 1:
                    found.append(_aligned(ranks, same, known, place == 0))
    return sorted(found, key=lambda one: (one.ranks[0].rank, one.number))


def _aligned(
    ranks: list[Rank], same: Sequence[tuple[ev.Optimizer, Steps]], known: optimizer_pairing.Wrappers, first: bool
) -> Aligned:
    """One phase of an optimizer, its parameters in the order of the first rank."""
    described, steps = [same[0][0]], [same[0][1]]
    orders: list[list[int] | None] = [None]
    for rank, (one, its) in zip(ranks[1:], same[1:], strict=True):
        order = optimizer_pairing.in_order_of(described[0], one, [known[ranks[0].rank], known[rank.rank]])
        one, its = (one, its) if order is None else optimizer_pairing.reordered(one, its, order)
        described, steps, orders = [*described, one], [*steps, its], [*orders, order]
    return Aligned(described[0].optimizer, ranks, described, steps, first, orders)


def _optimizers(rank: Rank) -> list[Phases]:
    """The optimizers of a rank, in the order of their construction."""
    found: dict[int, Phases] = by_key((one.optimizer, (one, {})) for one in rank.of(ev.Optimizer))
    for step in rank.of(ev.Step):
        phases = found.get(step.optimizer, ())
        of = next((steps for described, steps in reversed(phases) if described.n < step.n), None)
        if of is not None:
            of[step.region, step.place] = step
    return [found[number] for number in sorted(found)]


def _reduced_over(rank: Rank, optimizer: int) -> list[str]:
    """The groups over which the program itself makes an optimizer's gradients the same."""
    carried = [c for one in rank.of(ev.Exchanged) if one.optimizer == optimizer for c in one.carried]
    return list(dict.fromkeys(c.group for c in carried if c.of == "gradient" and c.alike))


def lasting(rank: Rank) -> list[Phases]:
    """A rank's optimizers, without the ones that a line makes anew between the steps of another one.

    Perturbations of inputs and copies of a model that adapt to a task are optimized like this: by each rank alone.
    """
    optimizers = _optimizers(rank)
    by_line: dict[CallSite | None, list[int]] = defaultdict(list)
    spans: dict[int, tuple[int, int]] = {}
    for place, phases in enumerate(optimizers):
        numbers = [s.n for _, steps in phases for s in steps.values()]
        if numbers:
            spans[place] = min(numbers), max(numbers)
        if not any(p.wrapper is not None for described, _ in phases for p in described.parameters):
            by_line[rank.where(phases[0][0].site)].append(place)
    passing: set[int] = set()
    for again in by_line.values():
        around = [span for place, span in spans.items() if place not in again]
        mine = [spans[place] for place in again if place in spans]
        if len(again) > 1 and any(a < first and last < b for first, last in mine for a, b in around):
            passing.update(again)
    return [phases for place, phases in enumerate(optimizers) if place not in passing]


def why_unseen(optimizers: Iterable[Aligned]) -> str:
    """Why nothing of these is compared, where all that they step is of kinds that are not; else empty."""
    every = [p for one in optimizers for described in one.described for p in described.parameters]
    kinds = {p.unseen if p.layout is None else "" for p in every}
    if not kinds or "" in kinds:
        return ""
    return f"ddpcheck does not compare the tensors that the optimizers step ({listing(sorted(kinds))})"


def wrappers(world: World) -> list[Replicas]:
    """The wrappers that every rank of their group has built, matched by the order of their construction."""
    by_group: dict[str, dict[int, list[ev.Wrapped]]] = defaultdict(lambda: defaultdict(list))
    for rank, wrapped in world.of(ev.Wrapped):
        by_group[wrapped.group][rank.rank].append(wrapped)
    found = []
    for group, by_rank in by_group.items():
        ranks = members(world, group)
        each = zip(*(by_rank[rank.rank] for rank in ranks), strict=False)
        found += [Replicas(wrapped[0].wrapper, ranks, list(wrapped)) for wrapped in each]
    return sorted(found, key=lambda one: (one.ranks[0].rank, one.number))


def common_wrappers(world: World) -> dict[int, dict[int, int]]:
    """By rank, and by its own number of a wrapper, which it is of those that all ranks of their group have built."""
    found: dict[int, dict[int, int]] = {rank.rank: {} for rank in world}
    for place, replicas in enumerate(wrappers(world)):
        for rank, wrapped in zip(replicas.ranks, replicas.wrapped, strict=True):
            found[rank.rank][wrapped.wrapper] = place
    return found


Windows = set[tuple[int, int]]
"""Of the run: the number of the optimizer that ends each, and of its step."""


def steps_made(world: World) -> int:
    """Optimizer steps that the rank which came furthest has made, of all its optimizers."""
    return max((_steps_of(rank) for rank in world), default=0)


def _steps_of(rank: Rank) -> int:
    last: dict[int, int] = {}
    for step in rank.of(ev.Step):
        last[step.optimizer] = max(last.get(step.optimizer, 0), step.number + 1)
    return sum(last.values())


def coverage(world: World, windows: Windows, others: int = 0) -> tuple[int, int]:
    """How many windows were compared, and how many there were; ``others`` counts comparisons that belong to no step."""
    made = steps_made(world)
    return len(windows) or min(others, made) or others, made


def members(world: World, group: str) -> list[Rank]:
    """The ranks of a group, by its name; all of them for one that nobody saw being made."""
    wanted = happens_before.members(group, world.world_size)
    return [rank for rank in world if not wanted or rank.rank in wanted]


def differing(digests: Sequence[bytes]) -> list[int]:
    """The places at which the ranks' digests are not all equal; what some rank has not looked at is not among them."""
    first = digests[0]
    if all(d == first for d in digests):
        return []
    length = min(map(len, digests)) // WIDTH
    each = ({d[place * WIDTH : (place + 1) * WIDTH] for d in digests} for place in range(length))
    return [place for place, found in enumerate(each) if len(found) > 1 and ev.UNSEEN not in found]


def are_seen(digests: Sequence[bytes]) -> bool:
    """Whether there is something that every rank has looked at."""
    return any(all(at(d, place) != ev.UNSEEN for d in digests) for place in range(min(map(len, digests)) // WIDTH))


def at(digests: bytes, place: int) -> bytes:
    """One tensor's digest."""
    return digests[place * WIDTH : (place + 1) * WIDTH]
