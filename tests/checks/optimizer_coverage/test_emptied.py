"""Steps on zeros, where backward() had left gradients."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.optimizer_coverage.run import judge
from tests.checks.token_weight.test_whole_weight import LOCAL, sums
from tests.judging.written import step, world

ZEROS = [0.0] * 6


def judged(empty, exchanged=None, left=lambda rank: LOCAL[rank], ranks=3, rounds=6):
    """By rank and round, whether the step is made on zeros, and whether anything was exchanged before it."""
    every = []
    for rank in range(ranks):
        records = []
        for window in range(rounds):
            zeros = empty(rank, window)
            calls = (exchanged or (lambda r, w: not empty(r, w)))(rank, window)
            records += [
                (ev.GradientSums, {"window": window, "optimizer": None, "each": [sums(p, left(rank)) for p in "ab"]}),
                (ev.GradientSums, {"window": window, "optimizer": 0,
                                   "each": [sums(p, ZEROS if zeros else LOCAL[rank]) for p in "ab"]}),
                step(9, number=window, collectives=int(calls)),
            ]  # fmt: skip
        every.append(records)
    return judge(world(*every)).findings


def test_a_rank_without_a_partner():
    (found,) = judged(lambda rank, window: window % 3 == rank)
    assert (found.severity, found.ranks, found.where.line, found.count) == ("warning", (0, 1, 2), 9, 3)


@pytest.mark.parametrize("given", [
    {"empty": lambda rank, window: False},
    {"empty": lambda rank, window: window == rank == 1},  # once
    {"empty": lambda rank, window: window % 3 == 0},  # all ranks leave it out
    {"empty": lambda rank, window: window % 3 == rank, "exchanged": lambda rank, window: True},  # agreed
    {"empty": lambda rank, window: window % 3 == rank, "left": lambda rank: ZEROS},
    {"empty": lambda rank, window: rank == 1},  # it trains nothing at all
    {"empty": lambda rank, window: window % 3 == rank, "exchanged": lambda rank, window: False},  # each by itself
])  # fmt: skip
def test_where_none_is_lost(given):
    assert judged(**given) == ()
