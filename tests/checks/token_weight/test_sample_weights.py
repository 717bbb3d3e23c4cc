"""The weights of a loss's elements: those that differ, and those that are the same and yet not what one process has."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.token_weight.sample_weights import Batch, Part, fault_of, finding
from ddpcheck.checks.token_weight.world_factor import Text
from ddpcheck.vocabulary.model import CallSite

WHERE = CallSite(file="train.py", line=41, function="main")
DIVIDES = (Text("train.py", 20, "step", "def step(loss):\n    (loss / dist.get_world_size()).backward()\n"),)
MULTIPLIES = (Text("train.py", 20, "step", "def step(loss):\n    loss *= world_size\n    loss.backward()\n"),)


def part(*ranks, kind="mean", scaled=False, factors="*/", **more):
    """Rank by rank the elements and the weight of each backward."""
    batches = [
        Batch(
            rank,
            micro,
            ev.Term(by="NllLoss", elements=elements, weight=weight, kind=kind, scaled=scaled, factors=factors),
        )
        for rank, backwards in enumerate(ranks)
        for micro, (elements, weight) in enumerate(backwards)
    ]
    fields = {
        "alone": True,
        "forwards": {len(ranks[0])},
        "averaged": True,
        "unchanged": True,
        "source": (),
        "accumulates": True,
        "alone_in_step": True,
    }
    return Part(line=("train.py", 41), place=0, batches=tuple(batches), world_size=len(ranks), where=WHERE,
                **{**fields, **more})  # fmt: skip


def kind(*ranks, **more):
    fault = fault_of(part(*ranks, **more))
    return fault and fault.kind


def test_one_weight_for_all():
    assert kind([(4, 1 / 4)], [(4, 1 / 4)]) is None
    assert kind([(4, 1 / 11)], [(7, 1 / 11)]) is None


def test_a_mean_over_each_ranks_own():
    one = part([(4, 1 / 4)], [(7, 1 / 7)])
    fault = fault_of(one)
    assert fault.kind == "between ranks"
    told = finding(one, fault, [3, 5])
    assert (told.severity, told.step, told.count, told.ranks, told.where) == ("warning", 3, 2, (0, 1), WHERE)
    assert told.found == (
        "each of the 4 elements of rank 0 in backward 1 of the step to count 1.75 times as much as each of the "
        "7 elements of rank 1 in backward 1 of the step"
    )
    assert "the numbers of these differ" in told.cause
    assert "all_reduce" in told.advice


def test_a_difference_that_the_numbers_of_elements_do_not_explain():
    """A loss may be given a weight: by a sample's quality, by the depth of an output, by how far the training is."""
    assert fault_of(part([(4, 1 / 4)], [(4, 1 / 2)])).kind is None
    assert fault_of(part([(1, 0.9)], [(1, 0.4)])).kind is None
    assert fault_of(part([(8, 1 / 8), (8, 1 / 16)], [(8, 1 / 8), (8, 1 / 16)])).kind is None


def test_a_mean_over_each_ranks_own_window():
    """Its micro-batches have one weight, and the ranks' windows count alike, however many elements they have."""
    fault = fault_of(part([(3, 1 / 8), (5, 1 / 8)], [(2, 1 / 12), (10, 1 / 12)]))
    assert fault.kind == "between ranks"


def test_micro_batches_of_different_sizes():
    """The ranks agree, batch by batch: what is to be counted is within the step."""
    one = part([(4, 1 / 8), (2, 1 / 4)], [(4, 1 / 8), (2, 1 / 4)])
    fault = fault_of(one)
    assert fault.kind == "between micro-batches"
    told = finding(one, fault, [0])
    assert "all_reduce" not in told.advice
    assert "count them before the first backward()" in told.advice


def test_a_batch_without_an_element_that_counts():
    assert kind([(4, 1 / 4), (0, 0.0)], [(4, 1 / 4), (4, 1 / 4)]) is None
    assert kind([(0, 0.0)], [(0, 0.0)]) is None
    assert kind([(4, 0.0)], [(4, 1 / 4)]) is None, "a loss times zero keeps a rank in step with the others"


def test_rounding_is_no_difference():
    assert kind([(4, 0.25)], [(4, 0.251)]) is None
    assert kind([(25, 1 / 25)], [(26, 1 / 26)]) == "between ranks"


WHOLE = [(4, 1 / 4), (4, 1 / 4)]


def test_means_that_are_added_up():
    one = part(WHOLE, WHOLE)
    fault = fault_of(one)
    assert fault.kind == "added up"
    assert "(loss / 2).backward()" in finding(one, fault, [0]).advice


@pytest.mark.parametrize(
    "but",
    [
        {"forwards": {1}},  # two losses of one forward
        {"forwards": set()},
        {"accumulates": False},  # or of one batch
        {"averaged": False},  # the program brings gradients together by itself, and may divide there
        {"unchanged": False},  # or between backward and step
        {"scaled": True},  # or the elements
    ],
    ids=str,
)
def test_means_that_may_be_divided_elsewhere(but):
    assert kind(WHOLE, WHOLE, **but) is None


def test_means_that_are_divided():
    half = [(4, 1 / 8), (4, 1 / 8)]
    assert kind(half, half) is None
    assert kind([(4, 1 / 4)], [(4, 1 / 4)], forwards={1}) is None
    assert kind([(4, 1 / 4), (4, 1 / 4)], [(4, 1 / 4)], forwards={1, 2}) is None, "not as many on every rank"


def test_a_loss_divided_by_the_world_size():
    half = [(4, 1 / 8)]
    assert kind(half, half, source=DIVIDES) == "divided"
    assert kind(half, half) is None, "half of a mean is not wrong by itself"
    assert kind(half, half, source=DIVIDES, alone=False) is None, "the mean of two losses"
    assert kind(half, half, source=DIVIDES, averaged=False) is None
    assert kind([(4, 1 / 4)], [(4, 1 / 4)], source=DIVIDES) is None, "what is divided is something else"
    assert kind(half, half, source=DIVIDES, factors="*") is None, "half by a product is a weight of the loss"
    one = part(half, half, source=DIVIDES)
    told = finding(one, fault_of(one), [0])
    assert "1/2 of the mean" in told.found
    assert "to DDP (train.py:21). If it is another factor of 2, a run with 3 ranks shows it." in told.advice
    assert [where.line for _, where in told.proof] == [21]
    third = part([(3, 1 / 9)], [(3, 1 / 9)], [(3, 1 / 9)], source=DIVIDES)
    assert "3 ranks shows" not in finding(third, fault_of(third), [0]).advice


def test_a_loss_multiplied_by_the_world_size():
    twice = [(4, 1 / 2)]
    assert kind(twice, twice, source=MULTIPLIES) == "multiplied"
    assert kind(twice, twice) is None
    assert kind(twice, twice, source=MULTIPLIES, factors="/") is None
    # With what all ranks have gathered in the loss of each, DDP's mean is to be undone.
    assert kind(twice, twice, source=MULTIPLIES, alone_in_step=False) is None
    # The sum over the elements of all ranks, times the world size: what DDP divides it by.
    assert kind([(4, 2 / 11)], [(7, 2 / 11)], source=MULTIPLIES) is None


def test_a_sum():
    """A learning rate may be chosen for it."""
    ones = [(4, 1.0)]
    assert kind(ones, ones, kind="sum") is None
    assert kind(ones, ones, kind="elements") is None


def test_what_nobody_can_compare():
    """A part that counts on one rank alone, or on none, was not compared."""
    assert part([(4, 1 / 4)], [(4, 1 / 4)]).compared
    assert not part([(4, 1 / 4)], [(0, 0.0)]).compared
    assert not part([(4, 0.0)], [(4, 0.0)]).compared
