"""Gradients that are stepped on again, or thrown away, as a way of stepping or now and then."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.reducer_coverage import run as coverage
from tests.judging.written import step, world, wrapped


def optimizer(wrapper=0, torchs=True):
    parameters = [ev.Parameter(name="w", kind="float32[1]", wrapper=wrapper, reduced=True)]
    fields = {"optimizer": 0, "kind": "SGD", "site": 4, "parameters": parameters, "sharded": False}
    return ev.Optimizer, {**fields, "values": b"a" * ev.WIDTH, "torchs": torchs}


def rank(spent, wrapper=0, before=None, torchs=True):
    """Two steps by turns; what there is to tell of the first and of the second."""
    looked = {"gradients": b"g" * ev.WIDTH, "parameters": b"p" * ev.WIDTH}
    return [
        wrapped(3), optimizer(wrapper, torchs), step(9, **looked, spent=before and ev.Spent(**before)),
        step(11, number=1, place=1, backwards=0, **looked, spent=spent and ev.Spent(**spent)),
    ]  # fmt: skip


def found(*ranks):
    judged = coverage.judge(world(*ranks))
    return [(f.severity, f.where.line, f.count) for f in judged.findings]


@pytest.mark.parametrize(
    ("spent", "expected"),
    [
        ({"followed": 8, "again": 8}, [("error", 11, 8)]),
        ({"followed": 8, "again": 7}, [("error", 11, 7)]),
        ({"followed": 8, "again": 4}, []),
        # Once may be a rehearsal; and what other gradients come to nobody knows.
        ({"followed": 1, "again": 1}, []),
        ({"followed": 8, "again": 7, "other": 1}, []),
        ({"reduced": 4, "emptied": 4}, [("error", 9, 4)]),
        ({"reduced": 4, "emptied": 3}, []),
        ({"reduced": 1, "emptied": 1}, []),
        ({"windows": 5, "followed": 5}, []),
        (None, []),
    ],
)
def test_what_is_done_at_every_step(spent, expected):
    """On all ranks, and nearly always; now and then there may be a reason for it."""
    assert found(rank(spent), rank(spent)) == expected
    # One rank alone, or parameters that no wrapper holds: that is another matter.
    assert found(rank(spent), rank(None)) == []
    assert found(rank(spent, wrapper=None), rank(spent, wrapper=None)) == []


def test_the_last_word_counts():
    """What was so in the first steps, and never again, is no way of stepping."""
    rehearsed = {"followed": 2, "again": 2}
    last = {"followed": 40, "again": 2}
    assert found(rank(last, before=rehearsed), rank(last, before=rehearsed)) == []


def test_gradients_that_an_optimizer_of_the_users_own_has_taken():
    """Such a one may step on what it keeps elsewhere (``main_grad``), and the parameters' own gradients be gone."""
    emptied = {"reduced": 4, "emptied": 4}
    assert found(*[rank(emptied, torchs=False)] * 2) == []
    assert found(*[rank(emptied)] * 2) != []
