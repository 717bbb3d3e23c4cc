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

import pytest

from ddpcheck.gpus import leases
from ddpcheck.gpus.leases import Lease
from ddpcheck.model import Gpu
from tests.inner import InnerProject, Ran

MADE_UP = """
import os, sys
from pathlib import Path

zygote = sys.modules.get("ddpcheck.ranks.zygote")
if zygote is not None:
    from ddpcheck.gpus import visible
    from ddpcheck.model import Gpu, Machine

    def look():
        tokens = visible.tokens(os.environ.get(visible.VARIABLE, "0,1"), 99)
        nccl = tuple(map(int, os.environ.get("MADE_UP_NCCL", "2.30.7").split(".")))
        return Machine(gpus=tuple(Gpu(token=t, key="GPU-" + t) for t in tokens), nccl=nccl)

    zygote.look = look
    zygote.PATIENCE = 0.2
else:
    import ddpcheck.gpus.plain
    ddpcheck.gpus.plain.PATIENCE = 0.2
fresh = sys.modules.get("ddpcheck.ranks.fresh")
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
        return process.communicate(timeout=120)
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

NAMES = ("CUDA_VISIBLE_DEVICES", "NCCL_MULTI_RANK_GPU_ENABLE", "PYTORCH_NVML_BASED_CUDA_CHECK")

@pytest.mark.ddp(world_size=[1, 2, 4], device="cuda")
def test_gloo(ddp):
    gpus = "7" if ddp.world_size == 1 else "7,GPU-8"
    assert [os.environ.get(name) for name in NAMES] == [gpus, None, None]
    assert os.environ["DDPCHECK_LEASES"]
    assert str(ddp.device) == f"cuda:{ddp.rank % 2}"

@pytest.mark.ddp(world_size=[2, 4], backend="nccl", device="cuda")
def test_nccl(ddp):
    shares = "1" if ddp.world_size == 4 else None
    assert [os.environ.get(name) for name in NAMES] == ["7,GPU-8", shares, None]
    assert ddp.backend == "nccl"

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
    dist.init_process_group = lambda backend, **more: made("gloo", **more)
"""


def test_ranks_see_the_gpus_of_their_test(made_up: InnerProject) -> None:
    """By the caller's names for them; more ranks than GPUs share them in turn, which NCCL and the reader are told."""
    made_up.write("conftest.py", MADE_UP + NO_NCCL)
    made_up.write("test_it.py", WHAT_RANKS_SEE)
    ran = made_up.run("--ddp-report", "report.json", CUDA_VISIBLE_DEVICES="7,GPU-8")
    assert {one.outcome for one in ran.tests.values()} == {"passed"}, ran.stdout
    line = "1 test had several NCCL ranks on one GPU: ddpcheck set NCCL_MULTI_RANK_GPU_ENABLE=1 for them"
    assert line in ran.stdout
    report = json.loads((made_up.folder / "report.json").read_text())
    assert report["notes"] == [line]
    facts = {test["nodeid"].partition("::")[2]: test for test in report["tests"]}
    assert facts["test_gloo[1rank]"]["gpus"] == ["GPU-7"]
    assert facts["test_nccl[4ranks]"]["gpus"] == ["GPU-7", "GPU-GPU-8"]
    assert facts["test_without"]["gpus"] == []
    assert [name for name, test in facts.items() if test["nccl_shares_gpu"]] == ["test_nccl[4ranks]"]
    assert not any(test["simulated"] for test in facts.values())


@pytest.mark.long
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


def test_sessions_and_workers_never_have_a_gpu_at_once(made_up: InnerProject) -> None:
    """Two workers of one session, and another session, with tests of every kind: each waits, says so, and is alone."""
    made_up.write("test_it.py", COMPETING.format(folder=str(made_up.folder / "alone")))
    lease = holder(made_up, "0", "1")
    sessions = [made_up.start("-n", "2"), made_up.start("-p", "no:xdist")]
    for process in sessions:
        wait_for(process, "of the GPUs 0, 1; in use: ")
    assert list((made_up.folder / "alone").iterdir()) == []
    lease.release()
    outputs = [finish(process) for process in sessions]
    assert [process.returncode for process in sessions] == [0, 0], outputs
    assert all("14 passed" in out for out, _ in outputs)
    assert list((made_up.folder / "alone").iterdir()) == []


ONE = """
import os
import pytest

@pytest.mark.ddp(world_size=1, device="cuda", timeout=1)
def test_it(ddp): pass
"""


MORE_THAN_ONE = """
@pytest.mark.ddp(world_size=4, backend="nccl", device="cuda")
def test_sharing(ddp): pass

@pytest.mark.ddp(world_size=2, device="cuda")
def test_both(ddp): pass
"""


def test_a_wait_is_told_is_no_part_of_the_tests_time_and_may_be_interrupted(made_up: InnerProject) -> None:
    """Who waits long says for what, and begins to count then; NCCL before 2.30 shares no GPU; Ctrl-C ends a wait."""
    made_up.write("test_it.py", ONE + MORE_THAN_ONE)
    first, second = holder(made_up, "0"), holder(made_up, "1")
    process = made_up.start("-v", "-rs", "-p", "no:randomly", CUDA_VISIBLE_DEVICES="0,1", MADE_UP_NCCL="2.27.5")
    said = wait_for(process, "ddpcheck: ")
    assert "test_it.py::test_it waits for 1 of the GPUs 0, 1; in use: " in said
    assert f"GPU 0 by another test (process {os.getpid()})" in said
    time.sleep(1.2)  # longer than the test may take
    assert process.poll() is None
    first.release()
    wait_for(process, "test_it.py::test_both waits for 2 of the GPUs 0, 1; in use: GPU 1 by another test")
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, _ = finish(process)
    assert time.monotonic() < begun + 10
    assert process.returncode == pytest.ExitCode.INTERRUPTED
    assert "KeyboardInterrupt" in out
    assert "1 passed, 1 skipped" in out
    assert "needs NCCL 2.30 or newer (torch 2.14 and newer ship it), and NCCL 2.27.5 is loaded" in out
    assert made_up.leftover_processes() == []
    second.release()


@pytest.mark.long
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
    ran = made_up.run("test_next.py", CUDA_VISIBLE_DEVICES="0", limit=60)
    assert ran["test_it"].outcome == "passed"


# --- without ranks


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
def test_a_folder_of_somebody_elses_is_a_sentence(made_up: InnerProject) -> None:
    """Leases that cannot be kept are the test's error, and nothing hangs."""
    made_up.write("test_it.py", ONE)
    (made_up.temp / f"ddpcheck.gpus.{os.getuid()}").symlink_to(made_up.folder)
    ran = made_up.run()
    assert ran["test_it"].outcome == "error"
    assert "where the leases of GPUs are kept, is not a folder of this user" in ran["test_it"].text
    assert leases.FOLDER_VARIABLE in ran["test_it"].text


def test_a_wrong_gpu_mark_is_a_sentence(made_up: InnerProject) -> None:
    """At collection, with the mark and the mend."""
    made_up.write("test_it.py", "import pytest\n@pytest.mark.gpu('two')\ndef test_it(): pass\n")
    ran: Ran = made_up.run()
    assert ran.code == pytest.ExitCode.USAGE_ERROR
    assert "test_it.py::test_it: @pytest.mark.gpu('two'): it takes a number of GPUs above 0, such as 2." in ran.stderr


# --- a rehearsal


REHEARSED = """
import pytest, torch
import torch.distributed as dist

@pytest.mark.ddp(world_size=[2, 4], backend="nccl", device="cuda")
def test_ranks(ddp):
    assert ddp.backend == dist.get_backend() == "gloo"
    assert torch.cuda.device_count() == min(ddp.world_size, 3)
    model = ddp.wrap(torch.nn.Linear(2, 1))
    model(torch.ones(1, 2, device=ddp.device)).sum().backward()
    assert model.module.weight.grad.device == torch.device("cuda", ddp.rank % 3)

@pytest.mark.ddp(world_size=1, device="cuda")
@pytest.mark.gpu(2)
def test_two(ddp):
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(2, device="cuda:0") @ torch.ones(2, device="cuda:1")

@pytest.mark.ddp(world_size=1, device="cuda")
@pytest.mark.gpu(4)
def test_too_many(ddp): pass

@pytest.mark.ddp(device="cuda", backend="nccl")
@pytest.mark.gpu(real="its kernels")
def test_real_ranks(ddp): pass

@pytest.mark.gpu(2)
def test_alone():
    assert torch.ones(1, device="cuda:1").device.index == 1

@pytest.mark.gpu(real="its memory")
def test_real(): pass

def test_other():
    assert not torch.cuda.is_available()

@pytest.mark.ddp
def test_on_the_cpu(ddp):
    assert not torch.cuda.is_available()
"""


def test_a_rehearsal_on_simulated_devices(project: InnerProject) -> None:
    """Tests for GPUs run on devices that are not there, the others as ever; the reader is told what is not shown."""
    torch = pytest.importorskip("torch")
    if torch.version.cuda is not None and torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    project.write("test_it.py", REHEARSED)
    project.write("pytest.ini", "[pytest]\nddp_simulate_gpus = 3\n")
    ran = project.run("--ddp-report", "report.json")
    outcomes = {name: one.outcome for name, one in ran.tests.items()}
    skipped = {"test_too_many", "test_real_ranks", "test_real"}
    assert {name for name, outcome in outcomes.items() if outcome == "skipped"} == skipped, ran.stdout
    assert {outcome for name, outcome in outcomes.items() if name not in skipped} == {"passed"}, ran.stdout
    assert "needs 4 GPUs, and torch sees 3 GPUs" in ran["test_too_many"].text
    for name, why in (("test_real_ranks", "its kernels"), ("test_real", "its memory")):
        assert ran[name].text == f"Skipped: it runs on real GPUs only, and these are simulated: {why}"
    line = (
        "3 tests for GPUs ran on simulated devices, with gloo in the place of NCCL: that shows where tensors were, and "
        "nothing of NCCL, streams, memory or kernels"
    )
    assert line in ran.stdout
    report = json.loads((project.folder / "report.json").read_text())
    assert report["notes"] == [line]
    assert {t["nodeid"]: t["simulated"] for t in report["tests"]}["test_it.py::test_on_the_cpu"] is False


def test_a_rehearsal_promises_no_gpu(project: InnerProject) -> None:
    """Simulated devices are no GPUs that a runner could promise."""
    project.write("test_it.py", "def test_it(): pass\n")
    ran = project.run("--ddp-simulate-gpus", "2", "--ddp-require-gpus", "1")
    assert ran.code == pytest.ExitCode.USAGE_ERROR
    assert "--ddp-require-gpus with --ddp-simulate-gpus: simulated devices are no GPUs" in ran.stderr
    assert project.run("--ddp-simulate-gpus", "0").code == pytest.ExitCode.USAGE_ERROR
