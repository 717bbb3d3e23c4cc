"""What supervises a run: nothing that fails in it ends the run, and what a killed agent leaves is ended."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch.distributed.run  # which the command imports: not while something is made to fail

from ddpcheck import evidence as ev
from ddpcheck.judging import membership
from ddpcheck.judging.world import Process
from ddpcheck.probes.recording.recorder import Recorder
from ddpcheck.report import json_report, terminal_report
from ddpcheck.run import agent, command, computing_processes, options, orphaned_ranks
from ddpcheck.run import supervisor as supervise
from ddpcheck.verdict import judges
from tests.report.schema_validation import validate

JOINED = {"rank": 0, "world_size": 2, "token": "t", "backend": "gloo", "local_rank": 0, "site": 0}
BEGAN = {"parent": 1, "host": "h", "node": 0, "argv": [], "folder": "/", "wall": 0.0}


def ranks(evidence: Path) -> None:
    """What two ranks write down, in the place of a script."""
    for rank in (0, 1):
        writer = Recorder(evidence, 1 << 20)
        writer.write(ev.Began(**writer.next(), pid=1000 + rank, **BEGAN))
        writer.write(ev.Joined(**writer.next(), **{**JOINED, "rank": rank}))
        writer.write(ev.Left(**writer.next(), site=0))
        writer.write(ev.Ended(**writer.next(), how="exit", code=None, site=0, groups=0))
        writer.close()


@pytest.fixture
def running(monkeypatch, tmp_path):
    """Run the command with a process of a few lines in the place of the agent: its exit code, and the document."""
    monkeypatch.setattr(supervise, "PERIOD", 0.01)
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("")

    def start(given, evidence, collector, signals, status):
        pid = signals.fork()
        if not pid:
            code = 1
            try:
                ranks(evidence)
                time.sleep(0.1)
                os.close(os.open("done", os.O_CREAT))
                code = 0
            finally:
                os._exit(code)
        return pid

    monkeypatch.setattr(agent, "start", start)
    target = tmp_path / "verdict.json"

    def run(*nodes):
        for file in (target, tmp_path / "done"):
            file.unlink(missing_ok=True)
        given = nodes or ("--standalone",)
        code = command.run(options.parse(["--json", str(target), *given, "--nproc-per-node", "2", "train.py"]))
        assert Path("done").exists(), "the program has gone on to its end"
        document = json.loads(target.read_text()) if target.exists() else None
        if document is not None:
            validate(document, "run")
        return code, document

    return run


def test_a_run_that_nothing_is_wrong_with(running):
    """The setting of the tests below says of itself what it is."""
    code, found = running()
    assert (code, found["verdict"], found["internal"]) == (3, "nothing-checked", [])


def raising(*_, **__):
    raise RuntimeError("ours")


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (supervise.Folder, "read"),
        (supervise.Supervisor, "_stuck"),
        (supervise.Supervisor, "_mirror"),
        (supervise, "certain"),
        (supervise, "worlds"),
        (orphaned_ranks.Ranks, "see"),
        (judges, "judge_of"),
    ],
    ids=lambda part: getattr(part, "__name__", str(part)),
)
def test_what_fails_in_here_is_ours(running, monkeypatch, owner, name):
    """Exit 4, the exception in the report, and the program has come to its own end."""
    monkeypatch.setattr(owner, name, raising)
    code, found = running()
    assert code == 4
    assert "RuntimeError: ours" in found["internal"][0]
    assert found["findings"] == []


def test_a_report_that_cannot_be_shown_is_ours(running, monkeypatch):
    """The command says so, and the file has been written."""
    monkeypatch.setattr(terminal_report, "_headline", raising)
    with pytest.raises(RuntimeError, match="ours"):  # the command line's own handler makes exit 4 of it
        running()
    assert Path("verdict.json").exists()


def test_nobody_reads_the_report(running, monkeypatch):
    """A closed pipe is no defect."""
    monkeypatch.setattr(terminal_report, "show", lambda *_: (_ for _ in ()).throw(BrokenPipeError()))
    assert running()[0] == 3


def test_no_room_for_evidence_is_no_hindrance(running, monkeypatch):
    """The program runs, and the report says why it knows nothing."""

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(command.tempfile, "TemporaryDirectory", full)
    monkeypatch.setattr(sys.modules[__name__], "ranks", lambda evidence: None)
    code, found = running()
    assert (code, found["verdict"]) == (3, "nothing-checked")
    assert "no room to keep evidence" in found["notes"][0]


CALLS = [
    (Path, "glob", OSError(errno.EMFILE, "no descriptors")),
    (Path, "open", OSError(errno.EMFILE, "no descriptors")),
    (ev.Reader, "feed", MemoryError()),
    (psutil.Process, "__init__", RuntimeError("/proc is hidden")),
    (membership, "exits_told", RuntimeError("ours")),
    (json_report, "document", OSError(errno.ENOSPC, "full")),
]


@pytest.mark.parametrize(("owner", "name", "error"), CALLS, ids=[f"{o.__name__}.{n}" for o, n, _ in CALLS])
@pytest.mark.few(1)
def test_whatever_fails_the_program_goes_on_and_the_verdict_is_true(running, monkeypatch, owner, name, error):
    """The n-th call fails, for every n up to the tenth: the program ends by itself, and nothing is put down to it."""
    original = getattr(owner, name)
    for n in range(1, 11):
        calls = iter(range(1, 100_000))

        def failing(*args, n=n, calls=calls, **kwargs):
            if next(calls) == n:
                raise error
            return original(*args, **kwargs)

        with monkeypatch.context() as patched:
            patched.setattr(owner, name, failing)
            code, found = running()
        assert code in (3, 4), n
        if found is not None:
            assert found["findings"] == []
            assert (code == 4) == bool(found["internal"]), n


SOCKETS = [
    (socket, "create_server", OSError(errno.EMFILE, "no descriptors")),
    (socket, "socket", OSError(errno.EMFILE, "no descriptors")),
    (socket, "gethostname", OSError(errno.EPERM, "not allowed")),
]


@pytest.mark.parametrize(("owner", "name", "error"), SOCKETS, ids=[name for _, name, _ in SOCKETS])
def test_a_node_without_sockets_runs_its_ranks(running, monkeypatch, owner, name, error):
    """The first, second and third call fails: what is known of this node is judged, and the other one is missing."""
    monkeypatch.setattr(supervise, "FIRST_WORD", 0.1)
    monkeypatch.setattr(command, "OTHER_NODES", 0.1)
    original = getattr(owner, name)
    for n in (1, 2, 3):
        calls = iter(range(1, 100_000))

        def failing(*args, n=n, calls=calls, **kwargs):
            if next(calls) == n:
                raise error
            return original(*args, **kwargs)

        with monkeypatch.context() as patched:
            patched.setattr(owner, name, failing)
            code, found = running(
                "--nnodes", "2", "--node-rank", "0", "--master-addr", "127.0.0.1", "--master-port", "1"
            )
        assert code in (3, 4), n
        assert found["findings"] == []
        assert (code == 4) == bool(found["internal"]), n


def test_no_process_for_the_program_is_said_in_a_sentence(running, monkeypatch, capfd):
    """There is no verdict on what did not run, and no traceback of ours."""

    def refused():
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refused)
    with pytest.raises(AssertionError, match="gone on to its end"):
        running()
    assert capfd.readouterr().err == (
        "ddpcheck run: no process could be started for train.py: Resource temporarily unavailable\n"
    )
    assert not Path("verdict.json").exists()


def test_a_signal_that_torchrun_hands_on_ends_nothing_here(running, monkeypatch):
    """--signals-to-handle: it is the program's, and this process lives."""
    if "--signals-to-handle" not in torch.distributed.run.get_args_parser().format_help():
        pytest.skip("torchrun has no such option yet")
    start = agent.start

    def signalled(*given):
        os.kill(os.getpid(), signal.SIGUSR1)
        return start(*given)

    monkeypatch.setattr(agent, "start", signalled)
    monkeypatch.setattr("ddpcheck.run.signals.BY_ITSELF", 100.0)
    before = signal.getsignal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, lambda *_: pytest.fail("it was not taken"))
    try:
        code, found = running("--standalone", "--signals-to-handle", "SIGTERM,SIGUSR1")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert (code, found["internal"]) == (3, [])


# --- hangs are judged by whole evidence


def test_a_rank_whose_evidence_has_stopped_is_not_stuck(tmp_path):
    """It waits in a call for all that is on record, and goes on out of sight: nothing ends it."""
    folder = supervise.Folder(tmp_path)
    given = options.parse(["--standalone", "--nproc-per-node", "2", "--stall-timeout", "1", __file__])
    writers = []
    for rank in (0, 1):
        writer = Recorder(tmp_path, 1 << 20)
        writer.write(ev.Began(**writer.next(), pid=1000 + rank, **BEGAN))
        writer.write(ev.Joined(**writer.next(), **{**JOINED, "rank": rank}))
        writer.write(ev.Pulse(**writer.next(), site=0, doing="wait", pending=2, since=time.monotonic() - 100))
        writers.append(writer)
    supervisor = supervise.Supervisor(given, folder)
    folder.read()
    assert "rank 0 waited" in supervisor._stuck()
    writers[1]._stop(ev.FULL)
    folder.read()
    assert supervisor._stuck() == ""
    for writer in writers:
        writer.let_go()


@pytest.mark.parametrize(
    ("first", "second", "ended"),
    [
        ({"device": 3, "device_since": 1.0}, {}, True),
        ({"awaits": "item", "waits": False}, {}, True),
        ({"awaits": "item"}, {}, False),
        ({"device": 3, "device_since": 1.0}, {"awaits": "item"}, False),
        ({"device": 3, "device_since": 1.0}, {"device": 3, "device_since": None}, False),
        ({"device": 3, "device_since": None}, {}, False),
        ({}, {}, False),
    ],
    ids=[
        "its host sleeps",
        "nobody knows of its call",
        "it may compute",
        "another device may compute",
        "another device computes",
        "it computes",
        "nobody waits",
    ],
)
def test_a_device_that_waits_is_waited_for_no_longer_than_allowed(tmp_path, first, second, ended):
    """Its host need not wait for it; a rank whose device may be at work is at work."""
    folder = supervise.Folder(tmp_path)
    given = options.parse(["--standalone", "--nproc-per-node", "2", "--stall-timeout", "30", __file__])
    long_ago = time.monotonic() - 100
    queued = {"op": "all_reduce", "group": "world", "number": 1, "detail": "", "site": 0, "queued": True}
    for rank, says in enumerate((dict(first), dict(second))):
        writer = Recorder(tmp_path, 1 << 20)
        for kind, fields in (
            (ev.Began, {"pid": 1000 + rank, **BEGAN}),
            (ev.Joined, {**JOINED, "rank": rank}),
            (ev.Call, {**queued, "waits": says.pop("waits", True)}),
            (ev.Pulse, {"site": 0, "doing": "f", "pending": None, **says}),
        ):
            writer.write(kind(**{**writer.next(), "at": long_ago}, **fields))
        writer.let_go()
    folder.read()
    supervisor = supervise.Supervisor(given, folder)
    assert ("rank 0 waited" in supervisor._stuck()) == ended
    assert ended or supervisor._stuck() == ""


def test_a_device_of_a_rank_that_was_killed_computes_no_more(tmp_path):
    """Its last word was that it did; others wait no longer for it than they may."""
    folder = supervise.Folder(tmp_path)
    given = options.parse(["--standalone", "--nproc-per-node", "2", "--stall-timeout", "30", __file__])
    long_ago = time.monotonic() - 100
    queued = {"op": "all_reduce", "group": "world", "number": 1, "detail": "", "site": 0, "queued": True}
    for rank, since in enumerate((1.0, None)):
        writer = Recorder(tmp_path, 1 << 20)
        for kind, fields in (
            (ev.Began, {"pid": 1000 + rank, **BEGAN}),
            (ev.Joined, {**JOINED, "rank": rank}),
            (ev.Call, queued),
            (ev.Pulse, {"site": 0, "doing": "f", "pending": None, "device": 3, "device_since": since}),
        ):
            writer.write(kind(**{**writer.next(), "at": long_ago}, **fields))
        writer.let_go()
    writer = Recorder(tmp_path, 1 << 20)
    writer.write(ev.Began(**{**writer.next(), "at": long_ago}, pid=900, **BEGAN))
    folder.read()
    supervisor = supervise.Supervisor(given, folder)
    assert supervisor._stuck() == ""
    killed = {"pid": 1001, "code": None, "signal": signal.SIGKILL}
    writer.write(ev.ChildEnded(**{**writer.next(), "at": long_ago}, **killed))
    writer.let_go()
    folder.read()
    assert "rank 0 waited" in supervisor._stuck()


@pytest.mark.parametrize("joins", [False, True])
def test_a_rank_that_computes_is_waited_for(tmp_path, monkeypatch, joins):
    """However long the other one waits: in a collective, or for the group to be made."""
    monkeypatch.setattr(computing_processes, "OFTEN", 0.0)
    used = {os.getpid(): 0.0, 1: 0.0}
    monkeypatch.setattr(computing_processes, "_used", lambda pid, others: ((pid, 0.0), used.get(pid, 0.0)))
    folder = supervise.Folder(tmp_path)
    given = options.parse(["--standalone", "--nproc-per-node", "2", "--stall-timeout", "1", __file__])
    long_ago = time.monotonic() - 100
    for pid in used:
        waits = pid == 1
        writer = Recorder(tmp_path, 1 << 20)
        began = {**BEGAN, "parent": 0, "host": socket.gethostname(), "argv": ["train.py"]}
        writer.write(ev.Began(**{**writer.next(), "at": long_ago}, pid=pid, **began))
        if joins:
            writer.write(ev.Joined(**{**writer.next(), "at": long_ago}, **{**JOINED, "rank": int(waits)}))
            pulse = {"site": 0, "doing": "f", "pending": 2 if waits else None, "since": long_ago}
            writer.write(ev.Pulse(**{**writer.next(), "at": long_ago}, **pulse))
        elif waits:
            writer.write(ev.Joining(**{**writer.next(), "at": long_ago}, rank=1, world_size=2, site=0))
        writer.let_go()
    folder.read()
    supervisor = supervise.Supervisor(given, folder)
    supervisor._computing._period = 0.0
    assert "waited" in supervisor._stuck()
    used[os.getpid()] += 1000.0
    assert supervisor._stuck() == ""
    used[1] += 1000.0
    time.sleep(0.01)
    assert supervisor._stuck() == "", "it has just computed"


# --- the agent is killed

RANK = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN if sys.argv[1] == "deaf" else signal.SIG_DFL)
if os.fork() == 0 and sys.argv[1] == "daemon":
    os.setsid()
os.write(1, f"{os.getpid()}\\n".encode())
time.sleep(1000)
"""


@pytest.mark.parametrize("kind", ["plain", "deaf", "daemon"])
@pytest.mark.few(1)
def test_ranks_of_an_agent_that_was_killed_are_ended(tmp_path, monkeypatch, kind):
    """They and their process groups; what a rank has put into a session of its own is left alone."""
    monkeypatch.setattr(orphaned_ranks, "PATIENCE", 0.3)
    rank = subprocess.Popen(
        [sys.executable, "-c", RANK, kind], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    pids = [int(rank.stdout.readline()) for _ in range(2)]
    child = psutil.Process(next(pid for pid in pids if pid != rank.pid))
    writer = Recorder(tmp_path, 1 << 20)
    writer.write(ev.Launched(**writer.next(), pid=rank.pid, rank=0))
    writer.write(ev.Launched(**writer.next(), pid=1 << 30, rank=1))
    writer.close()
    folder = supervise.Folder(tmp_path)
    folder.read()
    ranks = orphaned_ranks.Ranks()
    ranks.see(folder.processes.values())
    ranks.end()
    rank.wait(timeout=10)
    if kind == "daemon":
        left_alone = child.is_running() and child.status() != psutil.STATUS_ZOMBIE
        child.kill()
        assert left_alone
    psutil.wait_procs([child], timeout=10)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    rank.stdout.close()


@pytest.mark.parametrize("kind", ["rank", "helper", "rank of its own session"])
def test_what_is_left_of_a_script_that_was_asked_to_end(kind):
    """The ranks that it has started are ended with it; an upload of a checkpoint goes on, as it would without us."""
    apart = kind == "rank of its own session"
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=apart) as started:
        process = Process("rank")
        process.add([ev.Began(n=1, at=0.0, pid=started.pid, **BEGAN)])
        if kind != "helper":
            process.add([ev.Joined(n=2, at=0.0, **JOINED)])
        found = psutil.Process(started.pid)
        assert orphaned_ranks.own_ranks([found], [process]) == ((found,) if kind == "rank" else ())
        started.kill()


def test_what_a_rank_has_started_outlives_an_interrupted_run(tmp_path, monkeypatch):
    """The agent has ended the ranks; what it leaves is none of ours to end."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("")

    def start(given, evidence, collector, signals, status):
        pid = signals.fork()
        if not pid:
            if os.fork() == 0:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                os.kill(os.getppid(), signal.SIGTERM)
                time.sleep(2.0)
                os._exit(os.close(os.open("uploaded", os.O_CREAT)) or 0)
            signal.signal(signal.SIGTERM, lambda *_: signals_told(signals))
            time.sleep(100.0)
        return pid

    def signals_told(signals):
        os.write(signals._tell, bytes([signal.SIGTERM]))
        time.sleep(1.0)
        os._exit(1)

    monkeypatch.setattr(agent, "start", start)
    assert command.run(options.parse(["--standalone", "--nproc-per-node", "2", "train.py"])) == 143
    end = time.monotonic() + 20
    while not Path("uploaded").exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert Path("uploaded").exists()
