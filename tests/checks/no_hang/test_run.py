"""The judge of no-hang: hangs told afterwards, over calls and pulses written by hand."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.registry import checks, judge_of
from ddpcheck.judging.membership import worlds
from ddpcheck.judging.standstill import standstill
from ddpcheck.judging.world import Moment, Process, World
from ddpcheck.verdict.verdict import results_of
from ddpcheck.vocabulary.model import CallSite
from tests.judging.hung_worlds import NOW, device_waits, left, on_device, pulse, queued, waits
from tests.judging.written import call, ended, raised, rank, world

judge = judge_of("no-hang", "run")
judge_failures = judge_of("rank-failure", "run")


def killed(*ranks, size=None, by=15):
    """A world that an agent has ended."""
    return world(*ranks, exit_code=None, signal=by, world_size=size)


def hang(*ranks, **more):
    judged = judge(killed(*ranks, **more))
    (finding,) = judged.findings
    return finding


def test_a_world_that_ended_well_does_not_hang():
    """Calls in which ranks wait are what makes the check checked, those of each rank for themselves."""
    assert checks()["no-hang"].unit == "wait"
    judged = judge(world([call(1, 5), call(2, 5, waits=False), ended()], [call(1, 5), ended()]))
    assert (judged.check, judged.checked, judged.findings) == ("no-hang", 2, ())
    judged = judge(world([ended()], [ended()]))
    assert (judged.checked, judged.skipped_because) == (0, "no call in which a rank waits for others was seen")


def test_a_hang_names_both_lines():
    """What each rank waits in and where, whom for, what it did before, and where the calls part."""
    before = call(1, 3, "all_reduce")
    finding = hang([before, call(2, 5), pulse(3, 5)], [before, call(2, 6, "ddp-gradients"), pulse(3, 6)])
    assert finding.found == (
        "a deadlock: rank 0 waits in barrier() at train.py:5 for rank 1; rank 1 waits in DDP's reduction of gradients "
        "in a backward at train.py:6 for rank 0. Here their calls diverge, after 1 equal call on the default group. "
        "Before that, ranks 0 and 1 made all_reduce() at train.py:3"
    )
    assert finding.subject == "call 2 on the default group"
    assert finding.where == CallSite(file="train.py", line=5, function="main")
    assert {site.line for _, site in finding.proof} == {5, 6}
    assert finding.links == ("stop", "call world 2")
    assert finding.also == ("collective-order",)


def test_a_device_in_a_call_that_was_not_waited_for():
    """It is no file or lock that its host waits for, as far as that can be told."""
    asleep = [pulse(None, 8, "sleep")]
    unknown = [queued(waits=False), on_device(None, since=None, awaits="synchronize")]
    assert "the device of rank 0 may be in an asynchronous call" in hang(unknown, asleep).cause
    assert "the devices of ranks 0 and 2 may be in" in hang(unknown, asleep, unknown).cause
    known = [queued(), on_device(None, since=None, awaits="synchronize")]
    assert "is no collective: a file" in hang(known, asleep).cause


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
    assert [one.check for one in (judge(over), judge_failures(over)) if one.findings] == [check]


def _ended_world(ranks, codes, stopped):
    """The world of ranks with these exit codes and signals; ``stopped``: ddpcheck had begun to end them."""
    ours = Process("ddpcheck")
    at = {"n": 1, "at": NOW}
    ours.add([ev.Began(**{**at, "at": 0.0}, pid=1, parent=0, host="", node=0, argv=[], folder="/", wall=0.0)])
    for one, (code, signal) in zip(ranks, codes, strict=True):
        ours.add([ev.ChildEnded(**at, pid=one.process.pid, code=code, signal=signal)])
    ours.add([ev.Stopped(**at, why="they wait")] if stopped else [])
    (found,) = worlds([ours, *(one.process for one in ranks)])
    return found


LOST = raised("Connection closed by peer", 5, lost_peer=True, at=NOW + 1)


@pytest.mark.parametrize(("stopped", "check"), [(True, "no-hang"), (False, "rank-failure")])
def test_who_lost_a_rank_that_was_ended_has_not_failed(stopped, check):
    """A rank that waited may raise in its turn, when ddpcheck has ended another one of a hang."""
    over = _ended_world([rank(0, [*waits(), LOST]), rank(1, [pulse(None, 8)])], [(1, None), (None, 15)], stopped)
    assert [one.check for one in (judge(over), judge_failures(over)) if one.findings] == [check]


@pytest.mark.parametrize("last", [(1, None), (None, 15)])
@pytest.mark.parametrize("after", [[LOST], [LOST, pulse(None, 5, at=NOW + 1)]])
def test_a_deadlock_stays_one_whichever_rank_was_ended_first(after, last):
    """All ranks waited for good: an error that one raises after ddpcheck has ended another changes nothing."""
    ranks = [rank(0, [*waits(line=5), *after]), rank(1, waits("all_reduce", line=6))]
    over = _ended_world(ranks, [last, (None, 15)], True)
    (finding,) = judge(over).findings
    assert finding.rule == "no-hang/deadlock-between-ranks"
    assert [stand.state for stand in standstill(over).stands] == ["waits", "waits"]
    assert [(one.exit_code, one.signal) for one in results_of([over])] == [last, (None, 15)]


# --- calls that are only queued on a device


def test_a_device_that_waits_is_told_with_its_host():
    """The call and its line, the host's line, and the parting of the calls as ever."""
    before = queued(number=1, line=3)
    finding = hang(
        [before, queued(number=2, line=5), on_device(3, 6)], [before, queued("broadcast", 2, 8), on_device(3, 9)]
    )
    assert finding.found == (
        "a deadlock: rank 0's device waits in all_reduce(), call 2 on the default group, at train.py:5 for rank 1; its "
        "host stands at train.py:6 (`line 6`); rank 1's device waits in broadcast(), call 2 on the default group, at "
        "train.py:8 for rank 0; its host stands at train.py:9 (`line 9`). Here their calls diverge, after 1 equal call "
        "on the default group. Before that, ranks 0 and 1 made all_reduce() at train.py:3"
    )
    assert finding.also == ("collective-order",)
    assert {site.line for _, site in finding.proof} == {5, 6, 8, 9}


def test_devices_that_wait_alike_are_told_together():
    """And what NCCL's own recorder says of the call."""
    told = {"call": 2, "name": "nccl:all_reduce", "sizes": [[4], [2]], "state": "started"}
    finding = hang([*device_waits(), (ev.FlightRecord, told)], device_waits(), [pulse(None, 8, "sleep")])
    assert finding.found.startswith(
        "no progress: the devices of ranks 0 and 1 wait in all_reduce(), call 1 on the default group, at train.py:5 "
        "for rank 2; their hosts stand at train.py:6 (`line 6`); rank 2 is at train.py:8, in sleep()"
    )
    assert finding.found.endswith(". NCCL's flight recorder says of rank 0: nccl:all_reduce of [4] and [2] is started")
    assert finding.ranks == (2,)


def test_a_host_whose_line_is_not_known_stands_elsewhere():
    """In a program that has no line of the user's."""
    finding = hang([queued(), on_device(2, 0)], [pulse(None, 8, "sleep")])
    assert "its host stands elsewhere" in finding.found


def test_a_rank_that_destroys_its_group_a_call_too_early():
    """Under NCCL it stays in there until it is ended: the calls part where the other one's device waits."""
    first = [*[queued("ddp-gradients", number) for number in (1, 2, 3)], on_device(4, awaits="")]
    finding = hang(first, [*[queued("ddp-gradients", number) for number in (1, 2)], left(), pulse(None, 9, "destroy")])
    assert finding.rule == "no-hang/deadlock-between-ranks"
    assert "rank 1 has left the group at train.py:9" in finding.found
    assert "Here their calls diverge, after 2 equal calls on the default group" in finding.found
    assert (finding.also, finding.ranks) == (("collective-order",), (1,))


# --- the end of a run


OVER = ev.Lingering, {"threads": [], "children": []}


def at_the_end(*records, silent=0.0):
    """The finding where rank 0 has ended, and ddpcheck has ended rank 1, which had done nothing for long."""
    both = [
        rank(0, [call(1, 5), left(), OVER, ended()]),
        rank(1, [call(1, 5), *records], exit_code=None, signal=15),
    ]
    both[1].silent = silent
    stopped = World(both, 2)
    stopped.stopped = Moment(at=NOW)
    (finding,) = judge(stopped).findings
    assert (finding.rule, finding.severity, finding.ranks) == ("no-hang/no-progress", "error", (1,))
    return finding


def test_a_rank_that_does_not_end_behind_its_group():
    """It is told with the line at which it was seen last."""
    finding = at_the_end(left(), pulse(None, 12, "pause"))
    assert finding.found == (
        "no progress: rank 0 has ended; rank 1 has left the group at train.py:9 and is at train.py:12, in pause()"
    )
    assert finding.cause == "what the script of rank 1 does after it has left the group does not return"
    assert (finding.where.line, finding.subject) == (12, "the program")
    finding = at_the_end(pulse(None, 7, "step"), left(), silent=21.0)
    assert "has left the group at train.py:9 and has run no Python code for 21 s, and was last seen at train.py:9" in (
        finding.found
    )
    assert (finding.where.line, "keeps the GIL" in finding.cause) == (9, True)


def test_a_rank_that_does_not_end_behind_its_script():
    """A thread that it waits for is named, and where it was started; otherwise what there may be."""
    finding = at_the_end(left(), OVER, pulse(None, 12, "wait"))
    assert finding.cause == "a thread, an exit handler or native code did not return on rank 1"
    started = ev.Started, {"kind": "thread", "name": "flusher", "pid": None, "site": 6}
    finding = at_the_end(started, left(), (ev.Lingering, {"threads": ["flusher"], "children": []}), pulse(None, 0))
    assert (finding.cause, finding.where.line) == ("the thread flusher of rank 1 did not return", 6)
    finding = at_the_end(left(), OVER, ended())
    assert "rank 1 has come to its end, and its process goes on" in finding.found
    assert "--stall-timeout helps an end that is merely slow" in finding.advice


def test_a_rank_that_does_not_come_to_its_end():
    """Where another one has, and nobody waits for it."""
    finding = at_the_end(pulse(None, 12, "pause"))
    assert finding.found == "no progress: rank 0 has ended; rank 1 is at train.py:12, in pause()"
    assert finding.where.line == 12


def test_ranks_that_ended_well_before_another_hang_are_no_finding():
    """A process that was ended in its second group has left the first one."""
    over = [rank(number, [call(1, 5), left()], exit_code=None, signal=15) for number in (0, 1)]
    for one in over:
        one.end = 50
    stopped = World(over, 2)
    stopped.stopped = Moment(at=NOW)
    assert judge(stopped).findings == ()
