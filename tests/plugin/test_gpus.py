"""Tests on GPUs in whole sessions: which they get, who waits, and what a reader is told.

The GPUs are made up: what the machine answers is replaced in the process that
ranks come from, and the tests touch no device. Everything else is as it is.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import psutil
import pytest

from ddpcheck.gpus import leases
from ddpcheck.gpus.leases import Lease
from ddpcheck.vocabulary.model import Gpu
from tests.inner import InnerProject, Ran
from tests.progress import communicate

pytestmark = pytest.mark.long

MADE_UP = """
import os, sys
from pathlib import Path

zygote = sys.modules.get("ddpcheck.zygote.zygote")
if zygote is not None:
    from ddpcheck.gpus import visible_devices as visible
    from ddpcheck.vocabulary.model import Gpu, Machine

    def look():
        tokens = visible.tokens(os.environ.get(visible.VARIABLE, "0,1"), 99)
        nccl = tuple(map(int, os.environ.get("MADE_UP_NCCL", "2.30.7").split(".")))
        return Machine(gpus=tuple(Gpu(token=t, key="GPU-" + t) for t in tokens), nccl=nccl)

    zygote.look = look
    zygote.PATIENCE = 0.2
else:
    import ddpcheck.gpus.tests_without_ranks
    ddpcheck.gpus.tests_without_ranks.PATIENCE = 0.2
fresh = sys.modules.get("ddpcheck.zygote.rank_without_fork")
if zygote is not None or fresh is not None:
    import torch
    torch.cuda.set_device = lambda index: None

def alone(folder):
    \"\"\"Fail unless nobody else has any of these GPUs at this moment.\"\"\"
    import time
    from contextlib import ExitStack
    with ExitStack() as stack:
        for token in os.environ["CUDA_VISIBLE_DEVICES"].split(","):
            mine = Path(folder) / f"GPU {token}"
            mine.mkdir()
            stack.callback(mine.rmdir)
        time.sleep(0.02)
"""


@pytest.fixture
def made_up(project: InnerProject) -> InnerProject:
    """A project on a machine with two GPUs, or those of CUDA_VISIBLE_DEVICES, and NCCL 2.30.7."""
    project.write("conftest.py", MADE_UP)
    (project.folder / "alone").mkdir()
    return project


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    try:
        return communicate(process)
    finally:
        process.kill()


def wait_for(process: subprocess.Popen[str], words: str) -> str:
    """Read what a session says until it has said this."""
    assert process.stderr is not None
    said = ""
    while words not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    return said


def holder(project: InnerProject, *tokens: str) -> Lease:
    """A lease of these GPUs, as another session would hold it."""
    folder = project.temp / f"ddpcheck.gpus.{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    lease = Lease([Gpu(token=t, key=f"GPU-{t}") for t in tokens], len(tokens), folder, "another test")
    assert lease.take()
    return lease


WHAT_RANKS_SEE = """
import json, os
import pytest
import torch.distributed as dist

NAMES = ("CUDA_VISIBLE_DEVICES", "NCCL_MULTI_RANK_GPU_ENABLE", "PYTORCH_NVML_BASED_CUDA_CHECK")

@pytest.mark.ddp(world_size=[1, 2, 4], device="cuda")
def test_gloo(ddp):
    gpus = "7" if ddp.world_size == 1 else "7,GPU-8"
    assert [os.environ.get(name) for name in NAMES] == [gpus, None, None]
    assert os.environ["DDPCHECK_LEASES"]
    assert str(ddp.device) == f"cuda:{ddp.rank % 2}"
    assert dist.bound_device is None

@pytest.mark.ddp(world_size=[2, 4], backend="nccl", device="cuda")
def test_nccl(ddp):
    shares = "1" if ddp.world_size == 4 else None
    assert [os.environ.get(name) for name in NAMES] == ["7,GPU-8", shares, None]
    assert ddp.backend == "nccl"
    assert dist.bound_device == ddp.device

@pytest.mark.ddp(world_size=1, device="cuda")
@pytest.mark.gpu(2)
def test_two(ddp):
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "7,GPU-8"

@pytest.mark.ddp(world_size=1)
def test_without(ddp):
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "7,GPU-8"
    assert "DDPCHECK_LEASES" not in os.environ
"""

NO_NCCL = """
if zygote is not None:
    import torch.distributed as dist
    made = dist.init_process_group

    def in_gloo(backend, device_id=None, **more):
        dist.bound_device = device_id  # a torch without CUDA refuses one
        made("gloo", **more)

    dist.init_process_group = in_gloo
"""


def test_ranks_see_the_gpus_of_their_test(made_up: InnerProject) -> None:
    """By the caller's names for them; more ranks than GPUs share them in turn, which NCCL and the reader are told."""
    made_up.write("conftest.py", MADE_UP + NO_NCCL)
    made_up.write("test_it.py", WHAT_RANKS_SEE)
    ran = made_up.run("--ddp-report", "report.json", CUDA_VISIBLE_DEVICES="7,GPU-8")
    assert {one.outcome for one in ran.tests.values()} == {"passed"}, ran.stdout
    line = (
        "1 test had several NCCL ranks on one GPU: ddpcheck set NCCL_MAX_CTAS=8, NCCL_MULTI_RANK_GPU_ENABLE=1, "
        "NCCL_NVLS_ENABLE=0 for them"
    )
    assert line in " ".join(ran.stdout.split())
    report = json.loads((made_up.folder / "report.json").read_text())
    assert report["notes"] == [line]
    facts = {test["nodeid"].partition("::")[2]: test for test in report["tests"]}
    assert facts["test_gloo[1rank]"]["gpus"] == ["GPU-7"]
    assert facts["test_nccl[4ranks]"]["gpus"] == ["GPU-7", "GPU-GPU-8"]
    assert facts["test_without"]["gpus"] == []
    assert [name for name, test in facts.items() if test["nccl_shares_gpu"]] == ["test_nccl[4ranks]"]
    assert not any(test["simulated"] for test in facts.values())


def test_interpreters_see_them_before_they_import_anything(made_up: InnerProject) -> None:
    """Ranks that are not forked have the variable from the start: a module may ask CUDA when it is imported."""
    made_up.write(
        "test_it.py",
        """
        import os, threading, time
        import pytest
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
        SEEN = os.environ["CUDA_VISIBLE_DEVICES"]

        @pytest.mark.ddp(world_size=1, device="cuda")
        def test_it(ddp):
            assert SEEN == "4"
        """,
    )
    ran = made_up.run(CUDA_VISIBLE_DEVICES="4,2")
    assert ran["test_it"].outcome == "passed", ran.stdout
    assert ran["test_it"].ddp["fresh"]


COMPETING = """
import pytest
from conftest import alone

@pytest.mark.parametrize("n", range(6))
@pytest.mark.ddp(world_size=1, device="cuda")
def test_one(ddp, n):
    alone({folder!r})

@pytest.mark.parametrize("n", range(3))
@pytest.mark.ddp(world_size=2, device="cuda")
def test_both(ddp, n):
    if ddp.rank == 0:
        alone({folder!r})

@pytest.mark.parametrize("n", range(3))
@pytest.mark.gpu
def test_in_this_process(n):
    alone({folder!r})

@pytest.mark.parametrize("n", range(2))
@pytest.mark.ddp(world_size=2, device="cuda", timeout=5)
@pytest.mark.gpu(1)
def test_sharing(ddp, n):
    if ddp.rank == 0:
        alone({folder!r})
"""


ONE = """
import pytest

@pytest.mark.ddp(world_size=1, device="cuda", timeout=1)
def test_it(ddp): pass
"""

NCCL_SHARING = """
@pytest.mark.ddp(world_size=4, backend="nccl", device="cuda")
def test_sharing(ddp): pass
"""

ALL = """
import pytest

@pytest.mark.ddp(world_size=3, device="cuda")
def test_all(ddp): pass
"""


def test_sessions_and_workers_never_have_a_gpu_at_once(made_up: InnerProject) -> None:
    """Two workers of one session, and another session, with tests of every kind: each waits, says so, and is alone.

    A wait is no part of the test's time, and may be interrupted; NCCL before 2.30 shares no GPU.
    """
    made_up.write("test_it.py", COMPETING.format(folder=str(made_up.folder / "alone")))
    made_up.write("test_first.py", ONE + NCCL_SHARING)
    made_up.write("test_last.py", ALL)
    both, third = holder(made_up, "0", "1"), holder(made_up, "2")
    me = f"another test (process {os.getpid()})"
    workers = made_up.start("-n", "2", "test_it.py", CUDA_VISIBLE_DEVICES="0,1,2")
    other = made_up.start(
        *("-v", "-rs", "-p", "no:xdist", "test_first.py", "test_it.py", "test_last.py"),
        CUDA_VISIBLE_DEVICES="0,1,2",
        MADE_UP_NCCL="2.27.5",
    )
    in_use = f"of the GPUs 0, 1, 2; in use: GPU 0 by {me}; GPU 1 by {me}; GPU 2 by {me}"
    assert f"ddpcheck: test_first.py::test_it waits for 1 {in_use}" in wait_for(other, in_use)
    wait_for(workers, in_use)
    time.sleep(1.2)  # longer than that first test may take
    assert [process.poll() for process in (other, workers)] == [None, None]
    assert list((made_up.folder / "alone").iterdir()) == []
    both.release()

    said = wait_for(other, "test_last.py::test_all waits for 3 of the GPUs 0, 1, 2; in use: ").splitlines()[-1]
    assert f"GPU 2 by {me}" in said
    below = psutil.Process(other.pid).children(recursive=True)
    assert below
    begun = time.monotonic()
    other.send_signal(signal.SIGINT)
    out, _ = finish(other)
    assert time.monotonic() < begun + 10
    assert not any(process.is_running() for process in below)
    assert other.returncode == pytest.ExitCode.INTERRUPTED
    assert "KeyboardInterrupt" in out
    assert "15 passed, 1 skipped" in out
    assert "needs NCCL 2.30 or newer (torch 2.14 and newer ship it), and NCCL 2.27.5 is loaded" in out

    out, err = finish(workers)  # it had to wait for who wanted all of them
    assert workers.returncode == 0, out + err
    assert "14 passed" in out
    assert list((made_up.folder / "alone").iterdir()) == []
    assert made_up.leftover_processes() == []
    third.release()


def test_a_session_that_is_killed_frees_its_gpu(made_up: InnerProject) -> None:
    """SIGKILL for a session whose ranks are at work: the next one gets the GPU."""
    made_up.write(
        "test_it.py",
        """
        import time
        import pytest
        from pathlib import Path

        @pytest.mark.ddp(world_size=2, device="cuda")
        def test_it(ddp):
            Path("begun").touch()
            time.sleep(600)
        """,
    )
    made_up.write("test_next.py", ONE)
    process = made_up.start("test_it.py", CUDA_VISIBLE_DEVICES="0")
    while not (made_up.folder / "begun").exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.communicate()
    ran = made_up.run("test_next.py", CUDA_VISIBLE_DEVICES="0", patience=60.0)
    assert ran["test_it"].outcome == "passed"


# --- without ranks


def test_tests_without_ranks_keep_to_their_gpus(made_up: InnerProject) -> None:
    """The process takes what its most demanding test wants, and keeps to it; ranks still see the caller's GPUs."""
    made_up.write(
        "test_it.py",
        """
        import os, subprocess, sys
        import pytest

        seen = lambda: os.environ["CUDA_VISIBLE_DEVICES"]

        @pytest.mark.gpu
        def test_first():
            assert seen() == "0,1"
            assert os.path.isdir(os.environ["DDPCHECK_LEASES"])

        @pytest.mark.ddp(world_size=3, device="cuda")
        @pytest.mark.gpu(3)
        def test_ranks(ddp):
            assert seen() == "0,1,2"

        @pytest.mark.gpu(count=2)
        def test_two():
            assert seen() == "0,1"

        @pytest.mark.gpu(count=4)
        def test_too_many(): pass

        @pytest.mark.gpu
        def test_a_session_within():
            code = subprocess.call([sys.executable, "-m", "pytest", "-q", "inner_one.py"], timeout=60)
            assert code == 0

        def test_other():
            assert "DDPCHECK_LEASES" not in os.environ
        """,
    )
    made_up.write("inner_one.py", ONE)
    ran = made_up.run("-p", "no:cacheprovider", CUDA_VISIBLE_DEVICES="0,1,2")
    # 4 is more than there are, so it asks for nothing that the others would have to share.
    outcomes = {name: one.outcome for name, one in ran.tests.items()}
    assert outcomes.pop("test_too_many") == "skipped"
    assert "@pytest.mark.gpu(4) needs 4 GPUs, and torch sees 3 GPUs" in ran["test_too_many"].text
    assert set(outcomes.values()) == {"passed"}, ran.stdout


def test_a_process_whose_cuda_has_begun_leases_what_it_uses(made_up: InnerProject) -> None:
    """Where CUDA sees all GPUs already, the variable is left alone, and the first of them is leased."""
    made_up.write(
        "test_it.py",
        """
        import os, torch
        import pytest
        torch._C._cuda_getDeviceCount = lambda: 2

        @pytest.mark.gpu
        def test_it():
            assert os.environ["CUDA_VISIBLE_DEVICES"] == "5,6"
        """,
    )
    lease = holder(made_up, "5")
    process = made_up.start(CUDA_VISIBLE_DEVICES="5,6")
    wait_for(process, "test_it.py::test_it waits for 1 of the GPUs 5;")
    lease.release()
    out, err = finish(process)
    assert "1 passed" in out, err


# --- what a reader is told


def test_a_folder_of_somebody_elses_is_a_sentence(made_up: InnerProject) -> None:
    """Leases that cannot be kept are the test's error, and nothing hangs."""
    made_up.write("test_it.py", ONE)
    (made_up.temp / f"ddpcheck.gpus.{os.getuid()}").symlink_to(made_up.folder)
    ran = made_up.run()
    assert ran["test_it"].outcome == "error"
    assert "where the leases of GPUs are kept, is not a folder of this user" in ran["test_it"].text
    assert leases.FOLDER_VARIABLE in ran["test_it"].text


def test_a_wrong_gpu_mark_is_a_sentence(made_up: InnerProject) -> None:
    """At collection, with the mark and the fix."""
    made_up.write("test_it.py", "import pytest\n@pytest.mark.gpu('two')\ndef test_it(): pass\n")
    ran: Ran = made_up.run()
    assert ran.code == pytest.ExitCode.USAGE_ERROR
    assert "test_it.py::test_it: @pytest.mark.gpu('two'): it takes a number of GPUs above 0, such as 2." in ran.stderr
