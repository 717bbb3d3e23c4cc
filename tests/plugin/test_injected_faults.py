"""Every call that the machine may refuse is refused once: the n-th, for every n, in each process of the runtime.

Whatever is refused, a test that passes then passes or is an error that names
the true reason, one that fails does not pass, and the session goes on.
"""

from __future__ import annotations

import re
from collections import defaultdict

import pytest

from tests.inner import InnerProject, Ran

MOST = {
    "zygote": {"open": 8, "folder": 4, "fork": 4, "socket": 4, "encode": 16, "write": 16},
    "rank": {"open": 14, "folder": 6, "encode": 9, "write": 9},
    "session": {"open": 5, "folder": 6},
}
"""Where, what, and how many of these there are less than."""

CONFTEST = """
import errno, os, socket, sys
import pytest

REFUSED = {"open": errno.ENOSPC, "folder": errno.ENOSPC, "fork": errno.EAGAIN, "socket": errno.EMFILE,
           "write": errno.ENOBUFS, "encode": errno.ENOMEM}
AUDITED = {"open": "open", "os.mkdir": "folder", "os.fork": "fork"}
armed = None

class Armed:
    def __init__(self, nodeid, where):
        self.nodeid, self.pid, self.what, self.left = nodeid, os.getpid(), None, 0
        place, what, turn = nodeid.rpartition("[")[2].rstrip("]").split("-")
        if place == where:
            self.what, self.left = what, int(turn)

    def count(self, what):
        if what != self.what or os.getpid() != self.pid:
            return
        self.left -= 1
        if self.left == 0:
            self.what = None
            with open(os.path.join(os.environ["TMPDIR"], "refused"), "a") as file:
                file.write(self.nodeid + "\\n")
            raise OSError(REFUSED[what], f"{os.strerror(REFUSED[what])}, as was injected")

def count(what):
    if armed is not None:
        armed.count(what)

def audit(event, arguments):
    if armed is not None and event in AUDITED:
        armed.count(AUDITED[event])

sys.addaudithook(audit)

def counting(owner, name, what):
    plain = getattr(owner, name)
    def counted(*args, **more):
        count(what)
        return plain(*args, **more)
    setattr(owner, name, counted)

def arming(owner, name, where, nodeid_of):
    plain = getattr(owner, name)
    def with_fault(*args, **more):
        global armed
        nodeid = nodeid_of(*args)
        before, armed = armed, Armed(nodeid, where) if nodeid and "-" in nodeid else None
        try:
            return plain(*args, **more)
        finally:
            armed = before
    setattr(owner, name, with_fault)

from ddpcheck import session
from ddpcheck.ranks import channel

counting(channel, "encode", "encode")
counting(channel, "_send", "write")
counting(socket, "socketpair", "socket")
zygote = sys.modules.get("ddpcheck.ranks.zygote")
if zygote is None:
    arming(session.Session, "_run", "session", lambda self, item, *rest: item.nodeid)
else:
    from ddpcheck.ranks import wire
    arming(zygote.Zygote, "_answer", "zygote",
           lambda self, host, message: message.plan.nodeid if isinstance(message, wire.Run) else "")
    arming(zygote, "be_rank", "rank", lambda host, plan, rank, *rest: plan.nodeid if rank == 0 else "")
"""

TESTS = """
import pytest, torch
import torch.distributed as dist

FAULTS = {faults}
pytestmark = pytest.mark.ddp(timeout=10)

@pytest.mark.parametrize("fault", FAULTS)
def test_passes(ddp, tmp_path, fault):
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total == 2

@pytest.mark.parametrize("fault", FAULTS)
def test_fails(ddp, tmp_path, fault):
    assert ddp.rank == 9

def test_after(ddp):
    dist.barrier()
"""


@pytest.fixture(scope="module", params=list(MOST))
def where(request: pytest.FixtureRequest) -> str:
    """The process in which calls are refused."""
    return str(request.param)


@pytest.fixture(scope="module")
def refused(where: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Ran, set[str]]:
    """A session of tests with a fault each, and the ids of those in which it came to that."""
    project = InnerProject(tmp_path_factory.mktemp(where) / "project")
    faults = [f"{where}-{what}-{turn}" for what, most in MOST[where].items() for turn in range(1, most + 1)]
    project.write("conftest.py", CONFTEST)
    project.write("test_it.py", TESTS.format(faults=faults))
    ran = project.run()
    assert project.leftover_processes() == []
    assert project.leftover_folders() == []
    return ran, {line.partition("::")[2] for line in (project.temp / "refused").read_text().splitlines()}


def test_passing_tests_pass_or_say_what_was_refused(refused: tuple[Ran, set[str]]) -> None:
    """Not one of them fails for anything else."""
    ran, hit = refused
    passing = {name: seen for name, seen in ran.tests.items() if name.startswith("test_passes")}
    assert passing
    for name, seen in passing.items():
        told = seen.outcome in ("error", "failed") and "as was injected" in seen.text
        assert seen.outcome == "passed" or (told and name in hit), f"{name}: {seen.outcome}\n{seen.text}"


def test_failing_tests_never_pass(refused: tuple[Ran, set[str]]) -> None:
    """They fail for the body's own reason, or for what was refused."""
    ran, _ = refused
    failing = {name: seen for name, seen in ran.tests.items() if name.startswith("test_fails")}
    assert failing
    for name, seen in failing.items():
        assert seen.outcome in ("error", "failed"), name
        assert "as was injected" in seen.text or "== 9" in seen.text, f"{name}\n{seen.text}"


def test_the_session_goes_on(where: str, refused: tuple[Ran, set[str]]) -> None:
    """All tests were reported, the last one of which has no fault."""
    ran, _ = refused
    assert len(ran.tests) == 2 * sum(MOST[where].values()) + 1, ran.stdout
    assert ran["test_after"].outcome == "passed"


def test_every_call_was_refused_once(where: str, refused: tuple[Ran, set[str]]) -> None:
    """Each of them, up to the last that there is: the next fault found nothing to refuse."""
    _, hit = refused
    turns: dict[str, set[int]] = defaultdict(set)
    for name in hit:
        found = re.fullmatch(rf"test_passes\[{where}-(\w+)-(\d+)\]", name)
        if found:
            turns[found[1]].add(int(found[2]))
    for what, most in MOST[where].items():
        assert turns[what] == set(range(1, len(turns[what]) + 1)), what
        assert 0 < len(turns[what]) < most, what
