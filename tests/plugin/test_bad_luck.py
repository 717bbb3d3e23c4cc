"""What goes wrong for one test is that test's, with its true reason, and the next test runs."""

from __future__ import annotations

import pytest

from tests.inner import InnerProject, Ran

CONFTEST = """
import resource, signal
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
signal.signal(signal.SIGINT, signal.SIG_IGN)  # as it is in what a shell starts in the background
"""

UNLUCKY = """
import os, shutil, signal, socket
import pytest, torch
import torch.distributed as dist

pytestmark = pytest.mark.ddp(timeout=20)

@pytest.mark.ddp(world_size=40)
@pytest.mark.parametrize("turn", range(2))
def test_too_many_ranks(ddp, turn):
    pass

def test_removes_the_runtime_folder(ddp):
    dist.barrier()
    if ddp.rank == 0:
        shutil.rmtree(os.environ["DDPCHECK_RUN"])

@pytest.mark.parametrize("word", ["\\u00e9t\\u00e9"])
def test_of_another_alphabet(ddp, word):
    pass

def close_up_to(limit):
    "What daemons do, but for what gloo's threads need, which end the process without it."
    for number in range(3, limit):
        try:
            held = os.readlink(f"/proc/self/fd/{number}")
            inet = held.startswith("socket") and socket.socket(fileno=os.dup(number)).family == socket.AF_INET
        except OSError:
            continue
        if not inet and not held.startswith("anon_inode"):
            os.close(number)

def test_closes_what_it_has_not_opened(ddp, request):
    close_up_to(48)
    name = os.path.join(os.environ["TMPDIR"], f"kept{ddp.rank}")
    held = [os.open(name, os.O_RDWR | os.O_CREAT) for _ in range(8)]
    request.addfinalizer(lambda: os.write(held[0], str(os.path.getsize(name)).encode()))

def test_closes_everything(ddp):
    close_up_to(64)
    name = os.path.join(os.environ["TMPDIR"], f"lost{ddp.rank}")
    with pytest.raises(OSError):
        while True:
            os.open(name, os.O_RDWR | os.O_CREAT)

def test_in_the_background(ddp):
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN

@pytest.mark.parametrize("name", ["os.getpid", "os._exit", "os.fstat", "socket.socket.sendall", "socket.socket.recv",
                                  "threading.enumerate", "multiprocessing.active_children", "time.monotonic"])
def test_mocks(ddp, monkeypatch, name):
    monkeypatch.setattr(name, lambda *args, **more: 4711)

@pytest.mark.parametrize("turn", range(2))
def test_after(ddp, turn):
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total == 2
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> InnerProject:
    """The folder of the session below."""
    return InnerProject(tmp_path_factory.mktemp("unlucky") / "project")


@pytest.fixture(scope="module")
def ran(project: InnerProject) -> Ran:
    """A session where little is to be had, in a locale that knows few letters."""
    project.write("conftest.py", CONFTEST)
    project.write("test_it.py", UNLUCKY)
    found = project.run("--capture=sys", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert project.leftover_processes() == []
    return found


@pytest.mark.parametrize("turn", range(2))
def test_too_many_ranks_are_an_error_with_its_reason(ran: Ran, turn: int) -> None:
    """The descriptors of the ranks that were begun are free again: the next test comes as far."""
    seen = ran[f"test_too_many_ranks[{turn}]"]
    assert seen.outcome == "error"
    assert "of 40 could not be started: [Errno 24] Too many open files; a process may have 64 (ulimit -n)" in seen.text
    assert "GPU" not in seen.text


def test_a_folder_that_a_test_removes_is_made_again(ran: Ran) -> None:
    """The runtime's folder is no test's to remove, but neither is it the next test's loss."""
    assert ran["test_removes_the_runtime_folder"].outcome == "passed", ran.stdout


def test_names_that_the_locale_cannot_write(ran: Ran) -> None:
    """A test's folder has a name that every file system takes."""
    (seen,) = [seen for name, seen in ran.tests.items() if name.startswith("test_of_another_alphabet")]
    assert seen.outcome == "passed", seen.text


@pytest.mark.long
def test_a_signal_that_is_ignored_stays_ignored(ran: Ran) -> None:
    """A rank takes SIGINT as the pytest process does."""
    assert ran["test_in_the_background"].outcome == "passed", ran.stdout


def test_descriptors_of_the_runtime_are_out_of_reach(ran: Ran, project: InnerProject) -> None:
    """A test that closes low descriptors and opens files finds in them what it wrote itself."""
    assert ran["test_closes_what_it_has_not_opened"].outcome == "passed", ran.stdout
    assert [(project.temp / f"kept{rank}").read_text() for rank in range(2)] == ["0", "0"]


def test_what_a_test_takes_from_the_runtime_is_said(ran: Ran, project: InnerProject) -> None:
    """Where it closes all there is, nothing of ours lands in its files, and the failure names the cause."""
    seen = ran["test_closes_everything"]
    assert seen.outcome in ("failed", "error")
    assert "over which this rank reports, was closed by the test" in seen.text
    assert [(project.temp / f"lost{rank}").read_bytes() for rank in range(2)] == [b"", b""]


@pytest.mark.parametrize(
    "name",
    [
        "os.getpid",
        "os._exit",
        "os.fstat",
        "socket.socket.sendall",
        "socket.socket.recv",
        "threading.enumerate",
        "multiprocessing.active_children",
        "time.monotonic",
    ],
)
def test_mocks_that_are_undone_do_no_harm(ran: Ran, name: str) -> None:
    """What a test has replaced when its body ends is not what the runtime reports with."""
    assert ran[f"test_mocks[{name}]"].outcome == "passed", ran[f"test_mocks[{name}]"].text


@pytest.mark.parametrize("turn", range(2))
@pytest.mark.few(1)
def test_the_next_tests_run(ran: Ran, turn: int) -> None:
    """After all of it."""
    assert ran[f"test_after[{turn}]"].outcome == "passed", ran.stdout


NOBODY_TO_ASK = """
import os
if "DDPCHECK_RUN" in os.environ:
    raise RuntimeError("this conftest wants to be alone")
"""

ON_GPUS = """
import pytest

@pytest.mark.ddp(device="cuda", backend="nccl")
def test_in_ranks(ddp): pass

@pytest.mark.gpu
def test_alone(): pass

def test_plain(): pass
"""


@pytest.mark.long
def test_gpus_that_nobody_can_be_asked_for_are_no_reason_to_skip(tmp_path) -> None:
    """A session in which the process that would ask them ends is not green: its tests on GPUs fail, and say why."""
    project = InnerProject(tmp_path / "project")
    project.write("conftest.py", NOBODY_TO_ASK)
    project.write("test_it.py", ON_GPUS)
    ran = project.run()
    for name in ("test_in_ranks", "test_alone"):
        assert ran[name].outcome == "error", ran.stdout
        assert "RuntimeError: this conftest wants to be alone" in ran[name].text
    assert ran["test_plain"].outcome == "passed"
