"""Leases of GPUs between real processes: never two holders of one, nobody waits for ever, and every ending frees.

The GPUs are made up, and named by CUDA_VISIBLE_DEVICES as a caller would.
"""

from __future__ import annotations

import json
import os
import random
import signal
import stat
import subprocess
import sys

import pytest

from ddpcheck.gpus import leases
from ddpcheck.gpus import visible_devices as visible
from ddpcheck.gpus.leases import Lease
from ddpcheck.vocabulary.model import Gpu
from tests.progress import communicate

WORKER = '''
"""Leases, holds, checks that it is alone, and gives back; a line for each word that it is sent."""
import os, sys, time, json
from pathlib import Path
from ddpcheck.gpus import leases, visible_devices as visible
from ddpcheck.gpus.leases import Lease
from ddpcheck.vocabulary.model import Gpu

gpus = [Gpu(token=t, key="GPU-" + t) for t in visible.tokens(os.environ["CUDA_VISIBLE_DEVICES"], 99)]

def wait(lease):
    while not lease.take():
        time.sleep(0.001)

def held(lease):
    return sorted(gpu.token for gpu in lease.gpus)

def say(what):
    print(json.dumps(what), flush=True)
'''

COMPETE = (
    WORKER
    + """
place = Path(sys.argv[1])
worst = 0.0
for wanted in map(int, sys.argv[2].split(",")):
    lease = Lease(gpus, wanted, leases.folder(), "worker")
    begun = time.monotonic()
    wait(lease)
    worst = max(worst, time.monotonic() - begun)
    assert len(lease.gpus) == wanted
    # Whoever else holds one of them has made this folder, and the race is lost.
    for token in held(lease):
        (place / token).mkdir()
    os.sched_yield()
    for token in held(lease):
        (place / token).rmdir()
    lease.release()
say(worst)
"""
)

OBEY = (
    WORKER
    + """
lease = Lease(gpus, int(sys.argv[1]), leases.folder(), "worker")
for word in sys.stdin:
    if word.strip() == "take":
        say(lease.take())
    elif word.strip() == "wait":
        wait(lease); say(held(lease))
    elif word.strip() == "fork":
        pid = os.fork()
        if pid == 0:
            time.sleep(600)
        say(pid)
    elif word.strip() == "release":
        lease.release(); say("released")
"""
)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder of locks of its own."""
    path = tmp_path / "leases"
    monkeypatch.setenv(leases.FOLDER_VARIABLE, str(path))
    return leases.folder()


@pytest.fixture
def worker(place):
    """Starts processes that lease; none of them outlives the test."""
    started = []

    def start(code, visible_devices, *arguments):
        environment = os.environ | {visible.VARIABLE: visible_devices}
        process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def tell(process, word):
    process.stdin.write(word + "\n")
    process.stdin.flush()


def hear(process):
    return json.loads(process.stdout.readline())


def ask(process, word):
    tell(process, word)
    return hear(process)


def gpus(*tokens):
    return [Gpu(token=t, key=f"GPU-{t}") for t in tokens]


# --- competing


def test_no_gpu_has_two_holders(worker, tmp_path):
    """Processes that see different, overlapping GPUs and want different numbers of them: each is alone with its own."""
    shared = tmp_path / "held"
    shared.mkdir()
    rng = random.Random(1)
    workers = []
    for seen in ("0,1,2", "2,1", "0,1,2", "1,3", "2,0"):
        most = len(seen.split(","))
        wishes = ",".join(str(rng.randint(1, most)) for _ in range(60))
        workers.append(worker(COMPETE, seen, shared, wishes))
    for process in workers:
        out, _ = communicate(process)
        assert process.returncode == 0
        assert json.loads(out) < 30
    assert list(shared.iterdir()) == []


def test_the_race_is_real(worker, tmp_path, monkeypatch):
    """The same without locks is lost: the test above can fail."""
    shared = tmp_path / "held"
    shared.mkdir()
    unlocked = COMPETE.replace(
        "place = Path", "leases.fcntl.flock = lambda *a: None; os.sched_yield = lambda: time.sleep(0.002)\nplace = Path"
    )
    workers = [worker(unlocked, "0,1", shared, ",".join(["2"] * 50)) for _ in range(3)]
    codes = []
    for process in workers:
        communicate(process)
        codes.append(process.returncode)
    assert any(codes)


def test_a_wish_for_many_is_not_passed_by_wishes_for_one(worker):
    """Who waits for two GPUs is next: one that becomes free is kept for it."""
    first, second = (worker(OBEY, "0,1", 1) for _ in range(2))
    both, late = worker(OBEY, "0,1", 2), worker(OBEY, "0,1", 1)
    assert ask(first, "take") is True
    assert ask(second, "take") is True
    assert ask(both, "take") is False  # it has its turn from here on
    ask(second, "release")
    assert ask(late, "take") is False  # although one is free
    assert ask(both, "take") is False  # and holds none of them meanwhile
    ask(first, "release")
    assert ask(both, "wait") == ["0", "1"]
    tell(late, "wait")
    ask(both, "release")
    assert hear(late) in (["0"], ["1"])


def test_sessions_that_see_other_gpus_do_not_wait_for_each_other(worker):
    """A queue for one GPU is no queue for another one."""
    holder, waiter, other = worker(OBEY, "0", 1), worker(OBEY, "0", 1), worker(OBEY, "1", 1)
    assert ask(holder, "take") is True
    assert ask(waiter, "take") is False
    assert ask(other, "take") is True


@pytest.mark.parametrize("role", ["holder", "waiter"])
def test_a_process_that_is_killed_holds_nothing(worker, role):
    """SIGKILL for the holder, or for the one that is next, frees what it had at once."""
    holder, waiter, third = (worker(OBEY, "0", 1) for _ in range(3))
    assert ask(holder, "take") is True
    assert ask(waiter, "take") is False
    killed, heir = (holder, waiter) if role == "holder" else (waiter, third)
    killed.kill()
    killed.wait()
    tell(heir, "wait")
    if role == "waiter":
        ask(holder, "release")
    assert hear(heir) == ["0"]


def test_a_lease_lasts_as_long_as_the_ranks_do(worker):
    """Where the holder is killed and its forks are not gone yet, the GPU is not lent anew; a release frees it."""
    holder, waiter = worker(OBEY, "0", 1), worker(OBEY, "0", 1)
    assert ask(holder, "take") is True
    rank = ask(holder, "fork")
    holder.kill()
    holder.wait()
    assert ask(waiter, "take") is False
    os.kill(rank, signal.SIGKILL)
    assert ask(waiter, "wait") == ["0"]
    orphan = ask(waiter, "fork")
    ask(waiter, "release")
    third = worker(OBEY, "0", 1)
    assert ask(third, "take") is True
    os.kill(orphan, signal.SIGKILL)


# --- one lease


def test_all_or_none(place):
    """Two of two GPUs of which one is taken: neither is held by who waits."""
    one, both, other = (
        Lease(gpus("0"), 1, place, "a"),
        Lease(gpus("0", "1"), 2, place, "b"),
        Lease(gpus("1"), 1, place, "c"),
    )
    assert one.take()
    assert not both.take()
    assert both.gpus == ()
    assert not other.take()  # it is not its turn
    both.release()
    assert other.take()
    for lease in (one, both, other):
        lease.release()
    assert both.take()
    assert both.take()
    assert [gpu.token for gpu in both.gpus] == ["0", "1"]
    both.release()


def test_gpus_come_in_the_callers_order(place):
    """The first ones that are free, in the order in which the caller sees them."""
    lease = Lease(gpus("3", "1", "2"), 2, place, "a")
    assert lease.take()
    assert [gpu.token for gpu in lease.gpus] == ["3", "1"]
    other = Lease(gpus("1", "2"), 1, place, "b")
    assert other.take()
    assert [gpu.token for gpu in other.gpus] == ["2"]
    lease.release()
    other.release()


def test_one_gpu_under_two_names_is_one(place):
    """What names the hardware counts: another session may call it by another number."""
    ours = Lease([Gpu(token="0", key="GPU-a")], 1, place, "a")
    theirs = Lease([Gpu(token="GPU-a", key="GPU-a")], 1, place, "b")
    assert ours.take()
    assert not theirs.take()
    ours.release()
    theirs.release()


def test_a_wait_says_who_is_in_the_way(place):
    """The sentence names the test that waits, and the holder of each GPU that is in use; what is free is not named."""
    holder, waiter = Lease(gpus("0"), 1, place, "test_a"), Lease(gpus("0", "1"), 2, place, "test_b")
    assert holder.take()
    assert not waiter.take()
    assert waiter.told() == (f"test_b waits for 2 of the GPUs 0, 1; in use: GPU 0 by test_a (process {os.getpid()})")
    holder.release()
    assert waiter.told() == "test_b waits for 2 of the GPUs 0, 1"
    waiter.release()


def test_a_lock_that_was_tidied_away_is_made_anew(place):
    """A file that somebody removes between opening and locking it is no lock."""
    lease = Lease(gpus("0"), 1, place, "a")
    original = leases.fcntl.flock

    def remove_first(descriptor, how):
        original(descriptor, how)
        for path in place.iterdir():
            path.unlink()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leases.fcntl, "flock", remove_first)
        assert not lease.take()
    assert lease.take()
    assert sorted(p.name for p in place.iterdir()) == ["GPU-0.turn", "GPU-0.use"]
    lease.release()


def test_odd_names_make_no_odd_files(place):
    """A key that is no file name leaves the folder by no way."""
    lease = Lease([Gpu(token="x", key="../MIG-GPU-1/2/3")], 1, place, "a")
    assert lease.take()
    assert sorted(p.name for p in place.iterdir()) == ["___MIG-GPU-1_2_3.turn", "___MIG-GPU-1_2_3.use"]
    lease.release()


@pytest.mark.parametrize("wanted", [0, 2])
def test_what_cannot_be_had_is_refused(place, wanted):
    """Nothing waits for GPUs that are not there."""
    with pytest.raises(ValueError, match=f"{wanted} of 1 GPUs cannot be had"):
        Lease(gpus("0", "0"), wanted, place, "a")


# --- the folder


def test_the_folder_is_the_users_own(monkeypatch, tmp_path):
    """In the temporary folder, for this user alone; a link, or a folder of somebody else, is refused with the fix."""
    monkeypatch.delenv(leases.FOLDER_VARIABLE, raising=False)
    monkeypatch.setattr(leases.tempfile, "gettempdir", lambda: str(tmp_path))
    path = leases.folder()
    assert path == leases.folder() == tmp_path / f"ddpcheck.gpus.{os.getuid()}"
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    path.rmdir()
    (tmp_path / "elsewhere").mkdir()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(
        PermissionError, match=f"not a folder of this user: remove it, or name.*{leases.FOLDER_VARIABLE}"
    ):
        leases.folder()
    path.unlink()
    path.mkdir()
    monkeypatch.setattr(leases.os, "getuid", lambda: os.stat("/").st_uid + 1)
    (tmp_path / f"ddpcheck.gpus.{os.getuid()}").mkdir(exist_ok=True)
    with pytest.raises(PermissionError):
        leases.folder()
