"""R5 among ranks: in one pass, no sample comes to several of them, and each comes to one.

What comes twice so that all ranks have equally many, or full batches, is padding.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from ddpcheck.facts.datasets import Identity, by_index
from ddpcheck.facts.passes import Line, Pass, Sample

SOME = 0.12
"""The part of the samples that may come twice, or not at all, where no sampler of torch's says how it evens out."""
NEARLY_ALL = 0.9
CHANCE = 4
"""So many more pairs between two readers than within them may come of data that hold a sample twice."""
AT_LEAST = 4
"""Samples; fewer that are equal may be so by chance."""

UNRECOGNISED = "it was not seen which ranks read the same: samples may look different each time they are read"
REPLACED = "samples of one rank look alike or come several times, and it was not seen which ranks read the same"
IN_PART = "samples came to no rank in an epoch, and it was not seen whether the sampler leaves them out on purpose"
"""Why nothing was checked."""

UNAWARE = ("RandomSampler", "SequentialSampler")
"""Samplers of torch's that know nothing of ranks."""
_LEAVE_OUT = (*UNAWARE, "SubsetRandomSampler", "WeightedRandomSampler")
"""torch's samplers that know of no ranks, or leave samples out on purpose."""

Draw = dict[int, list[Hashable]]
"""By rank: what stands for each sample, in order."""


class Overlap(NamedTuple):
    """Samples that came on several ranks in one round of passes."""

    number: int
    """The round."""
    compared: int
    surplus: int
    padding: int
    ranks: tuple[int, ...]
    example: str
    on: tuple[int, ...]
    by_index: bool
    in_order: bool = False
    """The ranks had the same samples in the same order."""
    certain: bool = True
    """So many are not given twice on purpose."""


class Gap(NamedTuple):
    """Samples that came to no rank in one round of passes."""

    number: int
    size: int
    """Of the dataset."""
    example: int


class Epoch(NamedTuple):
    """What a sampler of the user's own has given all ranks in one round of passes, each to its end."""

    size: int
    """Of the dataset."""
    given: frozenset[int]
    again: int
    """How often a rank came to a sample that it had had already."""
    batch: int
    """The samples of the largest batch."""
    ranks: int
    buckets: bool
    """It makes whole batches."""

    @property
    def padding(self) -> int:
        """How many samples may come twice, so that all ranks have equally many, or full batches."""
        return -self.size % (self.ranks * self.batch)

    @property
    def dropped(self) -> float:
        """Fewer than this may be left out: an incomplete batch of each rank."""
        return self.ranks * self.batch + (SOME * self.size if self.buckets else 0)


def own_epoch(passes: Mapping[int, Pass]) -> Epoch | None:
    """What a sampler of the user's own gave; None where another one did, or where not all of it is known."""
    first = next(iter(passes.values())).loader
    if first is None or not first.size or not all(one.batches for one in passes.values()):
        return None
    for one in passes.values():
        loader = one.loader
        if loader is None or loader.size != first.size or loader.repeats or loader.sampler in _LEAVE_OUT:
            return None
        if not one.whole or (loader.sampler == "DistributedSampler" and not loader.batch_sampler):
            return None
    places = [[s.place for s in one.samples if s.place is not None] for one in passes.values()]
    if any(len(given) < len(one.samples) for given, one in zip(places, passes.values(), strict=True)):
        return None
    return Epoch(
        size=first.size,
        given=frozenset(place for given in places for place in given),
        again=sum(len(given) - len(set(given)) for given in places),
        batch=max(b.samples for one in passes.values() for b in one.batches),
        ranks=len(passes),
        buckets=bool(first.batch_sampler),
    )


def is_beyond_padding(epoch: Epoch, surplus: int) -> bool:
    """Whether shares of the whole dataset overlap by more than would even them out."""
    covers = epoch.size - len(epoch.given) < epoch.dropped
    return covers and not epoch.again and not epoch.buckets and surplus > epoch.padding


def in_part(line: Line, epochs: Mapping[int, Epoch], identity: Identity) -> set[int]:
    """The numbers of the epochs in which samples came to no rank that nothing is known to explain."""
    if identity.different or line.has_sibling:
        return set()
    return {
        number
        for number, epoch in epochs.items()
        if epoch.again < epoch.ranks * epoch.batch and epoch.size - len(epoch.given) >= epoch.dropped
    }


def in_part_of_stream(rounds: Mapping[int, Mapping[int, Pass]]) -> set[int]:
    """The numbers of the passes through a stream that give less than others do: whether they are to is not known.

    More than an incomplete batch of each rank has to be missing.
    """
    given = {
        number: {sample.print_ for one in passes.values() for sample in one.samples}
        for number, passes in rounds.items()
        if all(one.whole and one.is_stream for one in passes.values())
    }
    every = set().union(*given.values())
    batch = max((b.samples for its in rounds.values() for one in its.values() for b in one.batches), default=0)
    ranks = max(map(len, rounds.values()), default=0)
    return {number for number, prints in given.items() if len(every - prints) > ranks * batch}


def overlap_of(
    number: int, passes: Mapping[int, Pass], identity: Identity, single: Collection[Hashable]
) -> Overlap | str:
    """What several ranks had in one round; else why that was not seen, or nothing where they had nothing in common."""
    indexed = by_index(list(passes.values()), identity)
    stands: Callable[[Sample], Hashable | None] = (lambda s: s.place) if indexed else (lambda s: s.print_)
    draw: Draw = {
        rank: [key for s in one.samples if (key := stands(s)) is not None] for rank, one in sorted(passes.items())
    }
    if sum(1 for keys in draw.values() if keys) < 2:
        return UNRECOGNISED
    loaders = [one.loader for one in passes.values()]
    replaces = any(loader is not None and loader.repeats for loader in loaders)
    padding = _padding(passes)
    epoch = None if replaces else _one_epoch(draw, loaders[0], padding or 0)
    if epoch is None:
        return _same_sequence(number, passes, draw, indexed) or REPLACED
    again = sum(n - 1 for keys in epoch.values() for key, n in Counter(keys).items() if indexed or key not in single)
    seen = Counter(key for keys in epoch.values() for key in set(keys))
    surplus = sum(n - 1 for n in seen.values())
    possible = sum(len(set(keys)) for keys in epoch.values()) - max(len(set(keys)) for keys in epoch.values())
    # Data may hold a sample twice, and then there are such pairs within a rank as well as between ranks.
    chance = 0 if indexed else CHANCE * again * (len(epoch) - 1)
    read = sum(map(len, epoch.values()))
    allowed = padding if padding is not None else _allowed(passes, read)
    # Where data are few, what evens ranks out may be all of them.
    nearly_all = surplus >= max(NEARLY_ALL * possible, chance) and possible >= max(2 * AT_LEAST, read / 4)
    wrong = (surplus > allowed + chance or nearly_all) and (indexed or surplus >= AT_LEAST)
    doubted = not wrong and indexed and padding is None and surplus >= AT_LEAST
    own = own_epoch(passes) if doubted else None
    doubtful = own is not None and is_beyond_padding(own, surplus)
    if not wrong and not doubtful:
        return "" if identity.same or identity.stable else UNRECOGNISED
    explained = own.padding if own is not None else padding or 0
    found = _described(number, passes, epoch, {key for key, n in seen.items() if n > 1}, surplus, explained, indexed)
    return found._replace(certain=wrong)


def _described(
    number: int,
    passes: Mapping[int, Pass],
    draw: Draw,
    repeated: set[Hashable],
    surplus: int,
    padding: int,
    by_index: bool,
    in_order: bool = False,
) -> Overlap:
    owners: dict[Hashable, list[int]] = defaultdict(list)
    for rank, keys in draw.items():
        for key in dict.fromkeys(keys):
            if key in repeated:
                owners[key].append(rank)
    example, on = next(iter(owners.items()))
    return Overlap(
        number=number,
        compared=sum(map(len, draw.values())),
        surplus=surplus,
        padding=padding,
        ranks=tuple(sorted({rank for ranks in owners.values() for rank in ranks})),
        example=_name(passes, example, by_index),
        on=tuple(on),
        by_index=by_index,
        in_order=in_order,
    )


def _name(passes: Mapping[int, Pass], key: Hashable, by_index: bool) -> str:
    """A sample for a person: its index on the first rank that has it."""
    if by_index:
        return f"sample {key}"
    for one in passes.values():
        for sample in one.samples:
            if sample.print_ == key and sample.place is not None:
                return f"sample {sample.place}"
    for one in passes.values():
        for number, sample in enumerate(one.samples):
            if sample.print_ == key:
                ordinal = {0: "first", 1: "second", 2: "third"}.get(number, f"{number + 1}th")
                return f"the {ordinal} sample of rank {one.rank.rank}"
    return "a sample"


def _padding(passes: Mapping[int, Pass]) -> int | None:
    """How many samples torch's own sampler gives twice, so that all ranks have equally many; None for another."""
    loaders = [one.loader for one in passes.values()]
    first = loaders[0]
    if first is None or any(
        one is None
        or one.sampler != "DistributedSampler"
        or one.batch_size is None
        or one.replicas != len(loaders)
        or one.size != first.size
        for one in loaders
    ):
        return None
    return 0 if first.sampler_drops or first.size is None else -first.size % len(loaders)


def _allowed(passes: Mapping[int, Pass], read: int) -> float:
    """How many samples may come twice where no sampler of torch's says how it evens the ranks out.

    A batch of each but one, or a part of all; and what they read beyond the size of their dataset, if that is little.
    """
    batch = max((b.samples for one in passes.values() for b in one.batches), default=0)
    sizes = {one.loader.size for one in passes.values() if one.loader is not None}
    size = sizes.pop() if len(sizes) == 1 else None
    beyond = read - size if size else 0
    is_little = size and 0 < beyond <= max(len(passes) * batch, 2 * SOME * size)
    return max((len(passes) - 1) * batch, SOME * read) + (beyond if is_little else 0)


def _one_epoch(draw: Draw, loader: Any, padding: int) -> Draw | None:
    """The part of the passes in which no rank comes to a sample again; None where samples are drawn over and over.

    A sampler that never ends goes through many epochs in one pass.
    """
    repeated = {rank: _first_repetition(keys) for rank, keys in draw.items()}
    again = sum(len(keys) - len(set(keys)) for keys in draw.values())
    if again <= max(padding, SOME * sum(map(len, draw.values()))):
        return draw
    cut = min(place for place in repeated.values() if place is not None)
    if loader is not None and loader.size:
        share = loader.size // len(draw)
        if cut < share // 2:
            return None
        cut = min(cut, share)
    return {rank: keys[:cut] for rank, keys in draw.items()} if cut >= 2 * AT_LEAST else None


def _first_repetition(keys: Sequence[Hashable]) -> int | None:
    seen: set[Hashable] = set()
    for number, key in enumerate(keys):
        if key in seen:
            return number
        seen.add(key)
    return None


def _same_sequence(number: int, passes: Mapping[int, Pass], draw: Draw, by_index: bool) -> Overlap | None:
    """Ranks that draw with replacement, and draw the same."""
    groups: dict[tuple[Hashable, ...], list[int]] = defaultdict(list)
    shortest = min(len(keys) for keys in draw.values() if keys)
    for rank, keys in draw.items():
        if len(set(keys[:shortest])) >= AT_LEAST:
            groups[tuple(keys[:shortest])].append(rank)
    equal = [(keys, ranks) for keys, ranks in groups.items() if len(ranks) > 1]
    if not equal:
        return None
    sequence, ranks = equal[0]
    part = {rank: list(sequence) for rank in ranks}
    return _described(number, passes, part, set(sequence), len(sequence) * (len(ranks) - 1), 0, by_index, in_order=True)


def gap_of(passes: Mapping[int, Pass]) -> Gap | None:
    """What torch's own sampler leaves out beyond what it and its loader may drop."""
    loaders = [one.loader for one in passes.values()]
    first = loaders[0]
    if first is None or first.size is None or not all(one.whole for one in passes.values()):
        return None
    if any(
        one is None or one.sampler != "DistributedSampler" or one.batch_size is None or one.size != first.size
        for one in loaders
    ):
        return None
    indices = {s.place for one in passes.values() for s in one.samples if s.place is not None}
    if not indices:
        return None
    world = len(passes)
    allowed = first.size % world if first.sampler_drops else 0
    if first.drop_last:
        allowed += world * ((first.batch_size or 1) - 1)
    left_out = first.size - len(indices)
    if left_out <= allowed:
        return None
    return Gap(left_out, first.size, next(i for i in range(first.size) if i not in indices))
