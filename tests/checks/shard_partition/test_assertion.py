"""The judge of shards, over samples written by hand, and against a count of every sample."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ddpcheck.evidence.epochs import SamplerFacts, ShardFacts
from ddpcheck.vocabulary.model import Finding, Question
from tests.judging.judged import asserted

EXPECTED = "each sample of the dataset in the epoch of one rank"
SAMPLER = "Give the DataLoader sampler=DistributedSampler(dataset), and leave its own shuffle off."
SEEDS = (
    "Build the sampler after the process group exists, with the same seed on every rank, over a dataset whose order is "
    "the same everywhere, and call set_epoch with the same epoch."
)
RANKS = "Make the sampler for as many ranks as there are, each with its own rank from 0 to world_size - 1."


SAMPLER_FIELDS = ("kind", "distributed", "seed", "epoch", "shuffle", "drop_last", "positions")
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def shard(rank, world_size, indices, dataset=LETTERS, **more):
    """One rank's epoch of a DistributedSampler, over a dataset with a content for each index."""
    own = {"kind": "DistributedSampler", "distributed": True}
    own |= {name: more.pop(name) for name in SAMPLER_FIELDS if name in more}
    if own["distributed"]:
        own |= {"rank": rank, "num_replicas": world_size}
    prints = [dataset[i] for i in indices]
    return ShardFacts(sampler=SamplerFacts(**own), prints=prints, indices=list(indices), size=len(dataset), **more)


def shards(*indices, **more):
    return [shard(rank, len(indices), one, **more) for rank, one in enumerate(indices)]


def unaware(*indices, **more):
    """Epochs of a sampler that knows nothing of ranks."""
    return shards(*indices, kind="RandomSampler", distributed=False, **more)


def stream(*prints, **more):
    return [ShardFacts(sampler=SamplerFacts(kind="Stream"), prints=list(p), **more) for p in prints]


def ask(facts, *rounds):
    return asserted("shard-partition", msgspec.to_builtins(facts), rounds)


def settle(facts, dataset=None):
    """The findings, where every rank's dataset holds each sample as often as ``dataset`` does, or once."""
    found = ask(facts)
    if isinstance(found, Question):
        assert found.ask == "occurrences"
        held = Counter(dataset)
        answer = [held[p] if dataset is not None else 1 for p in found.about]
        found = ask(facts, [answer] * len(facts))
    return found


def only(found):
    (finding,) = found
    return finding


# --- silent


@pytest.mark.parametrize(
    "indices", [([0, 2], [1, 3]), ([3, 0], [2, 1]), ([0, 1, 2, 3],), ([0], [1], [2], [3]), ([0, 1, 2, 3], [])]
)
def test_a_partition_holds(indices):
    """Disjoint shards that cover the dataset hold, in any order, and nobody is asked more."""
    assert ask(shards(*indices, dataset="wxyz")) == ()


def test_a_partition_needs_no_distributed_sampler():
    """Shards are judged by their samples, not by the sampler's name."""
    assert ask(unaware([0, 1], [2, 3], dataset="wxyz")) == ()


def test_one_rank_reads_everything():
    """With one rank a plain sampler is right."""
    assert ask(unaware([2, 0, 1], dataset="xyz")) == ()


def test_padding_is_no_overlap():
    """Samples that a DistributedSampler repeats to even the ranks out are told apart from an overlap."""
    assert settle(shards([0, 2, 4], [1, 3, 0], dataset="vwxyz")) == ()


def test_padding_of_a_tiny_dataset_repeats_a_sample_often():
    """A dataset smaller than the world is padded with the same sample more than once."""
    assert settle(shards([0], [0], [0], dataset="x")) == ()


def test_a_sampler_that_drops_may_leave_the_remainder():
    """With the sampler's drop_last, the samples that do not divide evenly are missing by design."""
    assert ask(shards([0, 2], [1, 3], dataset="vwxyz", drop_last=True)) == ()


def test_a_loader_that_drops_may_leave_incomplete_batches():
    """With the loader's drop_last, each rank's incomplete last batch is missing by design."""
    assert ask(shards([0, 2], [1, 3], dataset="uvwxyz", drops_batch=True, positions=3)) == ()


def test_dropping_and_padding_go_together():
    """Padding in the batch that is dropped neither hides nor makes a gap."""
    assert settle(shards([0, 2], [1, 3], dataset="vwxyz", drops_batch=True, positions=3)) == ()


def test_equal_rows_of_the_dataset_are_no_overlap():
    """A content that the dataset itself holds twice may be read twice."""
    facts = shards([0, 2], [1, 3], dataset="xxyz")
    assert ask(facts) == Question(ask="occurrences", about=["x"])
    assert settle(facts, "xxyz") == ()


def test_a_stream_without_repetitions_holds():
    """A stream of unknown size holds as long as nothing comes twice."""
    assert ask(stream("abc", "de")) == ()


def test_a_dataset_in_another_order_may_still_be_partitioned():
    """What counts is the content: the same index may be another sample, as long as none comes twice."""
    facts = [shard(0, 2, [0, 1], dataset="wxyz"), shard(1, 2, [0, 1], dataset="yzwx")]
    assert ask(facts) == ()


def test_a_dataset_that_is_longer_than_its_length_is_no_gap():
    """More samples than the dataset's length says are not fewer."""
    assert ask(stream("abc", "de", size=4)) == ()


# --- what it asks


def test_repeated_samples_are_asked_about():
    """Every rank is asked how often its dataset holds the samples that come twice, and no others."""
    question = ask(shards([0, 1, 2], [1, 2, 3], dataset="wxyz"))
    assert question.ask == "occurrences"
    assert sorted(question.about) == ["x", "y"]


# --- overlaps


def test_a_missing_sampler_is_an_overlap():
    """Ranks that all go through the dataset are told that their sampler knows nothing of ranks."""
    facts = unaware([0, 1, 2, 3], [3, 2, 1, 0], dataset="wxyz")
    assert settle(facts) == (
        Finding(
            check="shard-partition",
            rule="shard-partition/repeated-samples",
            severity="error",
            ranks=(0, 1),
            subject="sample 0",
            expected=EXPECTED,
            found="4 of the 8 samples read (50 %) to be repetitions; for example sample 0, seen by ranks 0 and 1",
            cause="RandomSampler knows nothing of ranks, so each rank goes through the whole dataset",
            advice=SAMPLER,
        ),
    )


def test_only_the_ranks_with_repetitions_are_named():
    """Ranks whose samples nobody else reads are not among the finding's."""
    finding = only(settle(shards([0, 1], [2, 3], [4, 0], dataset="uvwxyz")))
    assert finding.ranks == (0, 2)
    assert finding.found.startswith("1 of the 6 samples read (17 %) to be repetitions; for example sample 0, seen by")


def test_equal_rows_beside_an_overlap_are_not_named():
    """What the dataset holds as often as it was read is neither the example nor among the ranks."""
    facts = shards([0, 1], [2, 3], [3, 4], dataset="xxyzuv")
    finding = only(settle(facts, "xxyzuv"))
    assert (finding.subject, finding.ranks) == ("sample 3", (1, 2))


def test_an_overlap_beyond_the_padding():
    """Of more repetitions than padding explains, it is said how many that were."""
    finding = only(settle(shards([0, 1, 2], [0, 1, 4], dataset="vwxyz")))
    assert "2 of the 6 samples read (33 %) to be repetitions, where padding explains 1;" in finding.found


def test_a_sampler_that_drops_pads_nothing():
    """With the sampler's drop_last no repetition is padding."""
    assert only(settle(shards([0, 2], [1, 0], dataset="vwxyz", drop_last=True))).subject == "sample 0"


def test_a_plain_sampler_pads_nothing():
    """A repetition by a sampler that knows no ranks is no padding."""
    assert only(settle(unaware([0, 2, 4], [1, 3, 0], dataset="vwxyz"))).subject == "sample 0"


def test_a_repetition_within_one_rank():
    """A sample that one rank reads several times is told with how often it was seen."""
    finding = only(settle(shards([0, 0, 0], [1, 2, 3], dataset="wxyz")))
    assert finding.ranks == (0,)
    assert finding.found.endswith("for example sample 0, seen 3 times by rank 0")


def test_how_often_a_sample_was_seen_does_not_depend_on_the_dataset():
    """A sample that the dataset holds twice and one rank read four times was seen four times."""
    finding = only(settle(shards([0, 0, 1, 1], [2, 3], dataset="xxyz"), "xxyz"))
    assert finding.found.startswith("2 of the 6 samples read")
    assert finding.found.endswith("seen 4 times by rank 0")


def test_a_sample_shared_by_ranks_is_the_better_example():
    """Where samples repeat within ranks and between them, one between ranks is shown."""
    finding = only(settle(shards([0, 0, 3], [1, 3, 2], dataset="wxyz")))
    assert finding.subject == "sample 3"
    assert finding.found.endswith("seen by ranks 0 and 1")


def test_more_equal_rows_than_the_dataset_has():
    """Of a content that the dataset holds twice, a third reading is a repetition."""
    finding = only(settle(shards([0, 2], [1, 0], dataset="xxyz"), "xxyz"))
    assert finding.found.startswith("1 of the 4 samples read (25 %) to be repetitions")


def test_a_stream_that_repeats_is_an_overlap():
    """A stream's repeated sample has no index, and is named by its fingerprint."""
    facts = stream("abc", "cde")
    assert isinstance(ask(facts), Question)
    finding = only(ask(facts, [None, None]))
    assert finding.subject == "the sample with fingerprint c"
    assert finding.cause == ""


def test_a_stream_that_every_rank_has_the_whole_of():
    """The same samples on all ranks tell how they were dealt out."""
    finding = only(ask(stream("abcd", "dcba"), [None, None]))
    assert finding.cause == "Stream knows nothing of ranks, so each rank goes through the whole dataset"


def test_samples_by_index_are_told_as_such():
    """Where contents are random, indices are judged, and the finding says so."""
    dataset = ["index 0", "index 1"]
    finding = only(settle(unaware([0, 1], [0, 1], dataset=dataset, by_content=False)))
    assert finding.expected == EXPECTED + " (by index: a sample is another each time it is read)"
    assert finding.subject == "sample 0"


def test_ranks_that_disagree_on_content_are_judged_by_index():
    """Where augmentation made one rank give indices and not another, all are judged by index."""
    by_content = shard(0, 2, [0, 1], dataset="ab", distributed=False)
    by_index = shard(1, 2, [0, 1], dataset=["index 0", "index 1"], distributed=False, by_content=False)
    for facts in ([by_content, by_index], [by_index, by_content]):
        assert "2 of the 4 samples read" in only(settle(facts)).found


CAUSES = {
    "one rank for all": (
        [shard(0, 2, [0, 1]), shard(0, 2, [0, 1])],
        "several ranks have a DistributedSampler for the same rank (0, 0)",
    ),
    "another world": (
        [shard(0, 3, [0, 1]), shard(1, 3, [1, 2])],
        "DistributedSampler was made for 3 ranks, and there are 2",
    ),
    "seeds": (
        [shard(0, 2, [0, 1], seed=0), shard(1, 2, [1, 2], seed=7)],
        "the ranks' samplers have different values of seed (0, 7)",
    ),
    "epochs": (
        [shard(0, 2, [0, 1], epoch=0), shard(1, 2, [1, 2], epoch=1)],
        "the ranks' samplers have different values of epoch (0, 1)",
    ),
    "shuffle": (
        [shard(0, 2, [0, 1], shuffle=True), shard(1, 2, [1, 2], shuffle=False)],
        "the ranks' samplers have different values of shuffle (True, False)",
    ),
    "the dataset": (
        [shard(0, 2, [0, 2], dataset="wxyz"), shard(1, 2, [1, 3], dataset="ywxz")],
        "the datasets' orders differ: the ranks' indices are disjoint, and equal samples have different indices",
    ),
    "the sampler": ([shard(0, 2, [0, 1]), shard(1, 2, [1, 2])], "DistributedSampler gives the ranks indices in common"),
}


FIXES = {
    "one rank for all": "Make the DistributedSampler after init_process_group, with rank=dist.get_rank() on each rank.",
    "another world": "Make the DistributedSampler after init_process_group, with num_replicas=dist.get_world_size().",
    "seeds": "Give the DistributedSampler the same seed on every rank: only then do their parts fit together.",
    "epochs": "Call set_epoch with the same epoch on every rank.",
    "shuffle": "Give the DistributedSampler the same shuffle on every rank.",
    "the dataset": "Make the dataset in the same order on every rank: sort its files, and split and shuffle it by a "
    "generator with the same seed.",
}


@pytest.mark.parametrize("name", CAUSES)
def test_the_cause_of_an_overlap(name):
    """What the samplers say of themselves tells why shards overlap; the fix is that of this cause, and of no other."""
    facts, cause = CAUSES[name]
    finding = only(settle(facts))
    assert "repetitions" in finding.found
    assert finding.cause == cause
    assert finding.advice == FIXES.get(name, SEEDS)


def test_the_rank_without_a_distributed_sampler_is_the_cause():
    """Where some rank's sampler knows nothing of ranks, it is that sampler which is named."""
    aware, plain = shard(0, 2, [0, 1]), shard(1, 2, [1, 2], kind="RandomSampler", distributed=False)
    finding = only(settle([aware, plain]))
    assert finding.cause.startswith("RandomSampler knows nothing of ranks")
    assert finding.advice == SAMPLER


# --- gaps


def test_a_gap_is_named_by_its_first_sample():
    """Samples in no rank's epoch are counted, and the first is named."""
    assert ask(shards([0, 2], [3], dataset="wxyz")) == (
        Finding(
            check="shard-partition",
            rule="shard-partition/missing-samples",
            severity="error",
            ranks=(0, 1),
            subject="sample 1",
            expected=EXPECTED,
            found="1 of 4 samples in no rank's epoch; the first is sample 1",
            advice="See why the sampler leaves samples out that neither its drop_last nor the loader's explains.",
        ),
    )


def test_a_sampler_for_more_ranks_leaves_a_gap():
    """A sampler made for another world size is the cause of a gap."""
    facts = [shard(0, 4, [0], dataset="wxyz"), shard(1, 4, [1], dataset="wxyz")]
    finding = only(ask(facts))
    assert finding.found == "2 of 4 samples in no rank's epoch; the first is sample 2"
    assert finding.cause == "DistributedSampler was made for 4 ranks, and there are 2"
    assert finding.advice == RANKS


def test_a_gap_beyond_what_may_be_dropped():
    """Of more missing samples than drop_last explains, it is said how many that are."""
    facts = shards([0, 1], [2, 3], dataset="stuvwxyz", drops_batch=True, positions=3)
    finding = only(ask(facts))
    assert finding.found == "4 of 8 samples in no rank's epoch, where drop_last explains 2; the first is sample 4"


def test_a_loader_drops_less_than_a_batch():
    """What a sampler withholds is not put down to drop_last, which drops no whole batch."""
    facts = [
        replace(f, batch_size=2) for f in shards([0, 1], [2, 3], dataset="stuvwxyz", drops_batch=True, positions=4)
    ]
    finding = only(ask(facts))
    assert finding.found == "4 of 8 samples in no rank's epoch, where drop_last explains 2; the first is sample 4"


def test_padding_does_not_make_up_for_a_gap():
    """A repetition within the padding does not stand for a sample that is missing."""
    finding = only(settle(shards([0, 1, 2], [3, 3], dataset="vwxyz")))
    assert finding.found == "1 of 5 samples in no rank's epoch; the first is sample 4"


def test_a_stream_with_a_length_may_have_a_gap():
    """A stream that says how long it is must give all of it; what is missing has no name."""
    finding = only(ask(stream("abc", "de", size=6)))
    assert finding.subject == "the dataset"
    assert finding.found == "1 of 6 samples in no rank's epoch"


def test_a_sampler_that_understates_its_length_has_dropped_nothing():
    """A length that is less than what the sampler gave is no debt."""
    assert ask(shards([0, 1], [2, 3], dataset="wxyz", drops_batch=True, positions=1)) == ()


def test_a_sampler_that_overstates_its_length_excuses_no_gap():
    """The loader's drop_last drops less than a batch on each rank, whatever length the sampler claims."""
    facts = shards([0, 1], [2, 3], dataset="stuvwxyz", drops_batch=True, positions=100, batch_size=2)
    assert only(ask(facts)).found.startswith("4 of 8 samples in no rank's epoch, where drop_last explains 2")


def test_a_loader_that_keeps_its_batches_has_no_excuse():
    """Without drop_last every sample that the sampler claims is due."""
    facts = shards([0, 1], [2, 3], dataset="stuvwxyz", positions=4)
    assert only(ask(facts)).found.startswith("4 of 8 samples in no rank's epoch; the first is")


@pytest.mark.parametrize(("size", "missing"), [(5, 0), (9, 0), (10, 5)])
def test_a_streams_incomplete_batch_may_be_dropped(size, missing):
    """A stream counts no positions, so that drop_last may drop all but one of a batch on each rank."""
    found = ask(stream("abc", "de", size=size, drops_batch=True, batch_size=3))
    if missing:
        assert only(found).found == f"{missing} of {size} samples in no rank's epoch, where drop_last explains 4"
    else:
        assert found == ()


# --- what the loader drops of what the sampler gave


def test_an_overlap_among_what_is_dropped_is_one():
    """A sample that two samplers give is not excused by the batch that one of them loses it with."""
    facts = shards([0, 1, 2], [3, 4, 2], dataset="uvwxyz", drops_batch=True, batch_size=2, dropped=1)
    assert only(settle(facts)).found.startswith("1 of the 6 samples read (17 %) to be repetitions")


def test_a_gap_is_not_excused_by_what_is_known_to_be_dropped():
    """Where all that the sampler gave is known, the loader's drop_last explains no sample that it did not give."""
    given = {"dataset": "uvwxyz", "drops_batch": True, "batch_size": 2}
    assert ask(shards([0, 1, 2], [3, 4, 5], dropped=1, **given)) == ()
    assert only(ask(shards([0, 1, 2], [3, 4], dropped=0, **given))).found.startswith(
        "1 of 6 samples in no rank's epoch"
    )


def test_an_epoch_that_is_dropped_whole_shows_nothing():
    """Fewer samples than a batch on every rank, and drop_last: training would see none of them."""
    facts = shards([0], [1], dataset="yz", drops_batch=True, batch_size=2, dropped=1)
    assert only(ask(facts)).found == "no sample on any rank: nothing was checked"


# --- one dataset on all ranks?

OWN_DATA = (
    "Let every rank build its dataset from the same data, in the same order: give random splits and generated data a "
    "generator with the same seed everywhere."
)


def of_ones_own(*datasets, indices=((0, 2), (1, 3)), **more):
    """Ranks that each share out a dataset of their own, given as texts with a letter for each sample."""
    return [
        shard(rank, len(datasets), one, dataset=data, probes=list(data), **more)
        for rank, (data, one) in enumerate(zip(datasets, indices, strict=True))
    ]


def settle_each(facts, *datasets):
    """The findings, where each rank answers for its own dataset; None for one that cannot be read."""
    found = ask(facts)
    if isinstance(found, Question):
        found = ask(facts, [data and [data.count(p) for p in found.about] for data in datasets])
    return found


def test_different_data_of_one_size():
    """Nothing comes twice and the number is right: that some samples are of one dataset alone is asked, and found."""
    assert only(settle_each(of_ones_own("abcd", "ybcz"), "abcd", "ybcz")) == Finding(
        check="shard-partition",
        rule="shard-partition/different-datasets",
        severity="error",
        ranks=(0, 1),
        subject="the dataset",
        expected=EXPECTED,
        found="datasets of one size that hold different samples: 2 of the 4 samples read are not in every rank's; "
        "for example sample 0 of rank 0, which rank 1 does not hold",
        advice=OWN_DATA,
    )


def test_one_sample_that_is_different():
    """The sample that one rank alone holds is the example."""
    found = only(settle_each(of_ones_own("abcd", "bacz"), "abcd", "bacz")).found
    assert "1 of the 3 samples read is not in every rank's; for example sample 3 of rank 1, which rank 0 does" in found


def test_nothing_in_common_is_a_warning():
    """It may be the data, and it may be something of the rank in each sample: no certain error."""
    finding = only(settle_each(of_ones_own("abcd", "wxyz"), "abcd", "wxyz"))
    assert (finding.severity, finding.ranks, finding.subject) == ("warning", (0, 1), "the dataset")
    assert finding.found.startswith("datasets of one size that have no sample in common")
    assert finding.advice.startswith(OWN_DATA)


def test_nothing_in_common_with_ranks_that_agree():
    """Where two ranks hold the same samples, they carry nothing of a rank: a third one's data are other data."""
    facts = of_ones_own("abcdef", "abcdef", "uvwxyz", indices=((0, 3), (1, 4), (2, 5)))
    finding = only(settle_each(facts, "abcdef", "abcdef", "uvwxyz"))
    assert finding.severity == "error"
    assert finding.found.startswith("datasets of one size that hold different samples: 6 of the 6 samples read")


def test_equal_rows_of_ones_own_data_are_no_overlap():
    """A sample that a rank's dataset holds twice, and no other's, is not read too often."""
    assert (
        only(settle_each(of_ones_own("aacd", "wxyz", indices=((0, 1), (2, 3))), "aacd", "wxyz")).severity == "warning"
    )


def test_a_few_places_that_differ_are_no_sign():
    """A sample that is now and then another does not make another dataset; half of the places do."""
    first, second = of_ones_own("abcd", "ybcd")
    assert ask([first, second]) == ()
    assert isinstance(ask(of_ones_own("abcd", "yzcd")), Question)
    assert ask([replace(first, probes=["", "", "c", "d"]), replace(second, probes=["y", "z", "c", "d"])]) == ()


def test_a_dataset_that_cannot_be_read_whole_is_not_compared():
    """A rank whose dataset holds its own samples alone cannot answer for others', which is no fault."""
    assert settle_each(of_ones_own("abcd", "wxyz"), "abcd", None) == ()


def test_another_order_is_judged_by_what_comes_of_it():
    """The same samples in another order: no fault where all are read once, and else the overlap that it is."""
    facts = of_ones_own("abcd", "dcba", indices=((0, 2), (0, 2)))
    assert settle_each(facts, "abcd", "dcba") == ()
    overlap = only(settle_each(of_ones_own("abcd", "dcba", indices=((0, 1), (2, 3))), "abcd", "dcba"))
    assert "to be repetitions" in overlap.found
    assert overlap.cause.startswith("the datasets' orders differ")


def test_equal_places_leave_no_question():
    """Where the places that all ranks looked at agree, no dataset is read a second time."""
    assert ask(of_ones_own("abcd", "abcd")) == ()


@pytest.mark.parametrize("unknown", [{"probes": None}, {"by_content": False}])
def test_datasets_that_cannot_be_compared_are_not(unknown):
    """A rank whose dataset cannot be read elsewhere, or is another each time, says nothing about the others'."""
    first, second = of_ones_own("abcd", "wxyz")
    assert settle_each([first, replace(second, **unknown)], "abcd", "wxyz") == ()


def test_samplers_without_ranks_may_have_data_of_their_own():
    """Ranks that each read the whole of a shard that lies before them share nothing out."""
    facts = of_ones_own("abcd", "wxyz", indices=(range(4), range(4)), kind="RandomSampler", distributed=False)
    assert settle_each(facts, "abcd", "wxyz") == ()


# --- nothing to judge


@pytest.mark.parametrize("facts", [shards([], [], dataset="xy"), shards([], dataset=""), stream("", "")])
def test_no_samples_anywhere_do_not_pass(facts):
    """Loaders without a sample on any rank are a violation: nothing was checked."""
    finding = only(ask(facts))
    assert (finding.subject, finding.ranks) == ("the loader", tuple(range(len(facts))))
    assert finding.found == "no sample on any rank: nothing was checked"


def test_datasets_of_different_sizes_are_told():
    """Ranks with datasets of different sizes cannot share one out, and nobody is asked more."""
    facts = [shard(0, 2, [0, 1], dataset="wxyz"), shard(1, 2, [1], dataset="wx")]
    finding = only(ask(facts))
    assert (finding.subject, finding.ranks) == ("the dataset", (0, 1))
    assert finding.found == "datasets of different sizes: 4 on rank 0, 2 on rank 1"


# --- oracles

thorough = settings(deadline=None, database=None, max_examples=150)


def broken(dataset, reads, padding, dropped):
    """Whether these readings of a dataset are no partition of it, counted sample by sample."""
    held, seen = Counter(dataset), Counter(sample for one in reads for sample in one)
    twice = sum((seen - held).values())
    never = sum((held - seen).values())
    return twice > padding or never > dropped or not seen


@st.composite
def readings(draw):
    """A dataset with equal rows, and any indices for each rank."""
    dataset = draw(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=8))
    world_size = draw(st.integers(1, 3))
    order = draw(st.permutations(range(len(dataset))))
    reads = [list(order[rank::world_size]) for rank in range(world_size)]
    for _ in range(draw(st.integers(0, 3))):
        rank = draw(st.integers(0, world_size - 1))
        if draw(st.booleans()):
            reads[rank].append(draw(st.integers(0, len(dataset) - 1)))
        elif reads[rank]:
            reads[rank].pop()
    return dataset, reads


@thorough
@given(readings(), st.booleans(), st.booleans())
def test_the_verdict_is_that_of_counting_every_sample(drawn, distributed, drop_last):
    """The judge agrees with a count of every sample of the dataset, whatever the ranks read."""
    dataset, reads = drawn
    facts = shards(*reads, dataset=dataset, distributed=distributed, drop_last=drop_last and distributed)
    padding = -len(dataset) % len(reads) if distributed and not drop_last else 0
    dropped = len(dataset) % len(reads) if distributed and drop_last else 0
    contents = [[dataset[i] for i in one] for one in reads]
    assert bool(settle(facts, dataset)) == broken(dataset, contents, padding, dropped)


@thorough
@given(st.data())
def test_a_distributed_sampler_always_holds(data):
    """What DistributedSampler and DataLoader do with any sizes and drop_last is a partition."""
    size, world_size = data.draw(st.integers(1, 20)), data.draw(st.integers(1, 4))
    drop_last, drops_batch = data.draw(st.booleans()), data.draw(st.booleans())
    batch_size = data.draw(st.integers(1, 4))
    order = list(data.draw(st.permutations(range(size))))
    if drop_last:
        order = order[: size - size % world_size]
    elif size % world_size:
        missing = -size % world_size
        order += (order * missing)[:missing]
    dataset = [str(number) for number in range(size)]
    facts = []
    for rank in range(world_size):
        own = order[rank::world_size]
        kept = own[: len(own) - len(own) % batch_size] if drops_batch else own
        more = {"drop_last": drop_last, "drops_batch": drops_batch, "positions": len(own)}
        facts.append(shard(rank, world_size, kept, dataset=dataset, **more))
    found = settle(facts, dataset)
    assert found == () or "nothing was checked" in only(found).found


@thorough
@given(st.integers(2, 20), st.integers(2, 4), st.data())
def test_a_rank_that_takes_anothers_shard_is_always_found_out(size, world_size, data):
    """Two ranks with one shard break the partition, unless what they repeat is no more than padding would be."""
    one, other = data.draw(st.lists(st.integers(0, world_size - 1), min_size=2, max_size=2, unique=True))
    padded = [*range(size), *range(-size % world_size)]
    dataset = [str(number) for number in range(size)]
    reads = [padded[rank::world_size] for rank in range(world_size)]
    reads[one] = reads[other]
    contents = [[dataset[i] for i in indices] for indices in reads]
    found = settle(shards(*reads, dataset=dataset), dataset)
    assert bool(found) == broken(dataset, contents, -size % world_size, 0)
    assert found or size % world_size
