"""Devices that wait in queued calls, and hosts that wait for them: over calls and pulses written by hand."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.judging.deadlock import all_waits, certain
from ddpcheck.judging.device_waits import computes, waits_for_what_is_not_known
from ddpcheck.judging.standstill import standstill
from ddpcheck.judging.world import Moment
from tests.judging.hung_worlds import NOW, device_waits, left, on_device, pulse, queued, waits
from tests.judging.written import call, ended, file, rank, step, world


def live(*ranks, now=NOW):
    """A world that runs: no process has ended."""
    return world(*ranks, exit_code=None, now=Moment(at=now))


def stuck(*ranks, now=NOW):
    """The ranks that are stuck for certain."""
    found = certain(live(*ranks, now=now))
    return None if found is None else tuple(wait.rank for wait in found.waits)


def waiting(*ranks, now=NOW):
    """Those that wait, in which call."""
    return {r: wait.call.op for r, wait in all_waits(live(*ranks, now=now)).items()}


# --- deadlocks that are certain


def test_hosts_that_wait_for_devices_in_different_calls_are_stuck():
    """As under gloo: neither device comes out of its call, and neither host does anything else."""
    assert stuck(device_waits("all_reduce"), device_waits("all_gather")) == (0, 1)
    assert stuck(device_waits("all_reduce"), waits("barrier")) == (0, 1)


@pytest.mark.parametrize("end", [[left()], [ended()], [queued(number=1), queued(number=2), left()]])
def test_a_partner_that_has_left_will_not_come(end):
    """Its host has ended without the call that the device is in."""
    assert stuck([*[queued(number=n) for n in (1, 2, 3)], on_device(4)], end) == (0,)


def test_a_host_that_sleeps_may_come_on():
    """Its device waits, and it is in no call that is known to wait for that: it may yet call what the other lacks."""
    sleeps, elsewhere = [queued(), on_device(2, awaits="")], device_waits(group="0,1#1")
    assert stuck(sleeps, elsewhere) is None
    assert waiting(sleeps, elsewhere) == {0: "all_reduce", 1: "all_reduce"}, "for --stall-timeout"
    assert stuck(sleeps, [step(7), pulse(None, 8, "sleep")]) is None
    assert stuck(sleeps, [queued("all_gather"), step(7)]) is None, "its device may not have come to its own call"


@pytest.mark.parametrize("other", [device_waits("all_gather"), waits("barrier"), device_waits(detail="float32 x 4")])
def test_calls_that_have_met_are_stuck(other):
    """The devices are in different calls of one number: nothing that the hosts may still call comes before these."""
    asleep = [queued(), on_device(2, awaits="")]
    assert stuck(asleep, other) == (0, 1)
    assert stuck(asleep, other, [step(7)]) == (0, 1), "a third rank cannot make them one"


def test_calls_that_have_met_are_stuck_after_one_of_them_has_ended():
    """A call with fewer elements may end on one rank, which goes on; the other one's waits for what has gone by."""
    asleep = [queued("ddp-gradients", number=4), on_device(2, awaits="")]
    last = queued("ddp-gradients", number=5)
    for call_after in ([last, on_device(3)], [last, on_device(3, awaits="")], [call(5, 9), pulse(3, 9)]):
        assert 0 in stuck(asleep, [queued("all_reduce", number=4), *call_after])
        assert stuck(asleep, [queued("ddp-gradients", number=4), *call_after]) is None, "the same call"
    assert stuck(asleep, [queued("all_reduce", number=4), last, step(7)]) is None, "its device may not have come to it"
    assert stuck(asleep, [queued("all_reduce", number=4), last, on_device(3, since=None)]) is None, "nor here"
    left_over = [queued("ddp-gradients", 4), call(4, 7, "ddp-unfinished", waits=False)]
    assert stuck(asleep, [*left_over, queued("all_reduce", 5), on_device(4, awaits="")]) is None, "it may reduce later"


def test_a_device_waits_for_good_for_a_rank_that_is_gone():
    """Whatever its host does; an asynchronous call that was waited for late as well."""
    for queue in (queued(), queued(waits=False)):
        assert stuck([queue, on_device(2, awaits="")], [left()]) == (0,)
        assert stuck([queue, on_device(2, awaits="")], [left()], [step(7)]) == (0,)
    assert stuck([queued("broadcast", peer=0), on_device(2, awaits="")], [left()]) is None, "a source needs nobody"


def test_a_device_that_is_slow_is_not_stuck():
    """It computes what comes before the call; or all ranks have come to it, and it takes its time."""
    computing = [queued(), on_device(2, since=None)]
    assert stuck(computing, device_waits("all_gather")) is None
    assert waiting(computing, []) == {}
    assert stuck(device_waits(), device_waits()) is None
    assert stuck(device_waits(), [queued()]) is None, "the other's host has come, its device may yet"


def test_an_asynchronous_send_may_be_done():
    """It takes no receiver to begin with, and is waited for late: the device may compute what was queued since."""
    sends = [queued("isend", 1, peer=1, waits=False), on_device(2)]
    receives = [queued("irecv", 1, peer=1, waits=False), on_device(2)]
    assert stuck(sends, waits("barrier")) is None
    assert waiting(sends, []) == {0: "isend"}, "for --stall-timeout"
    assert stuck(receives, waits("barrier")) == (0, 1)
    assert stuck([queued("send", 1, peer=1), on_device(2)], waits("barrier")) == (0, 1)


def test_ranks_that_merely_run_ahead_are_not_stuck():
    """Their hosts move, are told of each second, or have written something since."""
    moving = [queued(), on_device(2, at=NOW - 1)]
    assert stuck(moving, device_waits("all_gather")) is None
    assert waiting(moving, []) == {}
    assert waiting([*device_waits(), step(7)], []) == {}
    assert waiting([*device_waits(), queued(number=2)], []) == {}


def test_it_must_have_lasted():
    """A device that has come to the call a moment ago is not stuck, wherever its host has been all the time."""
    assert stuck([queued(), on_device(2, since=NOW - 2)], device_waits("all_gather")) is None
    assert stuck([queued(), on_device(2, since=NOW - 2)], device_waits("all_gather"), now=NOW + 4) == (0, 1)


def test_what_is_written_beside_the_main_thread_does_not_count():
    """It is still where it was; a call that is written down late has a lower number."""
    beside = file("write", "open", "/log", 7, thread="saver")
    flight = ev.FlightRecord, {"call": 2, "name": "nccl:all_reduce", "sizes": [[4]], "state": "started", "site": 0}
    flight[1].pop("site")
    assert stuck([*device_waits(), beside, flight], device_waits("all_gather")) == (0, 1)


def test_a_rank_at_work_may_come():
    """One that is in no call at all may call what is lacking."""
    assert stuck(device_waits(), [step(7), pulse(None, 8, "sleep")]) is None
    assert waiting(device_waits(), []) == {0: "all_reduce"}


# --- a host that is in a call, while its device waits in another


def test_the_call_that_the_device_is_in_comes_first():
    """What was queued first is what is missing. The host's own call may end before it, so that nothing is certain."""
    behind = [queued(), call(2, 6), on_device(2, line=6, pending=3, awaits="", since=0.0)]
    other = waits("barrier", group="0,1#1")
    assert waiting(behind, other) == {0: "all_reduce", 1: "barrier"}
    assert stuck(behind, other) is None


def test_a_call_that_all_have_come_to_is_not_what_is_missing():
    """The other rank has queued it too, and makes no barrier."""
    behind = [queued(), call(2, 6), on_device(2, line=6, pending=3, awaits="")]
    assert waiting(behind, [queued(), left()]) == {0: "barrier"}
    assert stuck(behind, [queued(), left()]) == (0,)


def test_a_backward_of_which_all_is_queued_may_go_on():
    """Its host has much to queue; nothing holds it. The first call of a group waits for the others on the host."""
    slow = [queued("ddp-gradients", 3), pulse(2)]
    assert stuck(slow, waits("all_gather", 3)) is None
    assert stuck([queued("all_reduce", 3), pulse(2)], waits("all_gather", 3)) is None
    assert stuck([queued("all_reduce", 1), pulse(2)], waits("all_gather", 1)) == (0, 1)


def test_a_queued_call_with_no_word_since_is_over():
    """It has returned at once, and native code is at work after it."""
    assert stuck([queued()], waits("all_gather")) is None
    assert stuck([call(1, 5, "all_reduce")], waits("all_gather")) == (0, 1)


# --- a device at work


def test_a_device_computes_before_its_call_or_in_what_nobody_knows():
    """A host that waits for a device which is in no known call waits for what it computes."""

    def says(*records):
        return computes(rank(0, records).process)

    assert says(queued(), on_device(2, since=None))
    assert says(queued(), on_device(None, since=None, awaits="item"))
    assert not says(*device_waits())
    assert not says(queued(), on_device(None, since=None, awaits=""))
    assert not says(queued(), on_device(2, since=None), step(7))
    assert not says()


@pytest.mark.parametrize("awaits", ["item", ""])
def test_a_device_may_be_in_a_call_that_nobody_has_waited_for(awaits):
    """How far that is, is not known: its host may wait for the other ranks."""

    def says(*records, at=None):
        process = rank(0, [*records, on_device(at, since=None, awaits=awaits)]).process
        return computes(process), waits_for_what_is_not_known(process)

    not_waited_for = queued(waits=False)
    waited_for = [not_waited_for, call(1, 6, "wait", of=2, queued=True)]
    awaiting = bool(awaits)
    assert says(not_waited_for) == (False, awaiting)
    assert says(*waited_for) == (awaiting, False)
    assert says(queued(number=1), queued(number=2, waits=False)) == (False, awaiting)
    assert says(not_waited_for, queued(number=2)) == (awaiting, False), "the device has done what came later"
    assert says(not_waited_for, queued(number=2), at=3) == (False, awaiting), "it comes before what the device is at"
    assert says(queued(number=1), not_waited_for, at=2) == (True, False), "it comes after that"
    assert says(call(1, 5, waits=False)) == (awaiting, False), "gloo's is not queued"


# --- what is told


def test_the_rank_stands_where_its_host_does():
    """And its device waits in the call that was made at another line."""
    found = standstill(live(device_waits(), device_waits("all_gather")))
    first = found.stands[0]
    assert (first.state, first.on_device, first.where.line, first.pending.where.line) == ("waits", True, 6, 5)
    assert found.parted.number == 1
