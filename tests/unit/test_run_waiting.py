"""Deadlocks that are certain, and hangs told afterwards: over calls and pulses written by hand."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.no_hang.run import judge
from ddpcheck.checks.rank_failure import run as endings
from ddpcheck.judging.deadlock import certain
from ddpcheck.judging.membership import worlds
from ddpcheck.judging.world import Moment, Process, World
from ddpcheck.vocabulary.model import CallSite
from tests.unit.written import call, ended, file, rank, step, world

NOW = 100.0


def pulse(pending, line=5, doing="wait", **more):
    return ev.Pulse, {"site": line, "doing": doing, "pending": pending, "since": 0.0, **more}


def left(line=9):
    return ev.Left, {"site": line}


def live(*ranks, now=NOW, size=None):
    """A world that runs: no process has ended."""
    return world(*ranks, exit_code=None, world_size=size, now=Moment(at=now))


def killed(*ranks, size=None, by=15):
    """A world that an agent has ended."""
    return world(*ranks, exit_code=None, signal=by, world_size=size)


def stuck(*ranks, now=NOW, size=None):
    """The ranks that are stuck for certain."""
    found = certain(live(*ranks, now=now, size=size))
    return None if found is None else tuple(wait.rank for wait in found.waits)


def waits(op="barrier", number=1, line=5, **more):
    """A rank that has made one call, and waits in it: the record has number 2."""
    return [call(number, line, op, **more), pulse(2, line)]


# --- certain


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


# --- a hang, told


def hang(*ranks, **more):
    judged = judge(killed(*ranks, **more))
    (finding,) = judged.findings
    return finding


def test_a_world_that_ended_well_does_not_hang():
    """Calls are what makes the check checked."""
    judged = judge(world([call(1, 5), call(2, 5, waits=False), ended()], [call(1, 5), ended()]))
    assert (judged.check, judged.checked, judged.findings) == ("no-hang", 2, ())
    judged = judge(world([ended()], [ended()]))
    assert (judged.checked, judged.skipped_because) == (0, "no rank has waited for another")


def test_a_hang_names_both_lines():
    """What each rank waits in and where, whom for, what it did before, and where the calls part."""
    before = call(1, 3, "all_reduce")
    finding = hang([before, call(2, 5), pulse(3, 5)], [before, call(2, 6, "ddp-gradients"), pulse(3, 6)])
    assert finding.found == (
        "a deadlock: rank 0 waits in barrier() at train.py:5 for rank 1; rank 1 waits in DDP's reduction of gradients "
        "in a backward at train.py:6 for rank 0. Here their calls part, after 1 equal call on the default group. "
        "Before that, ranks 0 and 1 made all_reduce() at train.py:3"
    )
    assert finding.subject == "call 2 on the default group"
    assert finding.where == CallSite(file="train.py", line=5, function="main")
    assert {site.line for _, site in finding.proof} == {5, 6}
    assert finding.links == ("stop", "call world 2")
    assert finding.also == ("collective-order",)


def test_ranks_that_wait_alike_are_told_together():
    """Many ranks make no long text."""
    odd = [call(1, 5), pulse(2, 5)]
    usual = [call(1, 6, "all_reduce"), pulse(2, 6)]
    finding = hang(usual, odd, usual, usual)
    assert "ranks 0, 2-3 wait in all_reduce() at train.py:6 for rank 1" in finding.found
    assert finding.ranks == (1,)


def test_a_rank_that_does_something_else():
    """No deadlock is certain: the rank that does not come is named with its line."""
    finding = hang(waits(), [pulse(None, 8, "sleep")])
    assert finding.found.startswith(
        "no progress: rank 0 waits in barrier() at train.py:5 for rank 1; rank 1 is at train.py:8, in sleep()"
    )
    assert (finding.ranks, finding.where.line) == ((1,), 8)
    assert finding.also == ()
    assert "something else that does not end" in finding.cause


def test_a_silent_rank_is_told_from_one_at_work():
    """No Python code ran in it: the line is where it was last seen, and the cause is not its own slowness."""
    both = killed(waits(), [pulse(None, 8, "sleep")])
    both.ranks[1].silent = 61.4
    (finding,) = judge(both).findings
    assert "rank 1 has run no Python code for 61 s, and was last seen at train.py:8" in finding.found
    assert "on rank 1 native code keeps the GIL" in finding.cause


def test_whose_silence_it_is():
    """A process is known by its host and pid; on another host the same pid is somebody else's."""
    quiet, busy = rank(0, []), rank(1, [])
    there = rank(1, [], host="other")
    ours = Process("ddpcheck")
    at = {"n": 1, "at": 1.0}
    ours.add(
        [
            ev.Began(**at, pid=1, parent=0, host="", node=0, argv=[], folder="/", wall=0.0),
            ev.Silent(**at, pid=quiet.process.pid, seconds=30.0),
            ev.Silent(**at, pid=there.process.pid, seconds=30.0),
        ]
    )
    (found,) = worlds([ours, quiet.process, there.process])
    assert [r.silent for r in found] == [30.0, 0.0]
    (found,) = worlds([quiet.process, busy.process])
    assert [r.silent for r in found] == [0.0, 0.0]


def test_a_hang_without_a_call():
    """Ranks that wait for a file, or a lock."""
    finding = hang([pulse(None, 8, "exists")], [pulse(None, 8, "exists")])
    assert (finding.ranks, finding.where.line) == ((0, 1), 8)
    assert finding.subject == "the program"
    assert "no collective" in finding.cause


def test_a_hang_without_any_evidence():
    """Ranks that were killed before the first pulse."""
    finding = hang([], [])
    assert "rank 0 is at work elsewhere" in finding.found
    assert finding.where is None


def test_a_reduction_left_over_is_the_cause():
    """The rank whose backward left parameters out is named, with its line."""
    over = call(1, 7, "ddp-unfinished", waits=False, of=2)
    behind = [call(1, 7, "ddp-gradients"), over, call(2, 6, "reduce", peer=0), pulse(4, 6)]
    finding = hang(waits("ddp-gradients", line=7), behind)
    assert (finding.ranks, finding.where.line) == ((1,), 7)
    assert "on rank 1 some parameters had no part in this backward" in finding.cause


def test_a_rank_at_its_end_is_no_hang():
    """Ranks that wait for their threads when the script is over are killed, and have not hung in the program."""
    judged = judge(killed([left(), pulse(None, 0, "_shutdown")], [left(), ended()]))
    assert judged.findings == ()


def test_a_failure_is_no_hang():
    """Who waits for a rank that has failed is its consequence."""
    error = (ev.Raised, {"kind": "ValueError", "message": "", "text": "", "site": 8, "lost_peer": False})
    over = World([rank(0, waits(), exit_code=None, signal=15), rank(1, [error], exit_code=1)], 2)
    judged = judge(over)
    assert judged.findings == ()


@pytest.mark.parametrize(("stopped", "check"), [(Moment(at=NOW), "no-hang"), (None, "rank-failure")])
def test_who_was_deaf_to_our_signal_has_not_failed(stopped, check):
    """A rank that SIGKILL had to end, when ddpcheck ended a hang: elsewhere it is the first to have gone."""
    ranks = [rank(0, waits(), exit_code=None, signal=15), rank(1, [pulse(None, 8)], exit_code=None, signal=9)]
    over = World(ranks, 2, stopped=stopped)
    assert [one.check for one in (judge(over), endings.judge(over)) if one.findings] == [check]
