"""The judge of shard-partition, over passes written by hand: data shared out, and data that all ranks have."""

from __future__ import annotations

import math

import numpy as np
import pytest
from msgspec.structs import replace

from ddpcheck import evidence as ev
from ddpcheck.checks.shard_partition.data_grounds import NO_COPIES, OTHER_DATA
from ddpcheck.checks.shard_partition.run import FEW, INPUTS, OWN_OR_PARTS, PARTS, judge
from ddpcheck.evidence.sketches import NUMBERS, packed
from ddpcheck.judging.world import Process, Rank, Stretch, World
from ddpcheck.relations.overlap import IN_PART, REPLACED, UNRECOGNISED
from tests.judging.loaded import OWN, PLAIN, STREAM, drawn, loader, through
from tests.judging.own_reductions import BOTH, carried, optimizer, stepped
from tests.judging.written import ended, exchanged, rank, world, wrapped

EVEN, ODD = list(range(0, 16, 2)), list(range(1, 16, 2))
EVERY = list(range(16))


def shared(*ranks, **more):
    """What is said of data: each rank's records, in a program with a DDP model."""
    return judge(world(*[[wrapped(5), *own, ended()] for own in ranks], **more))


def told(*ranks, **more):
    (finding,) = shared(*ranks, **more).findings
    return finding


def distributed(number, **more):
    return loader(**{"rank": number, **more})


# --- silent


def test_shards_without_a_sample_in_common_hold():
    """Each pass that several ranks trained with counts once."""
    judged = shared([distributed(0), *through(EVEN)], [distributed(1), *through(ODD)])
    assert (judged.checked, judged.findings) == (1, ())


def test_padding_is_no_overlap():
    """torch's sampler gives some samples twice, so that all ranks have equally many."""
    judged = shared(
        [distributed(0, size=15), *through(EVEN)], [distributed(1, size=15), *through([*ODD[:-1], 0])]
    )  # fmt: skip
    assert judged.findings == ()


def test_samplers_of_ones_own_may_even_the_ranks_out():
    """A few samples that come twice, where all are there, make the last batches full."""
    twelve = {**OWN, "size": 12}
    judged = shared([loader(**twelve), *through([*EVEN[:6], 1, 3])], [loader(**twelve), *through([*ODD[:6], 0, 2])])
    assert (judged.checked, judged.findings) == (1, ())


def test_batches_of_ones_own_may_be_filled_up():
    """Buckets have a last batch each."""
    own = loader(**OWN, batch_sampler="Buckets")
    assert shared([own, *through([*EVEN, 1, 3])], [own, *through([*ODD, 0, 2])]).findings == ()


def test_repeated_samples_may_be_meant():
    """A rank that comes to a sample again draws some more often than others."""
    own = loader(**OWN)
    assert shared([own, *through([*EVEN, 0, 3])], [own, *through([*ODD, 0, 2])]).findings == ()


def epochs(*orders, **more):
    """A loader with a sampler of the user's own, and a pass in each of these orders."""
    return [loader(**{**OWN, "size": 32, **more}), *(m for n, order in enumerate(orders) for m in through(order, n))]


def test_samples_may_have_their_turn_in_another_epoch():
    """A part of the dataset in each epoch: that others are left out in it is no fault, and not held either."""
    later = [[16 + i for i in part] for part in (EVEN, ODD)]
    judged = shared(epochs(EVEN, later[0]), epochs(ODD, later[1]))
    assert (judged.checked, judged.findings) == (0, ())
    assert judged.skipped_because == IN_PART
    assert (shared(epochs(EVEN), epochs(ODD)).checked, shared(epochs(EVEN), epochs(ODD)).findings) == (0, ())


def test_another_loader_may_have_the_rest():
    """One for validation goes through the same dataset."""
    held_out = loader(14, loader=1)
    judged = shared([*epochs(EVEN, EVEN[::-1]), held_out], [*epochs(ODD, ODD[::-1]), held_out])
    assert (judged.checked, judged.findings) == (2, ())


def test_a_sampler_of_ones_own_may_drop_incomplete_batches():
    """Fewer than a batch of each rank are missing."""
    assert shared(epochs(EVEN, EVEN[::-1], size=23), epochs(ODD, ODD[::-1], size=23)).findings == ()


def test_evaluation_on_the_whole_data_is_no_fault():
    """Only data that are trained with have to be shared out."""
    judged = shared(*[[loader(**PLAIN), *through(EVERY, trained=False, grad=False)]] * 2)
    assert (judged.checked, judged.findings) == (0, ())
    assert judged.skipped_because == "no two ranks were seen to train with one loader"


def test_one_rank_alone_reads_for_all():
    """A loader that one rank goes through is nobody's share."""
    assert shared([loader(**PLAIN), *through(EVERY)], [loader(**PLAIN)]).findings == ()


def test_ranks_may_bring_data_of_their_own():
    """The same indices of other datasets are other samples, also where their labels happen to agree."""
    mine = through(EVERY, contents=[f"a{i}" for i in EVERY], labels=[i % 4 for i in EVERY])
    yours = through(EVERY, contents=[f"b{i}" for i in EVERY], labels=[i % 4 for i in EVERY])
    assert shared([loader(**PLAIN), *mine], [loader(**PLAIN), *yours]).findings == ()


def test_data_may_hold_a_sample_twice():
    """Equal rows come twice within a rank as well as on two of them."""
    contents = [i % 5 for i in range(16)]
    judged = shared(
        [loader(**OWN), *through(EVEN, contents=[contents[i] for i in EVEN])],
        [loader(**OWN), *through(ODD, contents=[contents[i] for i in ODD])],
    )
    assert judged.findings == ()


def test_drawing_with_replacement_is_no_overlap():
    """Ranks that draw by chance may meet the same sample."""
    weighted = {**PLAIN, "sampler": "WeightedRandomSampler", "repeats": True}
    judged = shared(
        [loader(**weighted), *through([0, 3, 3, 7, 1, 9, 4, 7])],
        [loader(**weighted), *through([3, 9, 2, 2, 5, 7, 0, 1])],
    )
    assert judged.findings == ()


def test_a_sampler_without_end_is_judged_by_its_first_epoch():
    """Later in a pass that goes on for ever, a rank comes to what another had before."""
    judged = shared(
        [loader(**OWN), *through([*EVEN, *ODD, *EVEN], exhausted=False)],
        [loader(**OWN), *through([*ODD, *EVEN, *ODD], exhausted=False)],
    )
    assert judged.findings == ()


def test_ranks_of_one_model_share_their_data():
    """Ranks outside of each other's DDP group hold parts of one model, and get the same samples."""
    groups = ("0,2#1", "1,3#1")
    ranks = [
        [wrapped(5, group=groups[r % 2]), distributed(r // 2), *through([EVEN, ODD][r // 2]), ended()]
        for r in range(4)
    ]  # fmt: skip
    judged = judge(world(*ranks))
    assert (judged.checked, judged.findings) == (2, ())


def test_a_further_pass_of_one_rank_shifts_nothing():
    """Rank 0 has gone through its loader before, at another line."""
    judged = shared(
        [distributed(0), *through(EVEN, line=40, trained=False), *through(EVEN[::-1], 1)],
        [distributed(1), *through(ODD)],
    )
    assert (judged.checked, judged.findings) == (1, ())


def test_without_evidence_nothing_is_said():
    """A rank that was killed early, and one that never came."""
    assert shared([distributed(0), *through(EVEN, ended=False)[:2]], [], world_size=3).findings == ()
    assert shared([], []).skipped_because == "no DataLoader was seen"


# --- not held


def test_without_copies_of_one_model_nothing_is_held():
    """Ranks that hold parts of one model by hand have to read the same, and nothing shows what these hold."""
    ranks = [[distributed(0), *through(EVEN)], [distributed(1), *through(ODD)]]
    judged = judge(world(*ranks))
    assert (judged.checked, judged.findings, judged.skipped_because) == (0, (), NO_COPIES)
    assert judge(world(*[[*own, *REDUCES] for own in ranks])).checked == 1


def test_groups_that_read_different_samples():
    """Two groups that train a part of one model each have to read the same; with models of their own they need not."""
    groups = ("0,2#1", "1,3#1")
    ranks = [
        [wrapped(5, group=groups[r % 2]), loader(**STREAM), *through(None, contents=range(r, 16, 4)), ended()]
        for r in range(4)
    ]
    judged = judge(world(*ranks))
    assert (judged.checked, judged.skipped_because) == (0, OTHER_DATA)


def test_ranks_that_average_in_groups_of_their_own():
    """Groups that reduce their gradients themselves may hold one model among them as well."""
    ranks = []
    for r in range(4):
        reduced = exchanged(0, *[carried(p, group=("0,2#1", "1,3#1")[r % 2]) for p in (0, 1)])
        own = [loader(**STREAM), *through(None, contents=range(r, 16, 4))]
        ranks.append([*own, optimizer(), reduced, stepped("gh")])
    assert judge(world(*ranks)).skipped_because == OTHER_DATA


def changing(order, name, number=0):
    """A pass in which each sample is another one than anywhere else."""
    return through(order, number, contents=[f"{name}{number}{i}" for i in order])


def test_samples_that_are_never_recognised():
    """Each rank may have the whole stream, augmented: that none of it looks the same shows nothing."""
    ranks = [[loader(**STREAM), drawn(n, "fetch"), *changing(EVERY, n)[:1], *changing(EVERY, n)[1:]] for n in (0, 1)]
    judged = shared(*ranks)
    assert (judged.checked, judged.findings, judged.skipped_because) == (0, (), UNRECOGNISED)


def test_samples_that_are_recognised_again():
    """What is drawn shuffles them: they come again in the next pass, and on one rank alone."""
    ranks = [
        [loader(**STREAM), drawn(n, "fetch"), *through(None, contents=its), *through(None, 1, contents=its[::-1])]
        for n, its in enumerate((EVEN, ODD))
    ]
    judged = shared(*ranks)
    assert (judged.checked, judged.findings) == (2, ())


@pytest.mark.parametrize("contents", [[0] * 16, [0, 3, 3, 0, 0, 3, 0, 3]], ids=["look alike", "come again"])
def test_samples_that_come_again_and_again(contents):
    """Long rows that are padded at their front look alike; what is drawn with replacement comes several times."""
    ranks = [[loader(**STREAM), *through(None, contents=contents)] for _ in (0, 1)]
    judged = shared(*ranks)
    assert (judged.checked, judged.findings, judged.skipped_because) == (0, (), REPLACED)


# --- found


def test_each_rank_goes_through_the_whole_dataset():
    """A loader of one process is told at the line that makes it, with the loop over it."""
    finding = told([loader(**PLAIN), *through(EVERY)], [loader(**PLAIN), *through(EVERY[::-1])])
    assert finding.severity == "error"
    assert finding.ranks == (0, 1)
    assert finding.found == (
        "32 samples compared; 16 of them (50 %) repeat a sample of another rank; "
        "for example sample 0, seen by ranks 0 and 1"
    )
    assert finding.cause == "RandomSampler knows nothing of ranks, so each rank goes through the whole dataset"
    assert (finding.where.line, [site.line for _, site in finding.proof]) == (10, [20, 20])
    assert finding.links == ("loader 0",)


def test_several_passes_are_one_finding():
    """The same fault in each epoch is counted, and the numbers are those of the pass that repeats most."""
    both = [loader(**PLAIN), *through(EVERY), *through(EVERY, 1)]
    finding = told(both, both)
    assert finding.count == 2
    assert finding.found.startswith("32 samples compared in pass 1; 16 of them")
    some = [distributed(0), *through(EVEN), *through([*EVEN, 1, 3], 1)]
    others = [distributed(1), *through(ODD), *through([*ODD, 0, 2], 1)]
    assert told(some, others).found.startswith("20 samples compared in pass 2; 4 of them (20 %)")


def test_without_a_ddp_model_it_is_a_warning():
    """Ranks that hold parts of one model by other means may have to read the same, and others train one each."""
    own = [loader(**PLAIN), *through(EVERY)]
    judged = judge(world(own, own))
    assert (judged.checked, judged.findings, judged.skipped_because) == (0, (), NO_COPIES)
    own += REDUCES
    assert [f.severity for f in judge(world(own, own)).findings] == ["warning"]


def of_one_reader(*reduced, parameters="ab"):
    """Two ranks that a sampler takes for the same one, and the gradients that they reduce themselves."""
    own = [loader(rank=0, replicas=1), *through(EVERY), optimizer(names=parameters), exchanged(0, *reduced)]
    return judge(world(own, own))


def test_what_samplers_deal_to_one_reader():
    """Ranks that hold parts of one model by hand make their sampler for one reader, and read the same."""
    judged = of_one_reader()
    assert (judged.checked, judged.findings, judged.skipped_because) == (0, (), NO_COPIES)
    norms = of_one_reader(carried(0))
    assert norms.findings == ()


def test_what_one_reader_averages():
    """Ranks that reduce all gradients with each other hold copies, whatever their samplers were made for."""
    (finding,) = of_one_reader(carried(0), carried(1)).findings
    assert "for the same rank (0, 0)" in finding.cause


REDUCES = [optimizer(), exchanged(0, *BOTH), stepped("gh")]
"""A rank reduces all of its gradients itself."""


@pytest.mark.parametrize("records", [REDUCES, [wrapped(5)]], ids=["by hand", "wrapped"])
def test_parts_of_samples_of_one_reader(records):
    """Ranks that cut each sample in two, such as for context parallelism, have other content at one index."""
    own = [(n, [EVEN, ODD][n // 2]) for n in range(4)]
    ranks = [[distributed(n // 2), *through(its, contents=[f"{n % 2}{i}" for i in its]), *records] for n, its in own]
    for looked in (ranks, [[loader(rank=0, replicas=1, size=8), *own[1:]] for own in ranks[:2]]):
        judged = judge(world(*looked))
        assert (judged.checked, judged.findings, judged.skipped_because) == (0, (), OWN_OR_PARTS)


def contributed(*numbers):
    """What a backward() has contributed to a parameter, and the step after it."""
    piece = ev.Piece(piece=0, model=0, path="a", shape=(4,), sizes=(4,), offset=(0,), layout=None, dtype="float32")
    rows = packed([np.resize(numbers, NUMBERS)])
    one = {"pieces": [0], "sketches": rows}
    made = {"backward": 1, "site": 7, "how": "backward", "whole": [False], "versions": [0]}
    stepped = {"at_moment": "G", "optimizer": 0, "number": 0, "backwards": 1, "since": (0, 0), "places": [0]}
    return [
        (ev.Pieces, {"pieces": [piece]}),
        (ev.Contributions, {**made, **one}),
        (ev.Values, {**stepped, **one, "digests": b"g" * ev.WIDTH}),
    ]


def test_parts_of_a_batch_in_a_model_without_a_wrapper():
    """Ranks that read the same, and are left with other gradients, have given their models other inputs."""
    own = [loader(rank=0, replicas=1), *through(EVERY), *REDUCES]
    judged = judge(world([*own, *contributed(1.0, 2.0)], [*own, *contributed(1.5, -2.0)]))
    assert (judged.checked, judged.findings, judged.skipped_because) == (0, (), PARTS)
    (finding,) = judge(world([*own, *contributed(1.0, 2.0)], [*own, *contributed(1.0, 2.0)])).findings
    assert finding.rule == "repeated-samples"


def test_readers_of_several_ranks_each():
    """Two readers of two ranks each: those that average are compared, and what both give is an overlap."""
    right = [[distributed(n // 2), *through([EVEN, ODD][n // 2])] for n in range(4)]
    averaging = [optimizer(), exchanged(0, *[carried(p, group="0,2#1") for p in (0, 1)]), stepped("gh")]
    others = [optimizer(), exchanged(0, *[carried(p, group="1,3#1") for p in (0, 1)]), stepped("gh")]
    judged = judge(world(*[[*own, *(others if n % 2 else averaging)] for n, own in enumerate(right)]))
    assert (judged.checked, judged.findings) == (2, ())
    wrong = [[distributed(n // 2), *through(EVERY), *(others if n % 2 else averaging)] for n in range(4)]
    assert [f.severity for f in judge(world(*wrong)).findings] == ["warning", "warning"]


def test_samples_that_change_are_known_by_their_index():
    """With augmentation the indices count, where the labels show that the data are the same."""
    labels = [i * 7 % 5 for i in EVERY]
    finding = told(
        [loader(**PLAIN), drawn("a", "fetch"), *through(EVERY, contents=[f"a{i}" for i in EVERY], labels=labels)],
        [loader(**PLAIN), drawn("b", "fetch"), *through(EVERY, contents=[f"b{i}" for i in EVERY], labels=labels)],
    )
    assert "by index" in finding.expected


def test_augmented_data_without_labels_are_left_alone():
    """Nothing tells whether data that change are the same ones."""
    judged = shared(*[
        [loader(**PLAIN), drawn(r, "fetch"), *through(EVERY, contents=[f"{r}{i}" for i in EVERY])] for r in (0, 1)
    ])  # fmt: skip
    assert judged.findings == ()


@pytest.mark.parametrize(
    ("mine", "yours", "cause"),
    [
        ({"rank": 0, "seed": 1}, {"rank": 1, "seed": 2}, "the ranks' samplers have different values of seed (1, 2)"),
        ({"rank": 0}, {"rank": 0}, "several ranks have a DistributedSampler for the same rank (0, 0)"),
        (
            {"rank": 0, "replicas": 1},
            {"rank": 1, "replicas": 1},
            "DistributedSampler was made for 1 ranks, and there are 2",
        ),
    ],
)
def test_a_sampler_made_wrongly_is_told_at_its_line(mine, yours, cause):
    """Samplers that know of ranks, and give them samples in common."""
    half = [*EVEN[:4], *ODD[:4]]
    finding = told([loader(**mine), *through(EVEN)], [loader(**yours), *through(half)])
    assert finding.cause == cause
    assert finding.where.line == 11


def test_local_rank_for_rank():
    """A sampler made with LOCAL_RANK is recognised where the two differ."""
    ranks = [
        rank(n, [wrapped(5), loader(rank=n % 2, replicas=4), *through([4 * i + n % 2 for i in range(4)]), ended()], 4,
             local_rank=n % 2)
        for n in range(4)
    ]  # fmt: skip
    over = world(*[[]] * 4)
    over.ranks = tuple(ranks)
    judged = judge(over)
    assert judged.findings[0].cause.endswith("; that is LOCAL_RANK where RANK is needed")


def test_streams_of_one_shard():
    """A stream that takes itself for the only one."""
    own = [loader(**STREAM, dataset_rank=0, dataset_replicas=1), *through(None, contents=EVERY)]
    finding = told(own, own)
    assert finding.cause == (
        "Feed gives ranks 0 and 1 shard 0, as if there were one rank only: it may have been made before the process "
        "group existed"
    )
    assert finding.where.line == 10


GROUP = "dist.init_process_group()\n"
MADE = "data = Feed()\n"


def joined_at(one, line):
    """The same rank, whose group is made at another line."""
    joined = replace(one.joined, site=line)
    process = Process("p")
    process.add([joined if isinstance(record, ev.Joined) else record for record in one.process.records])
    return Rank(Stretch(process, joined, 0, math.inf))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"def main():\n    {MADE}    {GROUP}", 2),
        (f"def main():\n    {GROUP}    {MADE}", None),
        (f"def other():\n    {MADE}\ndef main():\n    {GROUP}", None),
        (f"def main():\n    {MADE}    {MADE}    {GROUP}", None),
    ],
    ids=["before", "behind", "in another function", "made twice"],
)
def test_a_dataset_that_is_made_before_the_group(text, line):
    """By the program's text, where that leaves no doubt."""
    at = next(number for number, one in enumerate(text.splitlines(), 1) if "init" in one)
    own = [loader(**STREAM, dataset_rank=0, dataset_replicas=1), *through(None, contents=EVERY)]
    site = {"id": 200, "file": "train.py", "line": 1, "function": "<module>", "text": "", "first": 1, "body": text}
    ranks = [joined_at(rank(n, [wrapped(5), (ev.Site, site), *own, ended()]), at) for n in range(2)]
    (finding,) = judge(World(ranks, 2)).findings
    if line is None:
        assert "it may have been made before" in finding.cause
        assert finding.where.line == 10
        return
    assert f"it is made (train.py:{line}) before the process group (train.py:{at})" in finding.cause
    assert finding.advice == f"Make the Feed after init_process_group: move line {line} of train.py behind line {at}."
    assert finding.where.line == line


def test_a_stream_that_knows_no_rank():
    """A stream without an attribute that tells of ranks."""
    own = [loader(**STREAM), *through(None, contents=EVERY)]
    assert told(own, own).cause == "Feed gives every rank the same samples"


@pytest.mark.parametrize("shards", [(0, 1), (None, None)])
def test_a_stream_that_is_cut_from_other_orders(shards):
    """It may well regard the rank, and its shards be apart: what is known is that the shares read overlap."""
    some = EVERY[:12], EVERY[6:]
    ranks = [
        [loader(**STREAM, dataset_rank=shard), *through(None, contents=its)]
        for shard, its in zip(shards, some, strict=True)
    ]
    finding = told(*ranks)
    assert finding.cause == ""
    assert "from one order" in finding.advice


def test_passes_of_a_stream_that_give_other_samples_each():
    """What one has, another lacks: whether all were to come in each is not known."""
    passes = [range(24), range(16, 40)]
    both = [
        [loader(**STREAM), *[r for n, its in enumerate(passes) for r in through(None, n, contents=[*its][rank::2])]]
        for rank in (0, 1)
    ]
    judged = shared(*both)
    assert (judged.checked, judged.findings, judged.skipped_because) == (0, (), IN_PART)


def test_datasets_of_ones_own_that_overlap():
    """Each rank goes through the whole of its own, which is not the whole dataset."""
    ranks = [[loader(**PLAIN), *through(EVERY, contents=its)] for its in (range(16), range(8, 24))]
    assert told(*ranks).cause.endswith("each rank goes through the whole of its dataset")


def test_orders_of_ones_own_seed():
    """A sampler of the user's own that shares out another order on each rank."""
    finding = told(
        [loader(**OWN), *through([0, 1, 2, 3, 4, 5, 6, 7])], [loader(**OWN), *through([4, 5, 6, 7, 12, 13, 0, 1])]
    )
    assert finding.cause.startswith("MySampler draws an order on each rank that does not fit the others'")


def test_datasets_in_other_orders():
    """Indices without one in common, and samples that are."""
    finding = told(
        [distributed(0), *through(EVEN, contents=[f"s{i}" for i in range(8)])],
        [distributed(1), *through(ODD, contents=[f"s{i}" for i in range(8)])],
    )
    assert finding.cause.startswith("the datasets' orders differ")


def test_indices_that_are_not_known():
    """Whether it is indices or datasets that differ does not show."""
    ranks = [[distributed(n), *through(None, contents=range(8))] for n in (0, 1)]
    assert told(*ranks).cause == ""


def test_data_of_ones_own_under_a_distributed_sampler():
    """Shared out by index, and another sample at each: a warning."""

    def passes(name, *orders):
        return [p for n, i in enumerate(orders) for p in through(i, n, contents=[f"{name}{x}" for x in i])]

    finding = told([distributed(0), *passes("a", EVEN, ODD)], [distributed(1), *passes("b", ODD, EVEN)])
    assert (finding.severity, finding.where.line) == ("warning", 10)


def test_drawing_the_same_with_replacement():
    """Ranks that draw by chance, and all the same."""
    own = [loader(**PLAIN, repeats=True), *through([0, 3, 3, 7, 1, 9, 4, 7])]
    assert "in the same order" in told(own, own).found


def test_samples_that_nobody_gets():
    """A sampler that was made for more ranks than there are."""
    finding = told(
        [distributed(0, replicas=4), *through([0, 4, 8, 12])], [distributed(1, replicas=4), *through([1, 5, 9, 13])]
    )
    assert finding.found == "8 of 16 samples on no rank; the first is sample 2"
    assert finding.cause == "DistributedSampler was made for 4 ranks, and there are 2"


def test_shares_that_overlap_by_more_than_padding():
    """All samples are there, and the dataset divides evenly: nothing explains those that come twice."""
    finding = told([loader(**OWN), *through([*EVEN, 1, 3])], [loader(**OWN), *through([*ODD, 0, 2])])
    assert finding.severity == "warning"
    assert finding.found.startswith("20 samples compared; 4 of them (20 %) repeat a sample of another rank; for ")
    assert finding.cause == "MySampler gives the ranks shares that overlap"


@pytest.mark.parametrize("drops", [{"drop_last": True}, {"sampler_drops": True, "size": 17}])
def test_what_is_dropped_is_not_missed(drops):
    """Incomplete batches, and the remainder, may be left out."""
    judged = shared([distributed(0, **drops), *through(EVEN[:8])], [distributed(1, **drops), *through(ODD[:8])])
    assert judged.findings == ()


# --- samplers and inputs


def test_a_sampler_that_lost_its_place():
    """A loader with a sampler of the user's own is never gone through; another takes its place."""
    own = [loader(**{**OWN, "loader": 1}), loader(12, rank=0), *through(EVEN)]
    other = [loader(**{**OWN, "loader": 1}), loader(12, rank=1), *through(ODD)]
    finding = told(own, other)
    assert (finding.severity, finding.where.line) == ("warning", 11)
    assert finding.found == "training through a DistributedSampler in its place, and no pass through the MySampler"


def test_a_sampler_in_use_has_not_lost_its_place():
    """Both loaders are gone through."""
    own = [
        loader(**{**OWN, "loader": 1}),
        loader(12, rank=0),
        *through(EVEN),
        *through(EVEN, of=1, line=21, trained=False),
    ]
    assert shared(own, own[:2]).findings == ()


def given(number, digest):
    return ev.Inputs, {"wrapper": 0, "number": number, "digest": digest, "site": 30}


def test_inputs_that_all_ranks_share():
    """Without a DataLoader, what goes into the model is compared."""
    same = [given(n, bytes([n])) for n in range(5)]
    finding = told(same, same)
    assert (finding.severity, finding.count, finding.where.line) == ("warning", 1, 30)
    certain = [[*contributed(1.0, 2.0), *same], [*contributed(1.0, 2.0), *same]]
    assert told(*certain).severity == "error"
    constant = [given(n, b"same") for n in range(5)]
    assert told([*contributed(1.0, 2.0), *constant], [*contributed(1.0, 2.0), *constant]).severity == "warning"
    parts = [[*contributed(1.0, 2.0), *same], [*contributed(1.5, -2.0), *same]]
    assert shared(*parts).findings == ()
    assert told(*[[*own, drawn("a")] for own in parts]).severity == "warning"
    judged = shared(same, [given(n, bytes([n + 9])) for n in range(5)])
    assert (judged.checked, judged.findings, judged.skipped_because) == (0, (), INPUTS)


def test_a_few_equal_inputs_say_nothing():
    """They may be a first try, and are no proof that the ranks' data differ."""
    judged = shared([given(0, b"a")], [given(0, b"a")])
    assert (judged.checked, judged.findings) == (0, ())
    assert judged.skipped_because == FEW


def test_inputs_count_for_nothing_where_loaders_tell():
    """Loaders say more than inputs do."""
    same = [given(n, bytes([n])) for n in range(5)]
    judged = shared([distributed(0), *through(EVEN), *same], [distributed(1), *through(ODD), *same])
    assert judged.findings == ()
