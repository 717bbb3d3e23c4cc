"""What a loader would give a rank in an epoch, with real samplers and loaders, and nothing disturbed."""

from __future__ import annotations

import random

import msgspec
import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    TensorDataset,
)
from torch.utils.data.distributed import DistributedSampler

from ddpcheck.probes.data import sampler_order
from ddpcheck.probes.data.one_epoch import Epoch
from ddpcheck.probes.digests.sample_fingerprints import fingerprint
from ddpcheck.vocabulary.model import Question
from tests.judging.judged import asserted


def rows(count):
    return TensorDataset(torch.arange(count), torch.arange(count) * 10)


class Augmented(Dataset):
    """A dataset whose samples are other ones each time they are read."""

    def __init__(self, count, noise=lambda: torch.rand(1)):
        self.count, self.noise = count, noise

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return index, self.noise()


class Stream(IterableDataset):
    """A stream of the numbers of one rank."""

    def __init__(self, numbers):
        self.numbers = numbers

    def __iter__(self):
        return iter(self.numbers)


class SizedStream(Stream):
    """A stream that says how many samples all ranks together have."""

    def __init__(self, numbers, size):
        super().__init__(numbers)
        self.size = size

    def __len__(self):
        return self.size


def loaders(dataset, world_size, loader_drops=False, **sampler):
    """One DataLoader with batches of two for each rank, with a DistributedSampler."""
    samplers = [DistributedSampler(dataset, world_size, rank, **sampler) for rank in range(world_size)]
    return [DataLoader(dataset, 2, sampler=one, drop_last=loader_drops) for one in samplers]


def verdict(check, epochs, facts):
    """The judge's findings, its questions answered by each rank's epoch."""
    plain, rounds = msgspec.to_builtins(facts), []
    while isinstance(found := asserted(check, plain, rounds), Question):
        assert found.ask == "occurrences"
        rounds.append([epoch.occurrences(found.about) for epoch in epochs])
    return found


def partition(sources, dataset=None):
    epochs = [Epoch(source, dataset) for source in sources]
    return verdict("shard-partition", epochs, [epoch.shards() for epoch in epochs])


def batch_count(sources):
    epochs = [Epoch(source) for source in sources]
    return verdict("batch-count", epochs, [epoch.batches() for epoch in epochs])


# --- shards


def test_a_loaders_epoch_is_told_sample_by_sample():
    """The samples are fingerprinted in the order of the epoch, each with its index."""
    dataset = rows(10)
    sampler = DistributedSampler(dataset, 2, 1, seed=3)
    sampler.set_epoch(4)
    order = list(sampler)
    facts = Epoch(DataLoader(dataset, 2, sampler=sampler)).shards()
    assert facts.indices == order
    assert facts.prints == [fingerprint(dataset[i]) for i in order]
    assert (facts.size, facts.by_content, facts.drops_batch) == (10, True, False)
    assert msgspec.to_builtins(facts.sampler) == {
        "kind": "DistributedSampler",
        "distributed": True,
        "rank": 1,
        "num_replicas": 2,
        "seed": 3,
        "epoch": 4,
        "shuffle": True,
        "drop_last": False,
        "positions": 5,
    }


def test_a_batch_that_is_dropped_is_told_as_such():
    """With drop_last the samples of the incomplete batch are among the sampler's, and how many they are is told."""
    (loader, _) = loaders(rows(10), 2, loader_drops=True, shuffle=False)
    facts = Epoch(loader).shards()
    assert facts.indices == [0, 2, 4, 6, 8]
    assert (facts.drops_batch, facts.dropped, facts.sampler.positions) == (True, 1, 5)
    (keeping, _) = loaders(rows(10), 2, shuffle=False)
    assert Epoch(keeping).shards().dropped == 0


def test_batches_of_ones_own_show_only_what_they_yield():
    """What a batch sampler of another class leaves out is not known, and not made up."""

    class Batches(BatchSampler):
        pass

    loader = DataLoader(rows(5), batch_sampler=Batches(SequentialSampler(rows(5)), 2, drop_last=True))
    facts = Epoch(loader).shards()
    assert (facts.indices, facts.dropped) == ([0, 1, 2, 3], None)


def test_places_that_show_whether_datasets_are_the_same():
    """Ranks with one dataset tell the same of it, whatever their shards; ranks with others, or other orders, do not."""
    same = [Epoch(loader).shards().probes for loader in loaders(rows(100), 2)]
    assert same[0] == same[1]
    assert len(same[0]) == 8
    assert Epoch(loaders(TensorDataset(torch.arange(100).flip(0)), 2)[0]).shards().probes != same[0]
    assert len(Epoch(loaders(rows(3), 2)[0]).shards().probes) == 3


def test_a_sampler_without_ranks_shares_nothing_out():
    """Ranks that each have a dataset of their own, and read the whole of it, are not compared in it."""
    assert Epoch(DataLoader(rows(4))).shards().probes is None


class OwnHalf(Dataset):
    """Holds the samples of rank 0 alone."""

    def __len__(self):
        return 10

    def __getitem__(self, index):
        if index % 2:
            raise KeyError(index)
        return index


def test_a_dataset_that_cannot_be_read_elsewhere_is_left_alone():
    """That a rank has no other's samples is no error of its own."""
    facts = Epoch(loaders(OwnHalf(), 2, shuffle=False)[0]).shards()
    assert (facts.indices, facts.probes) == ([0, 2, 4, 6, 8], None)


def test_a_sampler_that_drops_says_so():
    """drop_last of the sampler is a fact of the sampler."""
    assert Epoch(loaders(rows(5), 2, drop_last=True)[0]).shards().sampler.drop_last
    assert not Epoch(loaders(rows(5), 2, loader_drops=True)[0]).shards().sampler.drop_last


def test_a_plain_sampler_knows_no_ranks():
    """A sampler without ranks is told by its name."""
    facts = Epoch(DataLoader(rows(4), shuffle=True)).shards()
    assert (facts.sampler.kind, facts.sampler.distributed, facts.sampler.rank) == ("RandomSampler", False, None)
    assert sorted(facts.indices) == [0, 1, 2, 3]


def test_a_sampler_may_be_asked_alone():
    """A DistributedSampler brings its dataset; another sampler is given it."""
    dataset = rows(4)
    assert Epoch(DistributedSampler(dataset, 2, 0, shuffle=False)).shards().indices == [0, 2]
    assert Epoch(SequentialSampler(dataset), dataset).shards().prints == [fingerprint(sample) for sample in dataset]


def test_a_loader_without_batches_is_told_sample_by_sample():
    """batch_size=None leaves batching to somebody else; the epoch's samples are the same."""
    assert Epoch(DataLoader(rows(3), batch_size=None)).shards().indices == [0, 1, 2]


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("size", [6, 7, 8])
def test_correct_loaders_partition_their_dataset(size, world_size, shuffle, drop_last):
    """DistributedSampler in a DataLoader is a partition, with any sizes and drop_last of either."""
    for loader_drops in (False, True):
        assert partition(loaders(rows(size), world_size, loader_drops, shuffle=shuffle, drop_last=drop_last)) == ()


def test_loaders_that_only_shuffle_overlap():
    """The twin: every rank shuffles the whole dataset by itself."""
    (finding,) = partition([DataLoader(rows(6), 2, shuffle=True) for _ in range(2)])
    assert finding.found.startswith("6 of the 12 samples read (50 %)")
    assert finding.cause.startswith("RandomSampler knows nothing of ranks")


def test_equal_rows_are_counted_in_the_dataset():
    """A dataset that holds a row several times is asked how often, and not blamed."""
    dataset = TensorDataset(torch.tensor([1, 1, 1, 2]))
    assert partition(loaders(dataset, 2)) == ()
    epoch = Epoch(loaders(dataset, 2)[0])
    assert epoch.occurrences([fingerprint(dataset[3]), fingerprint(dataset[0]), "unknown"]) == [1, 3, 0]


def test_datasets_in_another_order_are_found_by_content():
    """Disjoint indices into datasets of different orders are no disjoint samples."""
    orders = [torch.arange(8), torch.tensor([1, 0, 3, 2, 5, 4, 7, 6])]
    sources = [
        DataLoader(TensorDataset(order), sampler=DistributedSampler(order, 2, rank, shuffle=False))
        for rank, order in enumerate(orders)
    ]
    (finding,) = partition(sources)
    assert finding.cause.startswith("the datasets' orders differ")


@pytest.mark.parametrize(
    "noise",
    [lambda: torch.rand(1), random.random, lambda: np.random.rand(2), lambda: float(np.random.rand())],
    ids=["torch", "random", "numpy array", "numpy"],
)
def test_augmented_samples_are_judged_by_index(noise):
    """Where a sample is another each time it is read, only its index can tell it."""
    dataset = Augmented(6, noise)
    facts = Epoch(loaders(dataset, 2, shuffle=False)[1]).shards()
    assert not facts.by_content
    assert facts.prints == ["index 1", "index 3", "index 5"]
    assert Epoch(loaders(dataset, 2)[0]).occurrences(["index 1"]) == [1]
    assert partition(loaders(dataset, 2)) == ()
    (finding,) = partition([DataLoader(dataset, 2) for _ in range(2)])
    assert "by index" in finding.expected


OWN = np.random.default_rng(0)


@pytest.mark.parametrize(
    "coin", [lambda: torch.rand(1) < 0.5, lambda: OWN.random() < 0.5], ids=["torch", "a generator of its own"]
)
def test_an_augmentation_by_chance_is_seen_every_time(coin):
    """A flip of half of the samples is told from a constant content in every epoch, and not by luck."""
    dataset = Augmented(40, lambda: int(coin()))
    for seed in range(30):
        torch.manual_seed(seed)
        assert not Epoch(DataLoader(dataset)).shards().by_content


# --- batch samplers


class Buckets(Sampler):
    """A batch sampler that knows of ranks, as libraries write them: whole batches for each rank, padded."""

    def __init__(self, dataset, num_replicas, rank):
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.epoch, self.drop_last = 0, False

    def __iter__(self):
        order = [*range(len(self.dataset)), *range(-len(self.dataset) % self.num_replicas)]
        own = order[self.rank :: self.num_replicas]
        return iter([own[i : i + 2] for i in range(0, len(own), 2)])

    def __len__(self):
        return -(-len(self.dataset) // self.num_replicas // 2)


def test_a_batch_sampler_around_a_distributed_sampler_is_understood():
    """BatchSampler(DistributedSampler(…)) pads as its sampler does, though the loader's own sampler is another."""
    dataset = rows(7)
    sources = [
        DataLoader(dataset, batch_sampler=BatchSampler(DistributedSampler(dataset, 2, rank), 2, False))
        for rank in (0, 1)
    ]
    facts = Epoch(sources[1]).shards()
    assert (facts.sampler.kind, facts.sampler.distributed, facts.sampler.rank) == ("DistributedSampler", True, 1)
    assert partition(sources) == ()


def test_a_batch_sampler_that_drops_is_understood():
    """drop_last of an explicit BatchSampler explains the samples that it drops."""
    dataset = rows(10)
    sources = [
        DataLoader(dataset, batch_sampler=BatchSampler(DistributedSampler(dataset, 2, rank), 2, True))
        for rank in (0, 1)
    ]
    assert partition(sources) == ()


def test_a_batch_sampler_that_knows_of_ranks_is_understood():
    """A batch sampler of the user's own says by num_replicas and rank that it pads."""
    dataset = rows(7)
    sources = [DataLoader(dataset, batch_sampler=Buckets(dataset, 2, rank)) for rank in (0, 1)]
    facts = Epoch(sources[0]).shards()
    assert (facts.sampler.kind, facts.sampler.distributed) == ("Buckets", True)
    assert partition(sources) == ()
    (finding,) = partition([DataLoader(dataset, batch_sampler=Buckets(dataset, 2, 0)) for _ in (0, 1)])
    assert finding.cause == "several ranks have a Buckets for the same rank (0, 0)"


class Padding(Sampler):
    """Every so-many-th sample, evened out by the first ones; its author calls the number of ranks otherwise."""

    def __init__(self, count, name, ranks, rank, own="rank"):
        self.order = [*range(count), *range(-count % ranks)]
        self.mine = self.order[rank::ranks]
        setattr(self, own, rank)
        setattr(self, name, ranks)

    def __iter__(self):
        return iter(self.mine)

    def __len__(self):
        return len(self.order) // 2


@pytest.mark.parametrize("name", ["num_replicas", "world_size", "num_shards", "world"])
def test_a_sampler_that_knows_of_ranks_by_another_name(name):
    """What it repeats to even the ranks out is padding; one without a name for it is told to know nothing of ranks."""
    dataset = rows(7)
    for own in ("rank", "shard_id", "shard_index"):
        assert partition([DataLoader(dataset, sampler=Padding(7, name, 2, rank, own)) for rank in (0, 1)]) == ()
    (finding,) = partition([DataLoader(dataset, sampler=Padding(7, name, 2, 0)) for _ in (0, 1)])
    assert finding.cause == "several ranks have a Padding for the same rank (0, 0)"
    (finding,) = partition([DataLoader(dataset, sampler=Padding(7, "parts", 2, 0)) for _ in (0, 1)])
    assert "knows nothing of ranks" in finding.cause


# --- streams


def test_a_stream_is_taken_apart_into_samples():
    """An iterable dataset has no indices; its batches are read and taken apart."""
    facts = Epoch(DataLoader(Stream([3, 4, 5]), batch_size=2)).shards()
    assert facts.prints == [fingerprint(torch.tensor(n)) for n in (3, 4, 5)]
    assert (facts.indices, facts.size, facts.sampler.kind, facts.sampler.distributed) == (
        None,
        None,
        "DataLoader",
        False,
    )
    assert Epoch(Stream([1])).occurrences(["x"]) is None


def test_streams_are_compared_by_content():
    """Streams that are sharded hold, those that are not overlap."""
    assert partition([DataLoader(Stream(range(rank, 9, 2)), 2) for rank in (0, 1)]) == ()
    (finding,) = partition([DataLoader(Stream(range(9)), 2) for _ in (0, 1)])
    assert finding.found.startswith("9 of the 18 samples read")


def test_a_stream_with_a_length_must_give_all_of_it():
    """What a sized stream leaves out is a gap."""
    assert partition([DataLoader(SizedStream(range(rank, 8, 2), 8), 2) for rank in (0, 1)]) == ()
    (finding,) = partition([DataLoader(SizedStream(range(rank, 6, 2), 8), 2) for rank in (0, 1)])
    assert finding.found == "2 of 8 samples in no rank's epoch"


def test_a_streams_incomplete_batch_may_be_dropped():
    """drop_last of a loader over a sized stream explains what it drops, as over any dataset."""
    sources = [DataLoader(SizedStream(range(rank, 10, 2), 10), 2, drop_last=True) for rank in (0, 1)]
    assert partition(sources) == ()


def test_any_iterable_of_batches_is_an_epoch():
    """Batches in a list are an epoch without a sampler."""
    facts = Epoch([{"x": torch.tensor([1, 2])}, {"x": torch.tensor([3])}]).shards()
    assert facts.prints == [fingerprint({"x": torch.tensor(n)}) for n in (1, 2, 3)]
    assert facts.sampler.kind == "list"


def test_what_cannot_be_iterated_is_no_epoch():
    """Anything else is refused with what was expected."""
    with pytest.raises(TypeError, match="expected a DataLoader, a sampler, or an iterable of batches, and got 5"):
        Epoch(5)


# --- batches


def test_batches_are_counted_with_the_numbers_that_imply_them():
    """A loader's batches are counted, and its sizes are told."""
    (loader, _) = loaders(rows(10), 2, loader_drops=True)
    assert msgspec.to_builtins(Epoch(loader).batches(consumed=1)) == {
        "batches": 2,
        "consumed": 1,
        "size": 10,
        "batch_size": 2,
        "drop_last": True,
        "sampler_drops": False,
        "dataset": "TensorDataset",
        "sampler": "DistributedSampler",
    }


def test_counting_batches_loads_no_sample():
    """Batches of a dataset with indices are counted without reading it."""

    class Unreadable(Dataset):
        def __len__(self):
            return 9

        def __getitem__(self, index):
            raise AssertionError("a sample was read")

    assert Epoch(DataLoader(Unreadable(), 2)).batches().batches == 5


@pytest.mark.parametrize("size", [1, 6, 7])
@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("sampler_drops", [False, True])
def test_correct_loaders_have_the_implied_batches(size, world_size, sampler_drops):
    """DistributedSampler in a DataLoader has the number of batches that the sizes imply."""
    found = batch_count(loaders(rows(size), world_size, drop_last=sampler_drops))
    assert found == () or (sampler_drops and size < world_size)


def test_loaders_without_a_distributed_sampler_have_too_many_batches():
    """The twin: a loader that goes through the whole dataset has more batches than its share."""
    (finding,) = batch_count([DataLoader(rows(8), 2) for _ in (0, 1)])
    assert finding.expected.startswith("2 batches on every rank (8 samples on 2 ranks")


def test_streams_and_batch_samplers_imply_no_number():
    """Where the sizes do not tell, batches are counted alone."""
    for source in (
        DataLoader(Stream(range(5)), 2),
        [1, 2, 3],
        DataLoader(rows(6), batch_sampler=Buckets(rows(6), 2, 0)),
    ):
        facts = Epoch(source).batches()
        assert facts.batches in (2, 3)
        assert facts.size is None or facts.batch_size is None


# --- nothing disturbed


def random_states():
    return (torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state()))


@pytest.mark.parametrize("method", ["shards", "batches"])
@pytest.mark.parametrize(
    "source",
    [
        lambda: DataLoader(Augmented(6, lambda: (torch.rand(1), random.random(), np.random.rand())), 2, shuffle=True),
        lambda: DataLoader(Stream(range(5)), 2),
        lambda: RandomSampler(rows(5)),
    ],
    ids=["augmented", "stream", "sampler"],
)
def test_no_random_state_is_disturbed(method, source):
    """The states of torch's, Python's and numpy's generators are after a look what they were before."""
    source = source()
    before = random_states()
    getattr(Epoch(source), method)()
    assert random_states() == before


def test_looking_twice_tells_the_same():
    """A look uses no epoch up: the next look tells the same order."""
    loader = DataLoader(rows(20), 2, shuffle=True)
    assert Epoch(loader).shards() == Epoch(loader).shards()


def test_the_next_pass_of_a_sampler_is_the_one_that_was_told():
    """A shuffling sampler gives the training the very order that was looked at."""
    sampler = RandomSampler(rows(20))
    told = Epoch(sampler, rows(20)).shards().indices
    assert list(sampler) == told


@pytest.mark.parametrize("where", ["loader", "sampler", "batch sampler"])
def test_the_users_generators_are_not_disturbed(where):
    """A generator that the user gave to a loader or sampler is put back, wherever it is held."""
    generator = torch.Generator().manual_seed(5)
    dataset = rows(20)
    source = {
        "loader": lambda: DataLoader(dataset, 2, shuffle=True, generator=generator),
        "sampler": lambda: DataLoader(dataset, 2, sampler=RandomSampler(dataset, generator=generator)),
        "batch sampler": lambda: DataLoader(
            dataset, batch_sampler=BatchSampler(RandomSampler(dataset, generator=generator), 2, False)
        ),
    }[where]()
    before = generator.get_state()
    Epoch(source).shards()
    assert torch.equal(generator.get_state(), before)
    Epoch(source).batches()
    assert torch.equal(generator.get_state(), before)


def test_states_are_put_back_after_an_error():
    """A dataset that raises leaves no random state disturbed."""

    def broken():
        torch.rand(1)
        random.random()
        np.random.rand()
        raise ZeroDivisionError

    before = random_states()
    with pytest.raises(ZeroDivisionError):
        Epoch(DataLoader(Augmented(3, broken), shuffle=True)).shards()
    assert random_states() == before


def test_a_look_is_no_epoch(monkeypatch):
    """What an assertion reads of a sampler is not on record as a pass of the training."""
    monkeypatch.setattr(DistributedSampler, "__iter__", DistributedSampler.__iter__)
    monkeypatch.setattr(sampler_order, "_watching", False)
    sampler_order.watch()
    (loader, _) = loaders(rows(6), 2)
    list(loader)
    epoch = Epoch(loader)
    epoch.batches()
    epoch.occurrences(epoch.shards().prints)
    assert len(sampler_order.epochs(loader.sampler).passes) == 1
    list(loader)
    assert len(sampler_order.epochs(loader.sampler).passes) == 2
