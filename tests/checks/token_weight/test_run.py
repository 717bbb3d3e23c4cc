"""What each element of a loss counts, compared between the ranks that reduce their gradients together."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.token_weight import CHECK
from ddpcheck.checks.token_weight.run import ADVISORIES, UNSEEN, judge
from tests.judging.written import call, exchanged, step, world, wrapped

KIND = "float32[2]"


def weighed(*batches, line=20, **more):
    """A backward() for each pair of elements and their weight, of one term."""
    terms = [ev.Term(by="NllLoss", elements=elements, weight=weight, kind="mean") for elements, weight in batches]
    backwards = [ev.Weighed(site=line, terms=[term]) for term in terms]
    return ev.StepWeights, {"optimizer": 0, "number": 0, "backwards": backwards, **more}


def optimizer(wrapper=0):
    one = ev.Parameter(name="w", kind=KIND, wrapper=wrapper, reduced=wrapper is not None)
    fields = {"optimizer": 0, "kind": "SGD", "site": 9, "parameters": [one], "sharded": False, "values": b"a" * 8}
    return ev.Optimizer, fields


def wrapper(*records):
    return [wrapped(9), optimizer(), step(30), *records]


def test_a_mean_over_each_ranks_own():
    """It is a warning, at the line of the backward()."""
    judged = judge(world(wrapper(weighed((4, 1 / 4))), wrapper(weighed((6, 1 / 6)))))
    (found,) = judged.findings
    assert (judged.checked, found.severity, found.ranks, found.where.line) == (1, "warning", (0, 1), 20)


def test_one_weight_for_all():
    judged = judge(world(wrapper(weighed((4, 1 / 10))), wrapper(weighed((6, 1 / 10)))))
    assert (judged.checked, judged.findings) == (1, ())


@pytest.mark.parametrize(("became", "compared"), [("kept", 1), ("rescaled", 0), ("zeroed", 0)])
def test_weights_count_where_gradients_add_up(became, compared):
    """What is scaled between two micro-batches counts otherwise than its loss says."""
    between = ev.Between(became=became, after=20, before=20, factor=0.5)
    counts = {"optimizer": 0, "number": 0, "site": 30, "backwards": 2, "forwards": 2, "backward_site": 20}
    rank = wrapper(weighed((4, 1 / 8), (4, 1 / 8)), (ev.Window, {**counts, "between": [between]}))
    judged = judge(world(rank, rank))
    assert (judged.checked, judged.findings) == (compared, ())
    assert compared or "other things than add up" in judged.skipped_because


def test_what_was_zeroed_before_the_steps_own_backwards_does_not_count():
    """A window may begin with those of another optimizer."""
    between = [ev.Between(became=became, after=20, before=20) for became in ("zeroed", "kept")]
    counts = {"optimizer": 0, "number": 0, "site": 30, "backwards": 3, "forwards": 3, "backward_site": 20}
    rank = wrapper(weighed((4, 1 / 8), (4, 1 / 8)), (ev.Window, {**counts, "between": between}))
    assert judge(world(rank, rank)).checked == 1


@pytest.mark.parametrize(
    ("by", "compared"),
    [((0.5, 0.5), 1), ((1.0, 0.0), 0), ((1.0, 1e-17), 0), ((1.0, -1e-17), 0)],
)
def test_a_sum_without_some_rank_is_not_compared(by, compared):
    """Whichever sign rounding gives its 0."""
    left = [[1.0, 2.0, 3.0, 4.0, -1.0], [2.0, -3.0, 1.0, 0.5, 5.0]]
    stepped = [sum(factor * one for factor, one in zip(by, each, strict=True)) for each in zip(*left, strict=True)]

    def rank(number):
        moments = {None: left[number], 0: stepped}
        each = {of: [ev.Sums(model=0, path="w", kind=KIND, numbers=sums)] for of, sums in moments.items()}
        looks = [(ev.GradientSums, {"window": 0, "optimizer": of, "each": sums}) for of, sums in each.items()]
        carried = ev.Carried(place=0, of="gradient", inside=False, group="world", number=1, offset=0, alike=True)
        return [optimizer(wrapper=None), exchanged(0, carried), step(30), *looks, weighed((4, 1 / 8))]

    found = judge(world(rank(0), rank(1)))
    assert (found.checked, found.findings) == (compared, ())
    assert compared or found.skipped_because == UNSEEN


def test_what_was_not_weighed_is_not_held():
    judged = judge(world(wrapper(), wrapper()))
    assert (judged.checked, judged.skipped_because) == (
        0,
        "ddpcheck saw no step of all ranks that a backward() of each had led to",
    )


def stages(*batches, sends=True, both=False):
    """Rank 1 has the loss of what rank 0 sends it, and rank 0 what it is sent back."""
    sent = [[call(1, 5, op="send", peer=1 - rank)] if sends else [] for rank in range(2)]
    given = ev.StepWeights, {"optimizer": 0, "number": 0, "backwards": [ev.Weighed(site=20, continued=True)]}
    return world([*sent[0], weighed(*batches) if both else given], [*sent[1], weighed(*batches)])


def test_a_mean_for_each_micro_batch_of_a_last_stage():
    """A schedule has taken the batch apart: its elements are those of one step."""
    (found,) = judge(stages((3, 1 / 3), (9, 1 / 9))).findings
    assert (found.severity, found.ranks) == ("warning", (1,))
    assert "count 3 times as much" in found.found
    assert "micro-batches of the step" in found.advice


@pytest.mark.parametrize("ranks", [
    stages((3, 1 / 12), (9, 1 / 12)),
    stages((3, 1 / 3), (3, 1 / 3)),
    stages((3, 1 / 3), (9, 1 / 9), sends=False),  # a model of its own
    stages((3, 1 / 3), (9, 1 / 9), both=True),  # ranks that send each other something, and train each for itself
])  # fmt: skip
def test_a_last_stage_with_one_weight_for_all(ranks):
    assert judge(ranks).findings == ()


def test_advisories_are_known_by_their_names():
    """They are no comparison that could make the check hold."""
    assert set(ADVISORIES) == {rule.name for rule in CHECK.rules if rule.advisory}
