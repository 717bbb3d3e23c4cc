"""Steps on zeros, where backward() had left gradients."""

from __future__ import annotations

import numpy as np
import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.optimizer_coverage.run import judge
from ddpcheck.evidence.sketches import NUMBERS, packed
from tests.judging.written import step, world

PIECES = [
    ev.Piece(piece=n, model=0, path=name, shape=(4,), sizes=(4,), offset=(0,), layout=None, dtype="float32")
    for n, name in enumerate("abc")
]


def stepped(full, word, pieces):
    """What a record says of these pieces."""
    sketches = packed([full] * len(pieces))
    return {"pieces": pieces, "places": pieces, "digests": word * len(pieces) * ev.WIDTH, "sketches": sketches}


def judged(empty, exchanged=None, given=1.0, ranks=3, rounds=6, gone=False, moves=lambda rank, number: number,
           others=False):  # fmt: skip
    """By rank and round, whether the step is made on zeros, and whether anything was exchanged before it.

    ``gone``: on nothing, and not on zeros. ``moves``: what parameters hold after a step. ``others``: an
    optimizer of another parameter steps on what the same backward() has left.
    """
    every = []
    for rank in range(ranks):
        records = [(ev.Pieces, {"pieces": PIECES})]
        for number in range(rounds):
            zeros = empty(rank, number)
            calls = (exchanged or (lambda r, n: not empty(r, n)))(rank, number)
            full = np.arange(1.0, NUMBERS + 1) + rank
            backward = {"backward": number + 1, "site": 7, "how": "backward", "whole": [False] * 3, "versions": [0] * 3}
            entry = {
                "at_moment": "G",
                "optimizer": 0,
                "number": number,
                "backwards": number + 1,
                "since": (number, number),
            }
            records += [
                (ev.Contributions, {**backward, "pieces": [0, 1, 2], "sketches": packed([full * given] * 3)}),
                (ev.Values, {**entry, **stepped(full * (not zeros), b"g", [] if gone and zeros else [0, 1])}),
                (ev.Values, {**entry, **stepped(full, b"%d" % moves(rank, number), [0, 1]), "at_moment": "U"}),
                step(9, number=number, collectives=int(calls)),
            ]  # fmt: skip
            if others:
                records += [
                    (ev.Values, {**entry, **stepped(full, b"g", [2]), "optimizer": 1}),
                    (ev.Values, {**entry, **stepped(full, b"u", [2]), "optimizer": 1, "at_moment": "U"}),
                    step(10, number=number, optimizer=1),
                ]
        every.append(records)
    return judge(world(*every)).findings


def test_a_rank_without_a_partner():
    (found,) = judged(lambda rank, number: number % 3 == rank)
    assert (found.severity, found.ranks, found.where.line, found.count) == ("warning", (0, 1, 2), 9, 3)


@pytest.mark.parametrize("more", [
    {"empty": lambda rank, number: False},
    {"empty": lambda rank, number: number == rank == 1},  # once
    {"empty": lambda rank, number: number % 3 == 0},  # all ranks leave it out
    {"empty": lambda rank, number: number % 3 == rank, "exchanged": lambda rank, number: True},  # agreed
    {"empty": lambda rank, number: number % 3 == rank, "given": 0.0},
    {"empty": lambda rank, number: rank == 1},  # it trains nothing at all
    {"empty": lambda rank, number: number % 3 == rank, "exchanged": lambda rank, number: False},  # each by itself
])  # fmt: skip
def test_where_none_is_lost(more):
    assert judged(**more) == ()


@pytest.mark.parametrize("gone", [False, True])
def test_a_model_that_is_never_stepped(gone):
    """zero_grad() before step(), on all ranks: nothing has moved from the first step to the last."""
    (found,) = judged(lambda rank, number: True, gone=gone, moves=lambda rank, number: 0)
    assert (found.severity, found.ranks, found.step, "zero_grad()" in found.cause) == ("error", (0, 1, 2), 0, True)


@pytest.mark.parametrize("more", [
    {"moves": lambda rank, number: number},  # by something else, or by a decay
    {"moves": lambda rank, number: 0, "given": 0.0},
    {"moves": lambda rank, number: 0, "others": True},  # they are left out on purpose
    {"moves": lambda rank, number: 0, "rounds": 2},
    {"moves": lambda rank, number: 0, "empty": lambda rank, number: number > 0},
])  # fmt: skip
def test_a_model_that_learns_by_another_way(more):
    assert judged(**{"empty": lambda rank, number: True, "gone": True, **more}) == ()
