"""The judge of process-hygiene, over evidence written by hand."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.process_hygiene.run import judge
from ddpcheck.vocabulary.model import CallSite
from tests.judging.written import ended, raised, world, wrapped


def ask(*ranks, **more):
    return judge(world(*ranks, **more))


def at(line):
    return CallSite(file="train.py", line=line, function="main")


def started(kind, name, line, pid=None):
    return ev.Started, {"kind": kind, "name": name, "pid": pid, "site": line}


def pulse(doing):
    return ev.Pulse, {"site": 0, "doing": doing, "pending": None}


LEFT = (ev.Left, {"site": 30})


def test_a_clean_end():
    """Nothing is left, on either rank."""
    judged = ask([LEFT, ended()], [LEFT, ended()])
    assert (judged.checked, judged.findings) == (2, ())
    judged = ask([LEFT, ended()], [LEFT])
    assert (judged.checked, judged.of) == (1, 2)


def test_a_group_that_is_left():
    """A warning at the line that joined it."""
    (finding,) = ask([ended(groups=1)], [ended(groups=2)]).findings
    assert (finding.severity, finding.ranks, finding.where) == ("warning", (0, 1), at(1))
    assert finding.found == "2 groups still there at the end of ranks 0 and 1"


@pytest.mark.parametrize(
    ("records", "more"),
    [
        ([raised("no", 5), ended(how="exception", groups=1)], {"exit_code": 1}),
        ([ended(groups=1, how="os._exit", code=0)], {}),
        ([ended(groups=1, code=3)], {"exit_code": 3}),
        ([], {"exit_code": None, "signal": 9}),
    ],
)
def test_who_failed_is_not_judged(records, more):
    """A rank that failed, was killed, or left by os._exit could not tidy up, or did not mean to."""
    assert ask(records, records, **more).findings == ()


def test_a_child_and_a_thread():
    """Each at the line that has started it; threads that the interpreter ends are none."""
    records = [
        started("process", "Process-1", 12, pid=77),
        started("thread", "logger", 14),
        lingering("logger", "ThreadPoolExecutor-0_0", children=["77: python train.py"]),
        ended(),
    ]
    thread, process = ask(records, [ended()]).findings
    assert (thread.severity, thread.ranks, thread.where, thread.subject) == ("warning", (0,), at(14), "logger")
    assert (process.severity, process.where, process.subject) == ("warning", at(12), "Process-1 (pid 77)")


def lingering(*threads, children=()):
    return ev.Lingering, {"threads": list(threads), "children": list(children)}


def test_what_was_waited_for():
    """What still ran when the script was over counts, also where it was gone at the very end."""
    records = [started("process", "Process-1", 12, pid=77), lingering(children=["77: python train.py"]), ended()]
    (finding,) = ask(records, [lingering(), ended()]).findings
    assert (finding.severity, finding.ranks, finding.where) == ("warning", (0,), at(12))
    # A library tidies up by itself.
    records = [(start, fields | {"library": True}) for start, fields in records[:1]] + records[1:]
    assert ask(records, []).findings == ()


def test_a_port_that_is_taken():
    """What the store says of it."""
    message = "The server socket has failed to listen. port: 29500, name: EADDRINUSE, message: address already in use"
    (finding,) = ask([raised(message, 9)], [], exit_code=1).findings
    assert (finding.severity, finding.ranks, finding.where, finding.links) == ("error", (0,), at(9), ("stop",))


def placed(**memory):
    return ev.Placed, {"wrapper": 0, "hardware": {}, "memory": memory}


def test_parameters_in_the_same_memory():
    """What one rank writes, all have."""
    ranks = [[wrapped(3, shared=["a"]), placed(a="0:5+0", b="0:5+64"), ended()]] * 2
    (finding,) = ask(*ranks).findings
    assert (finding.severity, finding.ranks, finding.where, finding.links) == ("error", (0, 1), at(3), ("wrapper 0",))
    assert finding.found.startswith("2 parameters (a, b) of ranks 0 and 1 in the same memory")


def test_shared_memory_of_its_own():
    """A rank may share its parameters with children of its own."""
    ranks = [[wrapped(3, shared=["a"]), placed(a=f"0:{r}+0"), ended()] for r in range(2)]
    assert ask(*ranks).findings == ()
