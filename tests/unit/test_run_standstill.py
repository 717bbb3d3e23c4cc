"""Where the ranks of a hung program stand: over evidence written by hand, whole, thinned and missing."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.standstill import parting, standstill
from ddpcheck.checks.world import Process, Rank, Stretch, World
from ddpcheck.model import CallSite


def rank(number, *records, exit_code=None, signal=None):
    """A rank with records that are numbered in their order, ten a second; site 4 is line 4."""
    process = Process(f"p{number}")
    joining = {"world_size": 3, "token": "t", "backend": "gloo", "local_rank": number, "local_world_size": 3}
    joined = ev.Joined(n=1, at=0.1, rank=number, site=0, **joining)
    sites = [
        ev.Site(n=0, at=0.0, id=line, file="t.py", line=line, function="f", text=f"line {line}")
        for line in range(1, 10)
    ]
    made = [kind(**{"n": n, "at": n / 10, **fields}) for n, (kind, fields) in enumerate(records, 2)]
    process.add([*sites, joined, *made])
    return Rank(Stretch(process, joined, 0, float("inf")), exit_code, signal)


def call(op="all_reduce", number=1, site=4, detail="float32[2]", group="world", **more):
    return ev.Call, {"op": op, "group": group, "number": number, "detail": detail, "site": site, **more}


def pulse(pending, site=4, since=0.0):
    return ev.Pulse, {"site": site, "doing": "wait", "pending": pending, "since": since}


def ended(code=None, how="exit"):
    return ev.Ended, {"how": how, "code": code, "site": 0, "groups": 0, "threads": [], "children": []}


def stand(*records, **more):
    (found, *_) = standstill(World([rank(0, *records, **more), rank(1), rank(2)], 3)).stands
    return found


# --- one rank


def test_a_rank_waits_where_its_pulse_says():
    """The pending call is the pulse's, the last one is the one before, and the wait is measured to the last record."""
    found = stand(call(number=1, site=3), call("barrier", number=2, detail=""), pulse(3, since=0.3))
    assert (found.state, found.where, found.code) == ("waits", CallSite(file="t.py", line=4, function="f"), "line 4")
    assert (str(found.last), found.last.where.line) == ("all_reduce float32[2]", 3)
    assert (str(found.pending), found.pending.number) == ("barrier", 2)
    assert found.waited == pytest.approx(0.1)


def test_a_pulse_of_an_earlier_call_says_nothing():
    """A rank that has called again since waits in the later call, or nowhere."""
    found = stand(call(number=1), pulse(2), call("barrier", number=2, detail="", site=5))
    assert (found.state, str(found.pending), found.where.line) == ("waits", "barrier", 5)
    found = stand(call(number=1), pulse(2), call("barrier", number=2), (ev.Left, {"site": 5}))
    assert (found.state, found.how) == ("ended", "left the group")
    found = stand(call(number=1), pulse(2), call("isend", number=2, waits=False))
    assert (found.state, found.pending) == ("runs", None)


def test_a_rank_elsewhere_is_where_it_is():
    """A pulse without a call has its line, and the last call behind it."""
    found = stand(call(number=1), pulse(None, site=7, since=None))
    assert (found.state, found.where.line, found.pending, found.last.number) == ("runs", 7, None, 1)
    found = stand()
    assert (found.state, found.where, found.last) == ("runs", None, None)


def test_waiting_for_an_asynchronous_call_names_it():
    """What is awaited has a name of its own."""
    found = stand(call(number=1, waits=False), call("wait", number=1, of=2), pulse(3))
    assert str(found.pending) == "wait() for all_reduce float32[2]"


def test_calls_that_were_written_late_are_put_in_order():
    """A call that stood in memory until the wait lasted is still the one before the pending one."""
    found = stand(call(number=2, n=5, at=0.5), call(number=1, n=4, at=0.4), pulse(5))
    assert (found.pending.number, found.last.number) == (2, 1)


@pytest.mark.parametrize(
    ("records", "more", "how"),
    [
        ([ended()], {"exit_code": 3}, "ended with exit code 3"),
        ([ended(code=0, how="os._exit")], {}, "ended with exit code 0"),
        ([ended()], {}, "ended"),
        ([], {"exit_code": 0}, "ended with exit code 0"),
        ([], {"signal": 11}, "was killed by SIGSEGV"),
        ([(ev.Raised, {"kind": "E", "message": "", "text": "", "site": 4, "lost_peer": False})], {}, "raised E"),
    ],
)
def test_a_rank_that_has_ended_says_how(records, more, how):
    """Its own end is told; the signal that ended the whole program is none of its own."""
    found = stand(call(number=1), *records, **more)
    assert (found.state, found.how) == ("ended", how)
    assert stand(call(number=1), signal=15).state == "waits"


def test_a_rank_that_never_came():
    """A number that nobody joined as has its place."""
    assert [s.state for s in standstill(World([rank(1)], 3)).stands] == ["never-joined", "runs", "never-joined"]


# --- where they part


def parted(*ranks, size=3):
    found = parting(World([rank(number, *records) for number, records in enumerate(ranks)], size))
    return found and (found.group, found.number, {r: c and str(c) for r, c in found.calls.items()})


def test_ranks_part_at_the_first_call_that_differs():
    """Another operation, or another shape, or none at all."""
    same = [call(number=1), call(number=2)]
    assert parted(same, same, same) is None
    assert parted(same, [same[0], call("barrier", number=2, detail="")], same) == (
        "world",
        2,
        {0: "all_reduce float32[2]", 1: "barrier", 2: "all_reduce float32[2]"},
    )
    assert parted(same, [same[0], call(number=2, detail="float32[3]")], same)[1] == 2
    assert parted(same, same[:1], same)[2] == {0: "all_reduce float32[2]", 1: None, 2: "all_reduce float32[2]"}
    assert parted(same, [], same)[1] == 1


def test_a_call_that_was_not_written_down_is_no_difference():
    """A number that is missing between others says nothing."""
    assert parted([call(number=1), call(number=3)], [call(number=3)], [call(number=2), call(number=3)]) is None


def test_what_has_no_place_in_the_order_is_left_out():
    """Messages between two ranks, waits, and calls within join() are not compared."""
    other = [call("send", peer=1), call("wait", of=1), call(joined=True)]
    assert parted(other, [], []) is None


def test_groups_are_compared_by_their_members():
    """A group has the ranks of its name; the earliest difference of all groups counts."""
    late = call("barrier", number=1, detail="", at=9.0)
    group = {"group": "0,2#1"}
    same = call(**group)
    assert parted([same], [], [same]) is None
    assert parted([same, late], [], [call(detail="float32[9]", **group), late]) == (
        "0,2#1",
        1,
        {0: "all_reduce float32[2]", 2: "all_reduce float32[9]"},
    )


def test_ranks_that_are_missing_cannot_be_compared():
    """Without the evidence of all ranks nothing is said."""
    assert parted([call()], [], size=3) is None
