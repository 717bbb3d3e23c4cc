"""The judge of reshuffling, over passes written by hand."""

from __future__ import annotations

import msgspec
import pytest

from ddpcheck.evidence.epochs import EpochFacts, SamplerPass
from ddpcheck.vocabulary.model import Finding
from tests.judging.judged import asserted


def passes(*epochs_and_orders, length=100):
    return [SamplerPass(epoch=epoch, order=order, length=length) for epoch, order in epochs_and_orders]


def ask(*ranks, shuffle=True, kind="DistributedSampler"):
    """The findings, where each rank went through its sampler like this."""
    facts = [EpochFacts(kind=kind, shuffle=shuffle, passes=one) for one in ranks]
    return asserted("epoch-reshuffle", msgspec.to_builtins(facts))


GOOD = passes((0, "a"), (1, "b"), (2, "c"))
STUCK = passes((0, "a"), (0, "a"))


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_another_order_in_every_epoch_holds(world_size):
    """Passes that all differ hold."""
    assert ask(*[GOOD] * world_size) == ()


def test_ranks_are_not_compared_with_each_other():
    """Each rank's passes are compared with its own."""
    assert ask(passes((0, "a"), (1, "b")), passes((0, "b"), (1, "a"))) == ()


def test_without_set_epoch_the_order_repeats():
    """Two passes in one order under one epoch: set_epoch was not called, and that is said."""
    assert ask(STUCK, STUCK) == (
        Finding(
            check="epoch-reshuffle",
            rule="epoch-reshuffle/same-order-each-epoch",
            severity="error",
            ranks=(0, 1),
            subject="the sampler",
            expected="another order of the samples in every epoch",
            found="passes 1 and 2 through the DistributedSampler in the same order",
            cause="set_epoch was not called between them, or with the same number: the epoch was 0 both times",
            advice="Call loader.sampler.set_epoch(epoch) at the start of every epoch.",
        ),
    )


def test_a_sampler_that_ignores_its_epoch_is_told_as_such():
    """Two epochs with one order: the sampler does not heed its epoch."""
    (finding,) = ask(passes((3, "a"), (4, "a")), kind="MySampler")
    assert finding.cause == "the sampler's order does not depend on its epoch (3, then 4)"
    assert finding.found == "passes 1 and 2 through the MySampler in the same order"


def test_only_the_ranks_that_repeat_are_named():
    """A set_epoch under a rank's condition is one of the ranks that miss it."""
    (finding,) = ask(GOOD, passes((0, "a"), (0, "a"), (0, "a")), GOOD)
    assert finding.ranks == (1,)


def test_the_first_repetition_is_shown():
    """Of several repetitions the first is shown, also where the passes are not neighbours."""
    (finding,) = ask(passes((0, "a"), (0, "b"), (0, "a"), (0, "b")))
    assert finding.found.startswith("passes 1 and 3 ")
    assert "epoch was 0 both times" in finding.cause


@pytest.mark.parametrize("length", [0, 1])
def test_one_sample_has_only_one_order(length):
    """A shard with one sample or none cannot be shuffled, and repeats without a fault."""
    assert ask(passes((0, "a"), (0, "a"), length=length)) == ()


def test_few_samples_repeat_an_order_by_chance():
    """Few samples have few orders, so that equal orders of different epochs prove nothing; those of ten do."""
    assert ask(passes((0, "a"), (1, "b"), (2, "a"), length=2)) == ()
    assert ask(passes((0, "a"), (1, "a"), length=9)) == ()
    assert ask(passes((0, "a"), (1, "a"), length=10)) != ()


def test_few_samples_without_set_epoch_are_a_violation():
    """With the epoch unchanged, equal orders are no chance, however few the samples."""
    assert ask(passes((0, "a"), (0, "a"), length=2)) != ()


def test_a_second_look_at_an_epoch_is_no_fault():
    """Going through an epoch twice, to evaluate or to peek, repeats its order; another epoch has another."""
    assert ask(passes((0, "a"), (0, "a"), (1, "b"), (1, "b"))) == ()
    assert ask(passes((0, "a"), (0, "a"), (1, "a"), (1, "a"))) != ()


@pytest.mark.parametrize("few", [[], GOOD[:1]])
def test_fewer_than_two_passes_show_nothing(few):
    """An assertion too early does not pass: it says how many passes each rank had."""
    (finding,) = ask(GOOD, few)
    assert finding.ranks == (0, 1)
    assert finding.found == (
        f"fewer than two passes through the sampler (3 on rank 0, {len(few)} on rank 1): nothing was checked"
    )
    assert finding.advice == "Train two epochs or more before this assertion."
    assert finding.cause == ""


def test_a_sampler_that_does_not_shuffle_shows_nothing():
    """shuffle=False is no reshuffling, and does not pass for it."""
    (finding,) = ask(STUCK, STUCK, shuffle=False, kind="SequentialSampler")
    assert finding.found == "a SequentialSampler with shuffle=False: nothing was checked"
    assert finding.ranks == (0, 1)


def test_a_rank_that_does_not_shuffle_is_enough():
    """Where one rank's sampler does not shuffle, the others' passes do not hide it, and it is the one that is named."""
    facts = [
        EpochFacts(kind="DistributedSampler", shuffle=True, passes=GOOD),
        EpochFacts(kind="SequentialSampler", shuffle=False, passes=[]),
    ]
    (finding,) = asserted("epoch-reshuffle", msgspec.to_builtins(facts))
    assert finding.found == "a SequentialSampler with shuffle=False: nothing was checked"
