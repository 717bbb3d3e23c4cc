"""A run that was asked to end from outside: what came before counts, and nothing is reported of the signal itself."""

from __future__ import annotations

import signal

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.registry import those
from ddpcheck.judging.membership import worlds
from ddpcheck.judging.world import Process
from ddpcheck.verdict.interruption import interruption, until
from ddpcheck.verdict.judges import judge_world
from ddpcheck.verdict.verdict import conclude

ASKED_AT = 100.0
WALL = 5000.0
"""The time of day when every host's clock was at 0; those of another host began later."""


def process(pid, *records, host="a", begun=0.0, rank=None):
    """A process with its records, each with its time on its host's clock; one with a rank is one of two."""
    made = Process(f"p{pid}")
    wall = WALL if host == "a" else WALL + 90.0
    numbered = [
        ev.Began(n=0, at=begun, pid=pid, parent=1, host=host, node=0, argv=[], folder="", wall=wall + begun),
        ev.Site(n=1, at=begun, id=1, file="train.py", line=5, function="train", text="loss.backward()"),
    ]
    if rank is not None:
        joined = {"rank": rank, "world_size": 2, "token": "t", "backend": "gloo", "local_rank": rank, "site": 1}
        numbered.append(ev.Joined(n=2, at=begun + 1, **joined))
    for n, (at, kind, fields) in enumerate(records, 3):
        numbered.append(kind(n=n, at=at, **fields))
    made.add(numbered)
    return made


def asked(number=signal.SIGTERM, at=ASKED_AT, host="a"):
    """ddpcheck's own process, which has had the signal."""
    return process(1, (at, ev.Signalled, {"signal": number}), host=host)


def call(at, number, op="all_reduce"):
    return at, ev.Call, {"op": op, "group": "world", "number": number, "detail": "", "site": 1}


def waits(at, record):
    return at, ev.Pulse, {"site": 1, "doing": "wait", "pending": record, "since": at}


def raised(at, kind, lost_peer=False):
    return at, ev.Raised, {"kind": kind, "message": "it was so", "text": "", "site": 1, "lost_peer": lost_peer}


def ended(at, how="exit"):
    return at, ev.Ended, {"how": how, "code": None, "site": 0, "groups": 0}


def child(at, pid, code=None, number=None, by_agent=True):
    return at, ev.ChildEnded, {"pid": pid, "code": code, "signal": number, "asked": by_agent}


def concluded(*processes):
    """The verdict on the processes of an interrupted run."""
    found = interruption(processes)
    assert found is not None
    cut = until(processes, found)
    those = worlds(cut, found.moment)
    judged = [judge_world(world) for world in those]
    return conclude(judged, worlds=those, processes=cut, failed=True, interrupted_by=found.signal)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_nothing_is_found_for_the_signal(number):
    """Ranks that compute, die of it, and lose each other: the exit code is a shell's, and ends are not checked."""
    verdict = concluded(
        asked(number),
        process(2, call(3, 1), (90.0, ev.Pulse, {"site": 1, "doing": "matmul", "pending": None}), rank=0),
        process(3, call(3, 1), raised(100.2, "RuntimeError", lost_peer=True), ended(100.3, "exception"), rank=1),
        process(4, child(100.4, 2, number=number), child(100.5, 3, code=1)),
    )
    assert (verdict.verdict, verdict.findings, verdict.exit_code()) == ("interrupted", (), 128 + number)
    for check in those("of_endings"):
        assert verdict.checks[check].skipped_because == "the run was interrupted"
    because = "ddpcheck saw no wrapped or sharded module, and no optimizer step"
    assert verdict.checks["collective-order"].skipped_because == because


def test_ranks_may_have_had_it_before_it_was_heard_of():
    """A scheduler signals every process: what ranks did just before, having had it, is its consequence as well."""
    processes = [
        asked(),
        process(2, call(3, 1), ended(99.7), rank=0),
        process(3, call(3, 1), call(99.8, 2), raised(99.9, "RuntimeError", lost_peer=True), rank=1),
        process(4, child(99.75, 2, number=signal.SIGTERM), child(100.5, 3, code=1)),
    ]
    assert concluded(*processes).findings == ()


def test_what_the_agent_has_asked_to_end_has_ended_for_the_signal():
    """Whatever exit code it chose, and where the signal was heard of too late."""
    processes = [asked(), *(process(2 + r, call(3, 1), ended(99.5), rank=r) for r in (0, 1))]
    assert concluded(*processes, process(4, child(99.6, 2, code=7), child(99.7, 3, code=0))).findings == ()


def test_a_peer_that_was_lost_long_before_was_lost_for_another_reason():
    """What ranks raised seconds before is told."""
    verdict = concluded(
        asked(),
        process(2, call(3, 1), rank=0),
        process(3, call(3, 1), raised(90.0, "RuntimeError", lost_peer=True), ended(90.1, "exception"), rank=1),
    )
    assert [f.check for f in verdict.findings] == ["rank-failure"]


def test_a_failure_before_the_signal_stays():
    """And the exit code is 1."""
    verdict = concluded(
        asked(signal.SIGINT),
        process(2, call(3, 1), rank=0),
        process(3, call(3, 1), raised(99.0, "ValueError"), rank=1),
    )
    assert (verdict.verdict, [f.check for f in verdict.findings]) == ("interrupted", ["rank-failure"])
    assert verdict.exit_code() == 1


def test_a_rank_that_had_crashed_before_the_signal_is_named():
    """The agent saw it end before; what it saw afterwards is the signal's doing."""
    verdict = concluded(
        asked(),
        process(2, call(3, 1), rank=0),
        process(3, call(3, 1), rank=1),
        process(4, child(98.5, 3, number=signal.SIGSEGV, by_agent=False), child(100.4, 2, number=signal.SIGTERM)),
    )
    assert [(f.check, f.ranks) for f in verdict.findings] == [("rank-failure", (1,))]


@pytest.mark.parametrize(("other", "found"), [("barrier", ["no-hang"]), ("all_reduce", [])])
def test_a_deadlock_that_was_certain_before_the_signal_stays(other, found):
    """With where the ranks stand; ranks that wait in one call may have gone on."""
    verdict = concluded(
        asked(signal.SIGINT),
        process(2, call(3, 1), waits(4, 3), rank=0),
        process(3, call(3, 1, other), waits(4, 3), raised(100.2, "RuntimeError", lost_peer=True), rank=1),
    )
    assert [f.check for f in verdict.findings] == found
    assert (verdict.verdict, verdict.exit_code()) == ("interrupted", 1 if found else 130)
    assert (verdict.hang is not None) == bool(found)


def test_who_waits_for_a_rank_at_work_is_not_stuck():
    """However long it has waited when somebody loses patience."""
    verdict = concluded(
        asked(signal.SIGINT),
        process(2, call(3, 1), waits(4, 3), rank=0),
        process(3, (2.0, ev.Pulse, {"site": 1, "doing": "sleep", "pending": None}), rank=1),
    )
    assert verdict.findings == ()


def test_hosts_have_clocks_of_their_own():
    """The moment is the same on all of them, by the time of day: there it is 10, where it is 100 here."""
    processes = [
        asked(at=ASKED_AT),
        process(2, call(3, 1), rank=0),
        process(3, call(3, 1), raised(10.2, "ValueError"), ended(10.3, "exception"), host="b", rank=1),
    ]
    assert concluded(*processes).findings == ()
    earlier = process(3, call(3, 1), raised(9.8, "ValueError"), ended(9.9, "exception"), host="b", rank=1)
    assert [f.check for f in concluded(*processes[:2], earlier).findings] == ["rank-failure"]


def test_the_first_signal_counts():
    """Of two nodes, the one that had it first says when."""
    found = interruption([asked(signal.SIGTERM, at=12.0, host="b"), asked(signal.SIGINT, at=101.0)])
    assert found is not None
    assert (found.signal, found.moment.host) == (signal.SIGINT, "a")


# --- one rank alone


def judged(*told):
    """What is found of two ranks of which the agent tells this."""
    (world,) = worlds([process(2, call(3, 1), waits(4, 3), rank=0), process(3, call(3, 1), rank=1), process(4, *told)])
    return {check: one for check, one in judge_world(world).items() if one.findings}


def test_a_rank_that_was_ended_alone_has_failed():
    """Somebody has sent SIGTERM to one rank; the agent then ended the others."""
    found = judged(
        child(50.0, 3, number=signal.SIGTERM, by_agent=False), child(50.2, 2, number=signal.SIGTERM, by_agent=True)
    )
    assert list(found) == ["rank-failure"]
    assert found["rank-failure"].findings[0].ranks == (1,)


def test_ranks_that_ddpcheck_has_ended_have_not():
    """They were stuck, and are reported as such."""
    stopped = (49.0, ev.Stopped, {"why": "so"})
    ends = [child(50.0 + r / 10, 2 + r, number=signal.SIGTERM, by_agent=False) for r in (0, 1)]
    assert list(judged(stopped, *ends)) == ["no-hang"]
