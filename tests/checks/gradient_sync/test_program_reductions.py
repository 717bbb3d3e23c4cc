"""Gradients that the program reduces itself: to one rank alone, or not before every step."""

from __future__ import annotations

import msgspec
import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.gradient_sync import program_reductions
from tests.judging.own_reductions import BOTH, carried, optimizer, stepped
from tests.judging.written import exchanged, transfers, world

TO_ONE = [msgspec.structs.replace(one, alike=False, to_one=True) for one in BOTH]
AVERAGE = carried(0, "parameter")
MOVED = ev.MovedBetween, {"optimizer": 0, "number": 1, "moved": [0, 1]}
"""Something has written to the parameters, by whatever means: what rank 0 has saved after its step, for all we know."""


def judged(*ranks):
    """How often it looked; each finding's severity, subject and step."""
    checked, findings = program_reductions.judge(world(*ranks))
    return checked, [(f.severity, f.subject, f.step) for f in findings]


def to_one(letters, *records, first=TO_ONE, others=0):
    """Two steps with these gradients, which leave parameters as different as they are."""
    steps = [stepped(letters, letters), *records, stepped(letters, letters, 1)]
    return [optimizer(), exchanged(0, *first), *steps, transfers(others=others)]


def test_a_sum_that_one_rank_has_while_all_of_them_step():
    """The finding is of every step, and names the rank's own call."""
    assert judged(to_one("gh"), to_one("ij")) == (2, [("error", "a", 0)])


@pytest.mark.parametrize("how", [
    {"first": [carried(0, alike=False), carried(1, number=1, alike=False)]},  # sent to a neighbour, for instance
    {"first": [msgspec.structs.replace(one, group="0#1") for one in TO_ONE]},
])  # fmt: skip
def test_what_is_no_such_sum(how):
    assert judged(to_one("gh", **how), to_one("ij", **how)) == (0, [])


@pytest.mark.parametrize("record", [
    exchanged(1, *TO_ONE, AVERAGE, carried(1, "parameter")),  # rank 0's parameters are broadcast after its step
    exchanged(1, carried(0)),  # only the first step was of this kind
    exchanged(1, *TO_ONE, lost=True),
    MOVED,
])  # fmt: skip
def test_what_becomes_of_such_a_sum_is_not_known(record):
    assert judged(to_one("gh", record), to_one("ij", record)) == (0, [])


def test_what_else_goes_between_the_ranks_is_no_excuse():
    """Such as an average of metrics, or a file that is read: nothing has written to the parameters between steps."""
    assert judged(to_one("gh", others=1), to_one("ij", others=1)) == (2, [("error", "a", 0)])
    ours, theirs = windows("gh", "ij", "kl", others=1), windows("gh", "mn", "op", others=1)
    assert judged(ours, theirs) == (1, [("warning", "a", 1)])


def test_such_sums_that_do_no_harm():
    """Whoever steps has the same all the same."""
    assert judged(to_one("gh"), to_one("gh")) == (2, [])


def test_such_sums_that_differ_and_change_nothing():
    """No finding, and not held either: the gradients were not the same."""
    ranks = [[optimizer(), exchanged(0, *TO_ONE), stepped(letters), transfers()] for letters in ("gh", "ij")]
    assert judged(*ranks) == (0, [])


def windows(*letters, left_out=1, resumed=True, others=0, between=()):
    """Steps with these gradients and parameters; before one of them nothing is reduced."""
    made = [optimizer(), exchanged(0, *BOTH)]
    for number, one in enumerate(letters):
        if number == left_out:
            made += [exchanged(number), *between]
        if number == left_out + 1 and resumed:
            made.append(exchanged(number, *BOTH))
        made.append(stepped(one, one, number))
    return [*made, transfers(others=others)]


def test_a_reduction_that_one_window_is_without():
    assert judged(windows("gh", "ij", "kl"), windows("gh", "mn", "op")) == (1, [("warning", "a", 1)])


@pytest.mark.parametrize(("ours", "theirs", "how"), [
    (("gh", "ij", "kl"), ("gh", "mn", "op"), {"resumed": False}),  # from then on each rank means to train its own
    (("gh", "ij", "kl"), ("gh", "mn", "op"), {"between": [MOVED]}),
    (("gh", "ij", "kl"), ("gh", "mn", "kl"), {}),  # they are together again
    (("gh", "ij", "kl"), ("qr", "mn", "op"), {}),  # apart from the beginning
    (("gh", "ij", "kl"), ("gh", "ij", "kl"), {}),  # and there was nothing to reduce
    (("gh", "ij", "kl"), ("gh", "mn", "op"), {"between": [exchanged(1, AVERAGE, carried(1, "parameter"))]}),
])  # fmt: skip
def test_windows_that_may_be_without(ours, theirs, how):
    """Nothing is claimed: the program may mean it, or has set it right."""
    assert judged(windows(*ours, **how), windows(*theirs, **how))[1] == []
