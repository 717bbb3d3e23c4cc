"""Scripts that do not end well: hangs, deaths, a full disk. Nothing known is lost, and nothing waits."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time

import psutil
import pytest
from running import TRAINING, begin, run, script

DEADLOCK = """
model, optimizer = setup()
step(model, optimizer)
print("stuck at", time.time(), flush=True)
if dist.get_rank() == 0:
    dist.barrier()  # rank 0 waits here
else:
    dist.all_reduce(torch.ones(3))  # rank 1 waits here
dist.destroy_process_group()
"""


def test_a_certain_deadlock_is_told_within_five_seconds(tmp_path, forks):
    """No timeout is waited for: the ranks' records make it certain; each rank's line is told."""
    path = script(tmp_path, DEADLOCK)
    ran = run(tmp_path, "--nproc-per-node", "2", path, forks=forks)
    ended = time.time()
    assert ran.code == 1
    assert ran.document["verdict"] == "hung"
    assert ran.found in (["collective-order"], ["no-hang"])
    stuck = max(float(m) for m in re.findall(r"stuck at ([\d.]+)", ran.out))
    assert ended - stuck < 10, "five seconds to tell, and some to write the report and end the processes"
    text = ran.err
    assert "barrier" in text
    assert "all_reduce" in text
    assert ran.document["checks"]["no-hang"]["status"] == "violated"


def test_a_rank_that_waits_too_long_is_a_hang(tmp_path, forks):
    """Nothing is certain while a rank is busy with its own affairs: --stall-timeout decides."""
    ran = run(
        tmp_path,
        "--nproc-per-node",
        "2",
        "--stall-timeout",
        "5",
        script(
            tmp_path,
            """
            model, optimizer = setup()
            for number in range(3 if dist.get_rank() == 0 else 2):
                step(model, optimizer)
            if dist.get_rank() == 1:
                time.sleep(1000)  # its own affairs
            """,
        ),
        forks=forks,
    )
    assert ran.code == 1
    assert ran.document["verdict"] == "hung"
    assert "time.sleep(1000)" in ran.err or "train.py" in ran.err
    assert ran.seconds < 60


@pytest.mark.long
def test_ranks_that_native_code_holds_are_stuck_all_the_same(tmp_path, forks):
    """They make groups in another order, in a call that keeps the interpreter: nothing in it can tell where it is."""
    ran = run(
        tmp_path,
        "--nproc-per-node",
        "2",
        script(
            tmp_path,
            """
            import ctypes
            from torch.distributed import distributed_c10d as c10d
            setup()
            c10d._new_group_with_tag = lambda *args, **kwargs: ctypes.PyDLL(None).sleep(1000)
            for ranks in [[0], [0, 1]] if dist.get_rank() else [[0, 1], [0]]:
                dist.new_group(ranks)
            """,
        ),
        forks=forks,
    )
    assert (ran.code, ran.document["verdict"]) == (1, "hung")
    assert ran.found in (["collective-order"], ["no-hang"])
    assert all(stand["state"] == "waits" and stand["waited"] >= 3 for stand in ran.document["hang"]["stands"])


@pytest.mark.parametrize(
    ("alone", "silent"),
    [
        ("ctypes.PyDLL(None).sleep(1000)", True),
        ("os.kill(os.getpid(), signal.SIGSTOP)", True),
        ("time.sleep(1000)", False),
    ],
)
@pytest.mark.long
def test_a_rank_in_which_nothing_runs_any_more_is_silent(tmp_path, forks, alone, silent):
    """Native code that keeps the GIL, and a stopped process, are told from a rank that is busy or asleep."""
    ran = run(
        tmp_path,
        "--stall-timeout",
        "6",
        "--nproc-per-node",
        "2",
        script(
            tmp_path,
            f"""
            import ctypes, os, signal
            setup()
            dist.barrier()
            if dist.get_rank() == 1:
                time.sleep(1)  # long enough to be seen at a line
                {alone}
            dist.barrier()
            """,
        ),
        forks=forks,
    )
    (finding,) = ran.document["findings"]
    assert (ran.code, finding["check"]) == (1, "no-hang")
    assert ("rank 1 has run no Python code for " in finding["found"]) is silent
    assert ("keeps the GIL" in finding["cause"]) is silent
    assert "train.py:" in finding["found"].split("rank 1 ")[-1], "where it was last seen"


@pytest.mark.long
def test_slow_ranks_are_no_hang(tmp_path, forks):
    """A rank that is late for some seconds is waited for."""
    ran = run(
        tmp_path,
        "--nproc-per-node",
        "2",
        script(
            tmp_path,
            """
            model, optimizer = setup()
            for number in range(2):
                if dist.get_rank() == 1:
                    time.sleep(2.5)
                step(model, optimizer)
            dist.destroy_process_group()
            """,
        ),
        forks=forks,
    )
    assert ran.code == 0, ran.err
    assert ran.document["verdict"] == "held"


def test_a_rank_that_is_killed_is_named(tmp_path, forks):
    """The signal, the rank, and the line where it was; its peer's lost connection is no finding of its own."""
    ran = run(
        tmp_path,
        "--nproc-per-node",
        "2",
        script(
            tmp_path,
            """
            import signal
            model, optimizer = setup()
            step(model, optimizer)
            if dist.get_rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            step(model, optimizer)
            """,
        ),
        forks=forks,
    )
    assert ran.code == 1
    assert ran.document["verdict"] == "failed"
    assert ran.found == ["rank-failure"]
    assert ran.document["findings"][0]["ranks"] == [1]
    assert "SIGKILL" in ran.document["findings"][0]["message"]
    assert {r["rank"]: r["signal"] for r in ran.document["ranks"]}[1] in (9, "SIGKILL")


def test_nothing_outlives_a_command_that_is_killed(tmp_path, forks):
    """SIGKILL of ddpcheck itself takes the agent and its ranks along."""
    path = script(
        tmp_path,
        """
        model, optimizer = setup()
        open(f"rank{dist.get_rank()}", "w").write(str(os.getpid()))
        while True:
            step(model, optimizer)
            time.sleep(0.05)
        """,
    )
    process = begin(tmp_path, "--nproc-per-node", "2", path, forks=forks)
    files = [tmp_path / "rank0", tmp_path / "rank1"]
    while not all(f.exists() and f.read_text() for f in files):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    ranks = [psutil.Process(int(f.read_text())) for f in files]
    process.kill()
    process.communicate()
    _, alive = psutil.wait_procs(ranks, timeout=20)
    assert alive == []


@pytest.mark.long
def test_a_full_disk_in_the_evidence_folder_is_told(tmp_path):
    """The training goes on, what was known is judged, and the report says what is missing."""
    path = script(
        tmp_path,
        """
        import resource
        model, optimizer = setup()
        for number in range(3):
            step(model, optimizer)
        if dist.get_rank() == 1:  # no file may grow any more: what a full disk feels like
            import signal
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        for number in range(3):
            step(model, optimizer)
        dist.destroy_process_group()
        sys.stdout.write(f"trained {dist.is_initialized()}\\n")
        """,
    )
    ran = run(tmp_path, "--nproc-per-node", "2", path)
    assert ran.out.count("trained False") == 2
    assert ran.document["verdict"] == "held", ran.err
    assert ran.document["checks"]["gradient-sync"]["checked"] == 3
    assert any("rank 1" in note.lower() for note in ran.document["notes"])


@pytest.mark.long
def test_evidence_is_kept_below_its_limit(tmp_path):
    """A long run writes no more than --evidence-limit, and is compared to its end, here and there."""
    path = script(
        tmp_path,
        """
        model, optimizer = setup()
        for number in range(6000):
            step(model, optimizer)
        step(model, optimizer, model.module)
        dist.destroy_process_group()
        """,
    )
    folder = tmp_path / "evidence"
    ran = run(tmp_path, "--evidence", folder, "--evidence-limit", "1", "--nproc-per-node", "2", path)
    assert ran.document["verdict"] in ("held", "violated")
    sizes = [f.stat().st_size for f in folder.iterdir()]
    assert sizes
    assert max(sizes) <= 1 << 20
    assert ran.document["checks"]["gradient-sync"]["checked"] > 20


def test_leaving_by_os_exit_is_an_ending(tmp_path, forks):
    """os._exit(0) after the last step is no failure, and what was seen counts."""
    ran = run(
        tmp_path,
        "--nproc-per-node",
        "2",
        script(
            tmp_path,
            """
            model, optimizer = setup()
            for number in range(2):
                step(model, optimizer)
            dist.destroy_process_group()
            os._exit(0)
            """,
        ),
        forks=forks,
    )
    assert ran.code == 0, ran.err
    assert ran.document["checks"]["gradient-sync"]["checked"] == 2


def test_an_environment_without_ddpcheck_is_left_alone(tmp_path):
    """An interpreter that cannot import ddpcheck starts as ever."""
    from ddpcheck.probes import startup

    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    code = "import sys; print('ddpcheck' in sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-S", "-c", "import sys; sys.path.insert(0, sys.argv[1]); import sitecustomize;" + code,
         os.path.dirname(startup.__file__)],
        env={**environment, "DDPCHECK_EVIDENCE": str(tmp_path)}, cwd=tmp_path,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "False"


ABORT = """
import ctypes
import psutil

def abort_at_exit(rank):
    # Rank 1 aborts in its teardown, and not before rank 0 has ended: the launcher would end that one for it.
    if rank == 0:
        with open("first.new", "w") as file:
            file.write(str(os.getpid()))
        os.replace("first.new", "first")
        return
    while not os.path.exists("first") or psutil.pid_exists(int(open("first").read())):
        time.sleep(0.05)
    libc = ctypes.CDLL(None)
    getattr(libc, "__cxa_atexit")(ctypes.cast(libc.abort, ctypes.c_void_p), None, None)
"""


@pytest.mark.long
def test_an_abort_while_the_interpreter_shuts_down_is_no_failure_of_the_script(tmp_path):
    """gloo aborts there at times, in correct programs: the script had ended, and the report says what came after."""
    path = script(
        tmp_path,
        """
        model, optimizer = setup()
        for _ in range(2):
            step(model, optimizer)
        dist.destroy_process_group()
        abort_at_exit(int(os.environ["RANK"]))
        """,
        head=TRAINING + ABORT,
    )
    ran = run(tmp_path, "--nproc-per-node", "2", path)
    assert ran.found == [], ran.err
    assert ran.document["verdict"] == "held"
    assert ran.code == 0
    assert {r["rank"]: r["signal"] for r in ran.document["ranks"]}[1] in (6, "SIGABRT")
    assert any("rank 1" in note for note in ran.document["notes"])


@pytest.mark.long
def test_an_abort_in_a_spawned_rank_is_excused_as_well(tmp_path):
    """mp.spawn raises in the parent for a rank that aborted after its work was done."""
    path = script(
        tmp_path,
        """
        import torch.multiprocessing as mp

        def work(rank, store):
            dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
            model = DistributedDataParallel(nn.Linear(4, 1))
            step(model, torch.optim.SGD(model.parameters(), lr=0.1))
            dist.destroy_process_group()
            abort_at_exit(rank)

        if __name__ == "__main__":
            mp.spawn(work, (os.path.abspath("store"),), nprocs=2)
        """,
        head=TRAINING + ABORT,
    )
    ran = run(tmp_path, path)
    assert ran.found == [], ran.err
    assert ran.document["verdict"] == "held"
    assert ran.code == 0
