"""Every call that the machine may refuse is refused once: the n-th, for every n, in each process of the runtime.

Whatever is refused, a test that passes then passes or is an error that names
the true reason, one that fails does not pass, and the session goes on.
"""

from __future__ import annotations

import pytest

from tests.inner import InnerProject, Ran

pytestmark = pytest.mark.long

MOST = {
    "zygote": {"open": 7, "folder": 3, "fork": 3, "socket": 3, "encode": 11, "write": 11},
    "rank": {"open": 8, "folder": 4, "encode": 8, "write": 8},
    "session": {"folder": 4, "encode": 5, "write": 5},
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

from ddpcheck.plugin import ddp_item_run as session
from ddpcheck.ranks import channel

counting(channel, "encode", "encode")
counting(channel, "_send", "write")
counting(socket, "socketpair", "socket")
zygote = sys.modules.get("ddpcheck.zygote.zygote")
if zygote is None:
    arming(session.Session, "_run", "session", lambda self, item, *rest: item.nodeid)
else:
    from ddpcheck.ranks import messages as wire
    arming(zygote.Zygote, "_answer", "zygote",
           lambda self, host, message: message.plan.nodeid if isinstance(message, wire.Run) else "")
    arming(zygote, "be_rank", "rank", lambda host, plan, rank, *rest: plan.nodeid if rank == 0 else "")
"""

TESTS = """
import pytest, torch
import torch.distributed as dist

pytestmark = pytest.mark.ddp(timeout=10)

@pytest.mark.parametrize("fault", {faults})
def test_passes(ddp, tmp_path, fault):
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total == 2

@pytest.mark.parametrize("fault", {late})
def test_fails(ddp, tmp_path, fault):
    assert ddp.rank == 9

def test_after(ddp):
    dist.barrier()
"""


FAULTS = [
    f"{where}-{what}-{turn}" for where in MOST for what in MOST[where] for turn in range(1, MOST[where][what] + 1)
]
LATE = [fault for fault in FAULTS if "encode" in fault or "write" in fault]
"""What is refused also when a body has run, and how it went is to be reported."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> InnerProject:
    """The folder of the session below."""
    return InnerProject(tmp_path_factory.mktemp("refused") / "project")


@pytest.fixture(scope="module")
def ran(project: InnerProject) -> Ran:
    """A session of tests with a fault each."""
    project.write("conftest.py", CONFTEST)
    project.write("test_it.py", TESTS.format(faults=FAULTS, late=LATE))
    found = project.run()
    assert project.leftover_processes() == []
    assert project.leftover_folders() == []
    return found


@pytest.fixture(scope="module")
def hit(ran: Ran, project: InnerProject) -> set[str]:
    """The ids of the tests in which it came to their fault."""
    return {line.partition("::")[2] for line in (project.temp / "refused").read_text().splitlines()}


def test_passing_tests_pass_or_say_what_was_refused(ran: Ran, hit: set[str]) -> None:
    """Not one of them fails for anything else."""
    for fault in FAULTS:
        seen = ran[name := f"test_passes[{fault}]"]
        told = seen.outcome in ("error", "failed") and "as was injected" in seen.text
        assert seen.outcome == "passed" or (told and name in hit), f"{name}: {seen.outcome}\n{seen.text}"


def test_failing_tests_never_pass(ran: Ran) -> None:
    """They fail for the body's own reason, or for what was refused."""
    for fault in LATE:
        seen = ran[f"test_fails[{fault}]"]
        assert seen.outcome in ("error", "failed"), fault
        assert "as was injected" in seen.text or "== 9" in seen.text, f"{fault}\n{seen.text}"


def test_the_session_goes_on(ran: Ran) -> None:
    """All tests were reported, the last one of which has no fault."""
    assert len(ran.tests) == len(FAULTS) + len(LATE) + 1, ran.stdout
    assert ran["test_after"].outcome == "passed"


@pytest.mark.parametrize(("where", "what"), [(where, what) for where in MOST for what in MOST[where]])
def test_every_call_was_refused_once(hit: set[str], where: str, what: str) -> None:
    """Each of them, up to the last that there is: the next fault found nothing to refuse."""
    turns = {turn for turn in range(1, MOST[where][what] + 1) if f"test_passes[{where}-{what}-{turn}]" in hit}
    assert turns == set(range(1, len(turns) + 1))
    assert 0 < len(turns) < MOST[where][what]
