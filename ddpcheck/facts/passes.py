"""The passes through the same loader on every rank, side by side: what sharing, order and number are judged by."""

from __future__ import annotations

import array
import itertools
import math
from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.evidence import ABSENT, WIDTH
from ddpcheck.judging import mesh_names
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.step_alignment import members
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite

MANY = 64
"""Passes of a rank that are laid beside each other."""
MOST = 100_000
"""The samples of a pass that are compared with those of other ranks."""


class Sample(NamedTuple):
    """One sample: its index, and the fingerprints of its content and of its label, as far as they are known."""

    place: int | None
    print_: bytes | None
    label: bytes | None


class Pass:
    """One pass on one rank, with all that was handed out in it."""

    def __init__(self, rank: Rank, begun: ev.Pass, loader: ev.Loader | None) -> None:
        self.rank = rank
        self.begun = begun
        self.loader = loader
        self.fetches: dict[int, dict[int, ev.WorkerFetch]] = defaultdict(dict)
        """By worker and number, what worker processes have fetched."""
        self.ended: ev.PassEnded | None = None
        self.batches: list[ev.Batch] = []
        self.collectives = 0
        """Calls between its batches."""
        self.every = 1
        """Of a long pass, one sample in so many is looked at: the same ones on all ranks."""
        self.in_part = False
        """Some of its batches, and of the calls between them, are held no longer."""

    @property
    def where(self) -> CallSite | None:
        return self.rank.where(self.begun.site)

    @property
    def exhausted(self) -> bool:
        return self.ended is not None and self.ended.exhausted

    @property
    def taken(self) -> int:
        """The batches that were handed out."""
        if self.ended is not None:
            return self.ended.batches
        return self.batches[-1].number + 1 if self.batches else 0

    @property
    def backwards(self) -> int:
        """backward() calls between its batches, as far as they are known."""
        if self.ended is not None:
            return self.ended.backwards
        return self.batches[-1].backwards if self.batches else 0

    def is_open(self, at: float) -> bool:
        """Whether it was going on at this ``n``."""
        return self.begun.n < at < self.end

    def is_beside(self, later: Pass) -> bool:
        """Whether batches of it come after those of a pass that has begun later."""
        return bool(self.batches and later.batches) and self.batches[-1].n > later.batches[0].n

    @property
    def is_stream(self) -> bool:
        """Its samples have no places."""
        return self.loader is not None and self.loader.stream

    @cached_property
    def steps(self) -> Counter[int]:
        """How many steps each optimizer makes while it goes on, as far as they are on record."""
        return Counter(one.optimizer for one in self.rank.of(ev.Step) if self.is_open(one.n))

    @property
    def end(self) -> float:
        """The ``n`` at which it was over; infinite while it goes on."""
        return self.ended.n if self.ended is not None else math.inf

    @cached_property
    def samples(self) -> list[Sample]:
        """What is known of the samples that it gave, in order."""
        return [one for batch in self.samples_of_batches for one in batch]

    @cached_property
    def samples_of_batches(self) -> list[list[Sample]]:
        """The same, batch by batch."""
        if self.in_part:
            return []
        by_index: dict[int, deque[Sample]] = defaultdict(deque)
        for by_number in self.fetches.values():
            for _, fetch in sorted(by_number.items()):
                for sample in _samples(fetch) if fetch.indices else ():
                    by_index[sample.place or 0].append(sample)
        in_turn = iter(self._in_turn() if self.fetches and not by_index else ())
        found = []
        for batch in self.batches:
            samples = _samples(batch)
            if not samples and (turn := next(in_turn, None)) is not None:
                samples = _samples(turn)
            if by_index and not batch.prints:
                samples = [_read(by_index.get(sample.place or 0, deque()), sample) for sample in samples]
            found.append([sample for sample in samples if self.every == 1 or _chosen(sample, self.every)])
        return found

    def _in_turn(self) -> Iterator[ev.WorkerFetch]:
        """What workers have fetched of a stream, batch by batch: they take turns, those that have no more left out."""
        turns = deque(sorted(self.fetches))
        place = dict.fromkeys(turns, 0)
        while turns:
            worker = turns.popleft()
            one = self.fetches[worker].get(place[worker])
            if one is None and (place[worker] < max(self.fetches[worker]) or not self.exhausted):
                return  # it was left out of the record, or who is next is not known
            if one is not None:
                place[worker] += 1
                turns.append(worker)
                yield one

    @cached_property
    def by_worker(self) -> list[list[bytes]]:
        """What each worker process has read of a stream; none where it is read by index, or by this process."""
        each = [
            [s.print_ for one in its.values() if not one.indices for s in _samples(one) if s.print_ is not None]
            for its in self.fetches.values()
        ]
        return [prints for prints in each if prints]

    @property
    def whole(self) -> bool:
        """Every sample is known by its index or content."""
        return self.exhausted and len(self.samples) == self._given > 0

    @property
    def _given(self) -> int:
        """How many samples it gave: where the program's own function makes batches, they may have another number."""
        in_streams = [one.samples for its in self.fetches.values() for one in its.values() if not one.indices]
        return sum(in_streams) or (self.ended.samples if self.ended is not None else 0)


def _samples(record: ev.Batch | ev.WorkerFetch) -> list[Sample]:
    indices = array.array("q", record.indices) if len(record.indices) % WIDTH == 0 else array.array("q")
    prints, labels = _cut(record.prints), _cut(record.labels)
    number = max(len(indices), len(prints))
    return [
        Sample(
            indices[place] if len(indices) == number else None,
            prints[place] if len(prints) == number else None,
            labels[place] if len(labels) == number else None,
        )
        for place in range(number)
    ]


def _read(known: deque[Sample], otherwise: Sample) -> Sample:
    """What was read at an index, the first time or once more."""
    if len(known) > 1:
        return known.popleft()
    return known[0] if known else otherwise


def _chosen(sample: Sample, every: int) -> bool:
    return ev.is_chosen(
        sample.place if sample.place is not None else int.from_bytes(sample.print_ or b"", "little"), every
    )


def _cut(prints: bytes) -> list[bytes | None]:
    cut = [prints[start : start + WIDTH] for start in range(0, len(prints), WIDTH)]
    return [one if one != ABSENT else None for one in cut]


class Line:
    """The passes of one loop over one loader, on every rank that had them, in order.

    Loaders are matched by the line that makes them, the line that goes
    through them, and the order of their first use there.
    """

    def __init__(self, passes: dict[int, list[Pass]]) -> None:
        self.passes = passes
        """By rank."""
        self.training = _trained([one for ones in passes.values() for one in ones])
        """There were backward() calls between the batches."""
        longest = max((sum(b.samples for b in one.batches) for ps in passes.values() for one in ps), default=0)
        for ones in passes.values():
            for one in ones:
                one.every = 1 << (longest // MOST).bit_length()

    @property
    def alone(self) -> bool:
        """Every rank trains by itself: a reference, perhaps, for which all of them take the same data.

        Judged by the first pass that is more than a look at one batch: of the first ones, no call is ever left out of
        the record.
        """
        first = [next((one for one in ones if one.taken > 1), ones[0]) for ones in self.passes.values()]
        return all(one.ended is not None and one.taken > 1 and not one.collectives for one in first)

    @property
    def ranks(self) -> list[int]:
        return sorted(self.passes)

    def rounds(self) -> Iterator[tuple[int, dict[int, Pass]]]:
        """The first pass of each rank that had one, the second, and so on."""
        for number in range(max(map(len, self.passes.values()))):
            yield number, {rank: ps[number] for rank, ps in sorted(self.passes.items()) if number < len(ps)}

    @property
    def first(self) -> Pass:
        """The first pass on the lowest rank."""
        return self.passes[self.ranks[0]][0]

    @property
    def loader(self) -> ev.Loader | None:
        return self.first.loader

    @property
    def has_sibling(self) -> bool:
        """Whether another line makes a loader over the same dataset: one for validation has the rest."""
        made = self.first.rank.process.of(ev.Loader)
        mine = self.loader
        return mine is not None and any(o.dataset_id == mine.dataset_id and o.site != mine.site for o in made)

    @property
    def link(self) -> str:
        """The loader's name in a finding."""
        return f"loader {self.first.begun.loader}"


def passes_of(rank: Rank) -> list[Pass]:
    """The passes of one rank, in the order in which they began."""
    loaders = {one.loader: one for one in rank.process.of(ev.Loader)}
    # Where a record may be missing, which pass is the first, the second and so on is not known.
    begun = [one for one in rank.of(ev.Pass) if one.n <= rank.process.whole_to]
    found = {(one.loader, one.number): Pass(rank, one, loaders.get(one.loader)) for one in begun}
    for batch in rank.of(ev.Batch):
        if (batch.loader, batch.pass_) in found:
            found[batch.loader, batch.pass_].batches.append(batch)
    for ended in rank.of(ev.PassEnded):
        if (ended.loader, ended.number) in found and ended.n <= rank.process.whole_to:
            found[ended.loader, ended.number].ended = ended
    _note_fetches(rank, found)
    calls = [call.n for call in rank.of(ev.Call) if call.op not in ("send", "recv", "isend", "irecv")]
    for one in found.values():
        one.in_part = rank.process.lacks(one.begun.n, one.end)
        if one.batches:
            # Not those of a sampler that meets before the first batch.
            one.collectives = bisect_right(calls, one.end) - bisect_right(calls, one.batches[0].n)
    return list(found.values())


def _note_fetches(rank: Rank, found: Mapping[tuple[int, int], Pass]) -> None:
    """Lay what worker processes have fetched beside the passes that it was for."""
    pass_of = worker_passes(found.values())
    for fetch in (one for process in rank.workers for one in process.of(ev.WorkerFetch)):
        known = pass_of(fetch)
        if known is not None:
            known.fetches[fetch.worker][fetch.number] = fetch


def worker_passes(passes: Iterable[Pass]) -> Callable[[ev.WorkerFetch | ev.DatasetValues], Pass | None]:
    """The pass of a rank for which a worker process has written a record; None where that is not known.

    A process that was started afresh knows its base seed only, and counts its passes from 0. Loaders whose generators
    were seeded alike have one seed, and then it is not known for which of them it was.
    """
    by_number: dict[tuple[int | None, int], Pass] = {}
    by_seed: dict[int | None, list[Pass]] = defaultdict(list)
    for one in passes:
        by_number[one.begun.loader, one.begun.number] = one
        by_seed[one.begun.base_seed].append(one)

    def pass_of(record: ev.WorkerFetch | ev.DatasetValues) -> Pass | None:
        if record.loader is not None:
            return by_number.get((record.loader, record.pass_))
        alike = by_seed.get(record.base_seed, [])
        are_one = len({one.begun.loader for one in alike}) == 1
        return alike[record.pass_] if are_one and record.pass_ < len(alike) else None

    return pass_of


@once_per_world
def every_pass(world: World) -> list[list[Pass]]:
    """The passes of each rank."""
    return [passes_of(rank) for rank in world]


@once_per_world
def loops(world: World) -> list[Line]:
    """All loops over loaders that at least one rank has gone through."""
    by_key: dict[tuple[str, str, int], dict[int, list[Pass]]] = defaultdict(dict)
    for rank, passes in zip(world, every_pass(world), strict=True):
        order: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
        for one in passes:
            made = rank.where(one.loader.site) if one.loader is not None else None
            key = (str(made), str(one.where))
            place = order[key].setdefault(one.begun.loader, len(order[key]))
            by_key[key[0], key[1], place].setdefault(rank.rank, []).append(one)
    return [Line(passes) for passes in by_key.values()]


def _trained(passes: Sequence[Pass]) -> bool:
    """Whether a model is trained with these batches; where too little is known, by whether gradients were enabled."""
    known = any((one.ended is not None and one.taken) or one.taken > 1 for one in passes)
    return any(one.backwards for one in passes) or (not known and any(one.begun.grad for one in passes))


@once_per_world
def passes_in_one_epoch(world: World) -> list[tuple[Pass, Pass]]:
    """Passes of one rank that train the same on one dataset, and would share it out between them.

    They go on at one time, of two loaders; or follow each other in one epoch, without a load between them, both left
    before their end, and none that trains the same goes to its end: of two loaders, or of a stream.
    """
    found = []
    for rank, passes in zip(world, every_pass(world), strict=True):
        trained = [one for one in passes if one.backwards and one.taken > 1 and one.loader is not None]
        trained.sort(key=lambda one: one.begun.n)
        loads = [one.n for one in rank.of(ev.StateLoaded)]
        ended = {_model_and_data(one) for one in trained if one.exhausted}
        for one, other in itertools.combinations(trained[:MANY], 2):
            if _model_and_data(one) != _model_and_data(other):
                continue
            are_two = one.begun.loader != other.begun.loader
            if one.is_beside(other):
                found += [(one, other)] if are_two else []
                continue
            loaded = bisect_right(loads, other.begun.n) > bisect_right(loads, one.begun.n)
            is_one_epoch = not loaded and one.begun.epoch == other.begun.epoch and _model_and_data(one) not in ended
            found += [(one, other)] if is_one_epoch and (are_two or one.is_stream) else []
    return found


def _model_and_data(one: Pass) -> tuple[int | None, ...]:
    """The dataset that a pass goes through, and the optimizers that make steps meanwhile."""
    return one.loader.dataset_id if one.loader is not None else None, *sorted(one.steps)


AVERAGING = ("fully_shard", "FullyShardedDataParallel")
"""What averages gradients over the ranks among which it shards a module, and so wants other data on each."""


def shared_passes(lines: Iterable[Line], groups: Iterable[Collection[int]]) -> int:
    """How many passes at least two ranks of a group made together, over all of these loops and groups."""
    return sum(
        sum(len(passes.keys() & set(group)) > 1 for _, passes in line.rounds())
        for line, group in itertools.product(lines, groups)
    )


@once_per_world
def data_groups(world: World) -> tuple[list[list[int]], bool]:
    """The ranks that train one replica each, group by group, and whether a wrapper, or what shards a model, says so.

    Ranks outside of a wrapper's group hold another part of one model, and may have to get the same data.
    """
    groups: set[tuple[int, ...]] = set()
    everyone = tuple(rank.rank for rank in world)
    for _, wrapped in world.of(ev.Wrapped):
        groups.add(tuple(rank.rank for rank in members(world, wrapped.group)))
    declared = [one for _, one in world.of(ev.Parallelised)]
    groups |= {one.ranks for one in declared if one.how in AVERAGING and set(one.ranks) <= set(everyone)}
    if any(set(one) & set(other) for one, other in itertools.combinations(groups, 2)) and not _is_wrapped(world):
        return [], True  # models on several meshes: which of them a loop trains, nobody says
    named = [] if _is_wrapped(world) else mesh_names.readers(world)
    if named and all(any(set(group) <= set(one) for one in named) for group in groups):
        return named, True
    if not groups and declared:
        return [], True  # one copy of the model lies on all of its ranks, which get the same data
    largest: list[list[int]] = []
    for group in sorted(groups, key=len, reverse=True):
        if len(group) > 1 and not any(set(group) & set(one) for one in largest):
            largest.append(list(group))
    return (largest, True) if groups else ([list(everyone)], False)


def _is_wrapped(world: World) -> bool:
    return any(rank.of(ev.Wrapped) for rank in world)


def no_loader(world: World) -> str:
    """That there was nothing to go through, as a reason; empty where there was."""
    return "" if any(rank.of(ev.Loader) for rank in world) else "no DataLoader was seen"
