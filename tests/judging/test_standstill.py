"""Where the ranks of a hung program stand: over evidence written by hand, whole, thinned and missing."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.judging.standstill import standstill
from ddpcheck.judging.world import Moment, Process, Rank, Stretch, World
from ddpcheck.vocabulary.model import CallSite


def site(line):
    return {"id": line, "file": "t.py", "line": line, "function": "f", "text": f"line {line}"}


def rank(number, *records, exit_code=None, signal=None):
    """A rank with records that are numbered in their order, ten a second; site 4 is line 4."""
    process = Process(f"p{number}")
    joining = {"world_size": 3, "token": "t", "backend": "gloo", "local_rank": number}
    joined = ev.Joined(n=1, at=0.1, rank=number, site=0, **joining)
    sites = [ev.Site(n=0, at=0.0, **site(line)) for line in range(1, 10)]
    made = [kind(**{"n": n, "at": n / 10, **fields}) for n, (kind, fields) in enumerate(records, 2)]
    process.add([*sites, joined, *made])
    return Rank(Stretch(process, joined, 0, float("inf")), exit_code, signal)


def call(op="all_reduce", number=1, site=4, detail="float32[2]", group="world", **more):
    return ev.Call, {"op": op, "group": group, "number": number, "detail": detail, "site": site, **more}


def pulse(pending, site=4, since=0.0):
    return ev.Pulse, {"site": site, "doing": "wait", "pending": pending, "since": since}


def ended(code=None, how="exit"):
    return ev.Ended, {"how": how, "code": code, "site": 0, "groups": 0}


def stand(*records, **more):
    (found, *_) = standstill(World([rank(0, *records, **more), rank(1), rank(2)], 3)).stands
    return found


# --- one rank


def test_a_rank_that_lives_on_behind_its_end_stands_where_it_was_seen():
    """ddpcheck has ended it; one that had ended before has ended."""
    records = pulse(None, site=3), (ev.Left, {"site": 5})
    world = World([rank(0, *records, signal=15), rank(1, *records, exit_code=0), rank(2)], 3)
    world.stopped = Moment(at=9.0)
    first, second, _ = standstill(world).stands
    assert (first.state, first.where.line) == ("runs", 5)
    assert (second.state, second.how) == ("ended", "ended with exit code 0")


def test_a_rank_waits_where_its_pulse_says():
    """The pending call is the pulse's, the last one is the one before, and the wait is measured to the last record."""
    found = stand(call(number=1, site=3), call("barrier", number=2, detail=""), pulse(3, since=0.3))
    assert (found.state, found.where, found.code) == ("waits", CallSite(file="t.py", line=4, function="f"), "line 4")
    assert (found.last.name, found.last.where.line) == ("all_reduce(float32[2])", 3)
    assert (found.pending.name, found.pending.number) == ("barrier()", 2)
    assert found.waited == pytest.approx(0.1)


def test_a_pulse_of_an_earlier_call_says_nothing():
    """A rank that has gone on since waits nowhere that is known."""
    found = stand(call(number=1), pulse(2), call("isend", number=2, waits=False))
    assert (found.state, found.pending, found.last.op) == ("runs", None, "isend")
    found = stand(call(number=1), pulse(2), call("barrier", number=2), (ev.Left, {"site": 5}))
    assert (found.state, found.how) == ("ended", "left the group")


def test_a_rank_elsewhere_is_where_it_is():
    """A pulse without a call has its line, and the last call behind it."""
    found = stand(call(number=1), pulse(None, site=7, since=None))
    assert (found.state, found.where.line, found.pending, found.last.number) == ("runs", 7, None, 1)
    found = stand()
    assert (found.state, found.where, found.last) == ("runs", None, None)


def test_waiting_for_an_asynchronous_call_names_it():
    """The pending call is the one that is waited for, the line that of the waiting."""
    found = stand(call(number=1, waits=False), call("wait", number=1, of=2, site=5), pulse(3, site=5))
    assert (found.pending.name, found.pending.where.line, found.where.line) == ("all_reduce(float32[2])", 4, 5)
    assert found.last is None


def test_calls_that_were_written_late_are_put_in_order():
    """A call that stood in memory until the wait lasted is still the one before the pending one."""
    found = stand(call(number=2, n=5, at=0.5), call(number=1, n=4, at=0.4), (ev.Site, site(9)), pulse(5))
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
    assert stand(call(number=1), pulse(2), signal=15).state == "waits"


def test_a_rank_that_never_came():
    """A number that nobody joined as has its place."""
    assert [s.state for s in standstill(World([rank(1)], 3)).stands] == ["never-joined", "runs", "never-joined"]


# --- where they part


def test_the_ranks_calls_are_put_side_by_side():
    """The first call that differs is told for every rank of its group; equal calls part nowhere."""
    same = [call(number=1), call(number=2)]
    other = [call(number=1), call("barrier", number=2, detail="", site=5)]
    found = standstill(World([rank(0, *same), rank(1, *other), rank(2, *same[:1])], 3)).parted
    assert (found.group, found.number) == ("world", 2)
    assert {r: c and (c.name, c.where.line) for r, c in found.calls.items()} == {
        0: ("all_reduce(float32[2])", 4),
        1: ("barrier()", 5),
        2: None,
    }
    assert standstill(World([rank(r, *same) for r in range(3)], 3)).parted is None


def test_a_world_without_a_rank_can_be_told():
    """The ranks that are there are compared, those that are not have no call."""
    found = standstill(World([rank(0, call()), rank(1, call("barrier", detail=""))], 3))
    assert list(found.parted.calls) == [0, 1]
    assert found.stands[2].state == "never-joined"
