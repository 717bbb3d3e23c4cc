"""Claim 16 (S1, S2, S4): DistributedSampler gives non-overlapping shards that cover the data, whatever the sizes.

Torch's own sampler is told who it is by arguments, so that every rank's shard
is made in one process, for all sizes and settings; what ddpcheck's judge says
of the shards is compared with dealing the samples out by hand.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
import pytest
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from ddpcheck.checks.shard_partition.assertion import judge
from ddpcheck.probes.data.one_epoch import Epoch
from ddpcheck.vocabulary.model import Finding, Question

Sampler = DistributedSampler[int]


class Case(NamedTuple):
    """A dataset, the ranks that share it, and how they do."""

    size: int
    copies: int
    """How many rows of the dataset are the same: 1 where all are different."""
    world_size: int
    seed: int
    epoch: int
    shuffle: bool
    drop_last: bool
    """The sampler drops the remainder instead of padding."""
    batch_size: int | None
    """None: the sampler is asked by itself, without a loader."""
    drop_last_batch: bool
    culprit: int
    """The rank with the fault, modulo the world size."""
    place: int
    """Where in that rank's order the fault is, modulo the length."""

    @property
    def drops_batches(self) -> bool:
        return self.batch_size is not None and self.drop_last_batch

    @property
    def rows(self) -> list[int]:
        return [number // self.copies for number in range(self.size)]

    def sampler(self, rank: int, kind: type[Sampler] = DistributedSampler, **other: Any) -> Sampler:
        settings_ = {"dataset": self.rows, "rank": rank, "seed": self.seed} | other
        sampler = kind(num_replicas=self.world_size, shuffle=self.shuffle, drop_last=self.drop_last, **settings_)
        sampler.set_epoch(self.epoch)
        return sampler

    def sources(self, samplers: list[Sampler]) -> list[Any]:
        """What each rank would read its samples from: a loader, or the sampler itself."""
        if self.batch_size is None:
            return list(samplers)
        return [
            DataLoader(s.dataset, self.batch_size, sampler=s, drop_last=self.drop_last_batch, collate_fn=list)
            for s in samplers
        ]


def every_case() -> Iterator[Case]:
    """Each size, world size and setting, the smallest first, with the rest by chance: the same ones in every run."""
    rng = random.Random(16)
    settings = itertools.product(range(41), range(1, 7), *[[False, True]] * 3)
    for size, world_size, shuffle, drop_last, loader in settings:
        yield Case(
            size=size,
            copies=rng.choice([1, 1, 1, 3]),
            world_size=world_size,
            seed=rng.randint(0, 2**32),
            epoch=rng.randint(0, 1000),
            shuffle=shuffle,
            drop_last=drop_last,
            batch_size=rng.randint(1, 9) if loader else None,
            drop_last_batch=rng.random() < 0.5,
            culprit=rng.randint(0, 5),
            place=rng.randint(0, 39),
        )


CASES = list(every_case())


def some_cases(number: int) -> list[Case]:
    return [CASES[n] for n in sorted(random.Random(number).sample(range(len(CASES)), number))]


def judged(sources: list[Any]) -> tuple[Finding, ...]:
    """The verdict of ddpcheck's judge, over evidence gathered for each rank in turn."""
    ranks = [Epoch(source) for source in sources]
    said = [msgspec.to_builtins(rank.shards()) for rank in ranks]
    result = judge(said, [])
    if isinstance(result, Question):
        assert result.ask == "occurrences"
        result = judge(said, [[rank.occurrences(result.about) for rank in ranks]])
    assert not isinstance(result, Question)
    return result


def deal(case: Case, sources: list[Any]) -> str:
    """The judge's question answered by brute force: empty if right, or "nothing", "overlap", or "gap".

    The dataset is a pile of cards, with a joker for each position that has to
    be padded. Each sample that a rank's sampler gives is taken off the pile, or
    costs a joker, whether or not the loader drops it afterwards. What is left
    must not be more than the samplers drop of what does not divide.
    """
    jokers = 0 if case.drop_last else -case.size % case.world_size
    dropped = case.size % case.world_size if case.drop_last else 0
    pile = list(case.rows)
    read = 0
    for source in sources:
        for row in samples_given(source):
            if row in pile:
                pile.remove(row)
            else:
                jokers -= 1
        read += len(samples_read(source))
    if read == 0:
        return "nothing"
    if jokers < 0:
        return "overlap"
    return "gap" if len(pile) > dropped else ""


def samples_given(source: Any) -> list[int]:
    """The samples in the order of the sampler."""
    return [source.dataset[index] for index in getattr(source, "sampler", source)]


def samples_read(source: Any) -> list[int]:
    """The samples that come out of the loader, where there is one."""
    return [row for batch in source for row in batch] if isinstance(source, DataLoader) else samples_given(source)


SAYS = {
    "nothing": "nothing was checked",
    "overlap": "to be repetitions",
    "gap": "in no rank's epoch",
    "different": "hold different samples",
    "alone": "have no sample in common",
}


def said_of(sources: list[Any]) -> list[str]:
    return [next(word for word, text in SAYS.items() if text in finding.found) for finding in judged(sources)]


def assert_agreed(case: Case, samplers: list[Sampler]) -> str:
    """The judge finds the harm that dealing finds, if any, and says which it is; returns that."""
    sources = case.sources(samplers)
    harm = deal(case, sources)
    assert said_of(sources) == ([harm] if harm else []), case
    return harm


def test_shards_partition_the_data():
    """Whatever the size, world size, seed, epoch and drop_last, torch's shards are disjoint and cover the dataset."""
    assert len(CASES) == 41 * 6 * 2**3
    for case in CASES:
        samplers = [case.sampler(rank) for rank in range(case.world_size)]
        shards = [list(sampler) for sampler in samplers]
        each = case.size // case.world_size if case.drop_last else math.ceil(case.size / case.world_size)
        given = [index for shard in shards for index in shard]
        assert [len(shard) for shard in shards] == [each] * case.world_size, case
        assert len(set(given)) == min(case.size, len(given)), case  # none twice, or none left out

        harm = assert_agreed(case, samplers)

        nothing_to_read = each == 0 or (case.drops_batches and each < case.batch_size)
        assert harm == ("nothing" if nothing_to_read else ""), case


# --- faults


class IndexTwice(Sampler):
    """Gives one of its indices a second time."""

    culprit = place = 0

    def __iter__(self) -> Iterator[int]:
        order = list(super().__iter__())
        yield from self.spoiled(order) if order and self.rank == self.culprit % self.num_replicas else order

    def spoiled(self, order: list[int]) -> list[int]:
        return [*order, order[self.place % len(order)]]


class IndexInPlaceOfAnother(IndexTwice):
    """Gives its first index in the place of another."""

    def spoiled(self, order: list[int]) -> list[int]:
        order[self.place % len(order)] = order[0]
        return order


class IndexLeftOut(IndexTwice):
    """Leaves one of its indices out, and its length says so."""

    def spoiled(self, order: list[int]) -> list[int]:
        del order[self.place % len(order)]
        return order

    def __len__(self) -> int:
        return max(0, super().__len__() - (self.rank == self.culprit % self.num_replicas))


class IndexLeftOutSilently(IndexLeftOut):
    """Leaves one of its indices out, and its length does not say so."""

    def __len__(self) -> int:
        return super(IndexLeftOut, self).__len__()


def spoiled(kind: type[IndexTwice]) -> Callable[[Case], list[Sampler]]:
    def samplers(case: Case) -> list[Sampler]:
        made = [case.sampler(rank, kind) for rank in range(case.world_size)]
        for sampler in made:
            assert isinstance(sampler, kind)
            sampler.culprit, sampler.place = case.culprit, case.place
        return list(made)

    return samplers


def same_rank_twice(case: Case) -> list[Sampler]:
    culprit = case.culprit % case.world_size
    return [case.sampler(0 if rank == culprit else rank) for rank in range(case.world_size)]


def seed_per_rank(case: Case) -> list[Sampler]:
    return [case.sampler(rank, seed=case.seed + rank) for rank in range(case.world_size)]


def order_per_rank(case: Case) -> list[Sampler]:
    return [case.sampler(rank, dataset=case.rows[rank:] + case.rows[:rank]) for rank in range(case.world_size)]


FAULTS = {
    "index-twice": spoiled(IndexTwice),
    "index-in-place-of-another": spoiled(IndexInPlaceOfAnother),
    "index-left-out": spoiled(IndexLeftOut),
    "index-left-out-silently": spoiled(IndexLeftOutSilently),
    "same-rank-twice": same_rank_twice,
    "seed-per-rank": seed_per_rank,
    "order-of-dataset-per-rank": order_per_rank,
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.few(3)
def test_faults_are_found_whenever_they_do_harm(fault):
    """A planted fault is reported in exactly the cases in which dealing the samples by hand finds it harmful."""
    found = Counter(assert_agreed(case, FAULTS[fault](case)) for case in some_cases(200))
    assert found["overlap"] + found["gap"] >= 25, found


def test_data_of_a_ranks_own_is_found():
    """Shards of equal size that no two ranks take from one dataset are no partition of it, though none overlap."""
    for case in some_cases(300):
        samplers = [case.sampler(rank) for rank in range(case.world_size)]
        culprit = case.culprit % case.world_size
        samplers[culprit] = case.sampler(culprit, dataset=[row + case.size for row in case.rows])
        sources = case.sources(samplers)

        if not any(samples_read(source) for source in sources):
            assert said_of(sources) == ["nothing"], case
        else:
            assert said_of(sources) == {1: [], 2: ["alone"]}.get(case.world_size, ["different"]), case


class NowAndThen(Dataset[Any]):
    """Augments a sample in twenty, by chance, each time it is read."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> float:
        return index + (random.random() if random.random() < 0.05 else 0.0)


def test_rare_augmentation_is_not_taken_for_other_data():
    """Whatever comes of the dice, samples that seldom change are no sign of different datasets."""
    for seed in range(60):
        random.seed(seed)
        dataset = NowAndThen()
        loaders = [DataLoader(dataset, 8, sampler=DistributedSampler(dataset, 2, rank)) for rank in range(2)]
        assert judged(loaders) == ()
