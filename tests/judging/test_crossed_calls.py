"""Lines whose calls match and do not meet themselves, over calls written by hand."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.judging.crossed_calls import crossings
from tests.judging.written import call, step, world


def calls(*lines, op="all_reduce", **more):
    """Calls that match, one from each of these lines."""
    return [call(number, line, op, **more) for number, line in enumerate(lines, 1)]


def found(*ranks):
    """What is crossed: whether it is sure, the line, and the numbers of the first meetings."""
    return [(one.sure, one.way[-1].line, one.first.number, one.then.number) for one in crossings(world(*ranks))]


def test_a_line_that_meets_other_lines_alone():
    """Rank 0 reduces something first that rank 1 reduces last: line 6 is on both, and meets 5 and 7."""
    assert found(calls(5, 6), calls(6, 7)) == [(True, 6, 1, 2)]
    assert found(calls(5, 6, 8), calls(6, 8, 5)) == [(True, 5, 1, 3)]
    first = crossings(world(calls(5, 6), calls(6, 7)))[0].first
    assert (first.kind, first.odd) == ("line", (0,))


def test_of_many_ranks_the_two_that_differ_are_named():
    """The others are like one of them."""
    (one,) = crossings(world(calls(6, 7), calls(6, 7), calls(5, 6)))
    assert (one.sure, sorted(one.first.calls), one.first.odd) == (True, [0, 2], (2,))


def test_lines_of_one_helper_are_told_by_their_callers():
    """A helper's own line is the same in all calls."""
    sites = [
        (ev.Site, {"id": 200 + line, "file": "a.py", "line": 3, "function": "f", "text": "", "caller": line})
        for line in (5, 6, 7)
    ]
    assert found([*sites, *calls(205, 206)], [*sites, *calls(206, 207)]) == [(True, 3, 1, 2)]


def test_a_line_of_each_rank_s_own_for_one_call_is_right():
    """Whatever is before and behind it."""
    assert found(calls(5, 6, 8), calls(5, 7, 8)) == found(calls(5, 6), calls(7, 8)) == []


def test_branches_that_ranks_take_in_turn_are_not_known_to_be_crossed():
    """One rank gives what it has, and the others zeros; two lines in another order look the same."""
    assert found(calls(5, 6), calls(6, 5)) == [(False, 5, 1, 2)]
    assert found(calls(5, 6, 6), calls(6, 5, 6), calls(6, 6, 5)) == [(False, 5, 1, 2)]
    assert found(calls(5, 6, peer=0), [*calls(6, peer=0), call(2, 5, "all_reduce", peer=1)]) == []


def test_branches_by_each_rank_s_data_are_right():
    """A step has one call of them, or a line meets itself at times, or not as often on both ranks."""
    apart = [[call(1, 5, "all_reduce"), step(9), call(2, 6, "all_reduce")],
             [call(1, 6, "all_reduce"), step(9), call(2, 7, "all_reduce")]]  # fmt: skip
    assert found(*apart) == []
    assert found(calls(5, 6, 6), calls(6, 7, 6)) == []
    assert found(calls(5, 6, 6), calls(6, 7, 7)) == []


@pytest.mark.parametrize("op", ["barrier", "new_group", "ddp-gradients"])
def test_calls_without_values_of_their_own_may_meet_any_other(op):
    """A barrier is as good as the next one, and DDP knows its own buckets."""
    assert found(calls(5, 6, op=op), calls(6, 7, op=op)) == []


def test_other_threads_have_an_order_of_their_own():
    """Their calls come when they come."""
    assert found(calls(5, 6, thread="metrics"), calls(6, 7, thread="metrics")) == []


def test_nothing_is_said_of_calls_behind_those_that_do_not_match():
    """Their numbers stand for other calls."""
    one = [call(1, 9, "all_gather"), call(2, 5, "all_reduce"), call(3, 6, "all_reduce")]
    other = [call(1, 9, "barrier"), call(2, 6, "all_reduce"), call(3, 7, "all_reduce")]
    assert found(one, other) == []
