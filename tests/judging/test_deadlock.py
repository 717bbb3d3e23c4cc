"""Deadlocks that are certain, over calls and pulses written by hand."""

from __future__ import annotations

import pytest

from ddpcheck.judging.deadlock import certain
from ddpcheck.judging.world import Moment, World
from tests.judging.hung_worlds import NOW, left, pulse, waits
from tests.judging.written import call, ended, file, rank, step, world


def live(*ranks, now=NOW, size=None):
    """A world that runs: no process has ended."""
    return world(*ranks, exit_code=None, world_size=size, now=Moment(at=now))


def stuck(*ranks, now=NOW, size=None):
    """The ranks that are stuck for certain."""
    found = certain(live(*ranks, now=now, size=size))
    return None if found is None else tuple(wait.rank for wait in found.waits)


def test_other_calls_of_one_number_are_a_deadlock():
    """Two ranks that wait in different calls wait for ever."""
    assert stuck(waits("barrier"), waits("ddp-gradients")) == (0, 1)
    assert stuck(waits("all_reduce", detail="float32 x 2"), waits("all_reduce", detail="float32 x 1")) == (0, 1)


def test_one_call_that_all_are_in_is_none():
    """However long it takes, it may come to its end; wrappers are numbered by each process."""
    assert stuck(waits("barrier"), waits("barrier")) is None
    assert stuck(waits("ddp-gradients", detail="wrapper 0"), waits("ddp-gradients", detail="wrapper 1")) is None


def test_a_rank_at_work_may_come():
    """A rank that computes, saves or sleeps is slow, and not stuck; nor is who waits for it."""
    assert stuck(waits(), []) is None
    assert stuck(waits(), [step(7), pulse(None, 8, "sleep")]) is None
    assert stuck(waits(), waits("send", peer=2), [], size=3) is None


def test_a_rank_that_is_not_known_may_come():
    """A rank without evidence is not held to be gone."""
    assert stuck(waits(), waits("all_reduce"), size=3) == (0, 1)
    assert stuck(waits(), size=2) is None


@pytest.mark.parametrize("end", [[left()], [ended()], [ended(how="os._exit", code=0)]])
def test_a_partner_that_is_gone_will_not_come(end):
    """A rank that has left the group, or ended, comes to no call."""
    assert stuck(waits(), end) == (0,)


def test_a_partner_whose_script_is_over_will_not_come():
    """A main thread that waits for other threads at the very end is as good as gone."""
    assert stuck(waits(), [pulse(None, 0, "_shutdown")]) == (0,)


def test_a_call_that_the_other_has_made_before_it_left_may_come_to_its_end():
    """What is gone has been there."""
    assert stuck(waits(), [call(1, 5), left()]) is None


def test_ranks_that_are_silent_in_a_call_are_stuck():
    """Native code keeps the interpreter, so that no pulse tells of it: the calls are on record, and cannot end."""
    first, second = (call(1, 5, "new_group", detail=f"ranks {ranks}") for ranks in ("0,1", "0"))
    beginning = pulse(None, at=0.4)
    assert stuck([first], [second]) == stuck([first, beginning], [second, beginning]) == (0, 1)
    assert stuck([first], [second], now=3.0) is None, "they may be about to tell"


def test_a_silent_rank_that_may_have_gone_on_is_not_stuck():
    """It computes in native code, after a call that others have come to, or that does not wait for them."""
    assert stuck([call(1, 5)], [call(1, 5), call(2, 6), pulse(3, 6)]) is None
    assert stuck([call(1, 5, "broadcast", peer=0)], waits("all_reduce")) is None
    assert stuck([call(1, 5, "send", peer=1)], waits("all_reduce")) is None


def test_a_rank_that_was_heard_of_after_a_call_has_left_it():
    """A step on record, or a pulse that tells of no waiting when it would."""
    assert stuck([call(1, 5), step(6)], waits("all_reduce")) is None
    assert stuck([call(1, 5), pulse(None, at=2.0)], waits("all_reduce")) is None


def test_a_dead_process_will_not_come():
    """A rank whose process has ended, by whatever signal, is gone."""
    over = World([rank(0, waits(), exit_code=None), rank(1, [], exit_code=None, signal=9)], 2, now=Moment(at=NOW))
    assert certain(over) is not None


def test_a_wait_must_have_lasted():
    """A pulse that is a moment old may be out of date."""
    fresh = [call(1, 5), pulse(2, at=NOW - 0.3)]
    assert stuck(fresh, waits("all_reduce")) is None
    assert stuck(fresh, waits("all_reduce"), now=NOW + 1) == (0, 1)


def test_clocks_of_two_machines_are_not_compared():
    """A pulse from the future is one of another machine's."""
    assert stuck([call(1, 5), pulse(2, at=NOW + 5000)], waits("all_reduce")) == (0, 1)


def test_a_rank_that_has_gone_on_waits_no_more():
    """Whatever its main thread has written after its call counts; what another thread writes does not."""
    assert stuck([*waits(), step(7)], waits("all_reduce")) is None
    assert stuck([*waits(), pulse(None)], waits("all_reduce")) is None
    beside = file("write", "open", "/log", 7, thread="saver")
    assert stuck([*waits(), beside], waits("all_reduce")) == (0, 1)


def test_a_ring_of_groups_is_a_deadlock():
    """Each waits in a group of two for the next one, which waits elsewhere."""
    ring = [
        waits(group="0,1#1"),
        waits(group="1,2#1"),
        waits(group="0,2#1"),
    ]
    assert stuck(*ring) == (0, 1, 2)
    assert stuck(ring[0], [*ring[1][:1], call(1, 5, group="0,1#1"), pulse(3)], ring[2]) is None


def test_whoever_waits_for_the_stuck_is_stuck():
    """A deadlock of two takes those with it that wait for them, and no others."""
    own = [call(1, 5, group="0,2#1"), pulse(2)]
    assert stuck(own, waits("all_reduce"), waits("ddp-buffers"), waits("all_reduce", group="3,4#1"), [], size=5) == (
        0, 1, 2,
    )  # fmt: skip


@pytest.mark.parametrize("op", ["broadcast", "scatter", "ddp-buffers"])
def test_receivers_wait_for_the_source(op):
    """A receiver lacks the source; where that has come, anybody may be what it waits for."""
    assert stuck([left()], waits(op, peer=0)) == (1,)
    assert stuck(waits(op, peer=0), waits(op, peer=0), [left()]) == (0, 1)
    assert stuck(waits(op, peer=0), waits(op, peer=0), [left()], []) is None


def test_the_destination_waits_for_all():
    """A gathering rank lacks every other one, a sender only the destination."""
    assert stuck(waits("gather", peer=0), [left()], []) == (0,)
    assert stuck([left()], waits("gather", peer=0), []) == (1,)
    assert stuck([], waits("gather", peer=0), [left()]) is None


def test_messages_wait_for_their_partner():
    """A receive waits for a send to it, of its own number; one from anybody for all the others."""
    assert stuck(waits("recv", peer=1), [left()], []) == (0,)
    assert stuck(waits("recv", peer=1), waits("recv", peer=0)) == (0, 1)
    assert stuck(waits("recv", peer=1), [call(1, 5, "isend", peer=0, waits=False), left()]) is None
    assert stuck(waits("recv", number=2, peer=1), [call(1, 5, "isend", peer=0, waits=False), left()]) == (0,)
    assert stuck(waits("send", peer=1), [call(1, 5, "irecv", peer=0, waits=False), left()]) is None
    assert stuck(waits("send", peer=1), [left()]) == (0,)
    assert stuck(waits("recv"), [left()], []) is None
    assert stuck(waits("recv"), [left()], [left()]) == (0,)


def test_messages_whose_number_may_be_too_low_make_nothing_certain():
    """There were so many tags that this one may have been forgotten: on the one side, or on the other."""
    assert stuck(waits("recv", peer=1, sure=False), [left()]) is None
    again = call(1, 5, "isend", peer=0, waits=False, sure=False)
    assert stuck(waits("recv", number=2, peer=1), [again, left()]) is None


def test_waiting_for_an_asynchronous_call():
    """The call that is waited for counts."""
    own = [call(1, 5, "all_reduce", waits=False), call(1, 6, "wait", of=2), pulse(3, 6)]
    assert stuck(own, waits("barrier")) == (0, 1)
    assert stuck(own, waits("all_reduce")) is None


def test_a_reduction_that_is_left_over():
    """A rank whose backward has ended with parameters left out has not made its part, and may make it later."""
    over = call(1, 5, "ddp-unfinished", waits=False, of=2)
    behind = [call(1, 5, "ddp-gradients"), over, call(2, 6, "reduce", peer=0), pulse(4, 6)]
    assert stuck(waits("ddp-gradients"), behind) == (0, 1)
    assert stuck(waits("ddp-gradients"), behind[:2]) is None
    again = [*behind[:2], call(2, 5, "ddp-gradients"), pulse(4, 5)]
    assert stuck(waits("ddp-gradients"), again) is None


def test_making_a_group_waits_for_its_members():
    """Others may be late."""
    own = waits("new_group", detail="ranks 0,2")
    assert stuck(own, [left()], []) is None
    assert stuck(own, [], [left()]) == (0,)
    assert stuck(waits("new_group", detail="all ranks"), [left()], []) == (0,)


def test_calls_that_are_written_down_late():
    """A call may stand behind the pulse that tells of it, and others that were before it as well."""
    late = [pulse(4, n=9), call(1, 5, n=3), call(2, 5, n=4)]
    assert stuck(late, [call(1, 5), call(2, 6, "all_reduce"), pulse(3)]) == (0, 1)
    gone_on = [*late, call(3, 5, n=12)]
    assert stuck(gone_on, [call(1, 5), call(2, 6, "all_reduce"), pulse(3)], now=3.0) is None


def test_calls_within_join_are_never_certain():
    """There the others answer for who has finished."""
    assert stuck(waits(joined=True), [left()]) is None


def test_calls_of_other_threads_make_nothing_certain():
    """A rank whose main thread waits may still come to a call in another one."""
    beside = call(1, 7, group="0,1#1", thread="saver")
    assert stuck([*waits(), beside], waits("all_reduce")) is None


def test_groups_that_nobody_knows_are_never_certain():
    """Without its members a call says nothing."""
    assert stuck(waits(group="?"), [left()]) is None


def test_a_pending_call_that_is_not_on_record_says_nothing():
    """A full disk, or a file that is torn."""
    assert stuck([step(7), pulse(40)], waits("all_reduce")) is None


def test_numbers_that_are_not_on_record_may_have_come():
    """A rank of which a later call is on record has been at those before."""
    assert stuck(waits(number=5), [call(4, 5), call(7, 5), left()]) is None
