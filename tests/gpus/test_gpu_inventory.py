"""What there is for tests on GPUs is asked of a child, which may fail, die or hang, and leaves this process clean."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
import torch

from ddpcheck.gpus import gpu_inventory, visible_devices
from ddpcheck.vocabulary.model import Gpu, Machine
from ddpcheck.zygote import imports

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")

CUDA_BUILD = torch.version.cuda is not None


# --- the child


def hang():
    signal.pause()


def crash():
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_child_says_plain_data():
    """What the question returns comes back, however long it is."""
    assert gpu_inventory.said_by_child(lambda: ["x" * 300_000, 1]) == ["x" * 300_000, 1]


@pytest.mark.parametrize(
    ("question", "clause"),
    [
        (lambda: 1 / 0, "raised ZeroDivisionError: division by zero"),
        (crash, "the process that asked it was killed by signal 9"),
        (lambda: os._exit(0), "the process that asked it left without an answer"),
        (hang, "gave no answer in 0 s"),
    ],
)
def test_a_child_that_says_nothing(question, clause):
    """An error, a crash and a hang are clauses, and nothing of the child is left."""
    before = psutil.Process().children()
    begun = time.monotonic()
    assert gpu_inventory.said_by_child(question, patience=0.3) == clause
    assert time.monotonic() < begun + 20
    assert psutil.Process().children() == before


@pytest.fixture
def unasked(monkeypatch):
    """As if no other test of this process had asked for CUDA's devices."""
    monkeypatch.setattr(torch._C, "_cuda_isInBadFork", lambda: False, raising=False)


@pytest.mark.usefixtures("unasked")
def test_a_question_in_an_interpreter():
    """Where a fork cannot use CUDA, an interpreter is asked the same, and knows the same."""
    here = gpu_inventory.said_by_child(gpu_inventory._describe)
    assert gpu_inventory.said_by_interpreter() == here


# --- what there is


def found(monkeypatch, said, build="12.4", value=None):
    monkeypatch.setattr(torch.version, "cuda", build)
    monkeypatch.setattr(torch.version, "hip", None, raising=False)
    monkeypatch.setattr(gpu_inventory, "said_by_child", lambda question: said)
    monkeypatch.setattr(
        gpu_inventory, "said_by_interpreter", lambda: {"gpus": [["GPU-a", "T4"]], "nccl": [], "trouble": ""}
    )
    monkeypatch.delenv(visible_devices.VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(visible_devices.VARIABLE, value)
    return gpu_inventory.look()


def test_gpus_are_named_for_the_caller_and_for_everybody(monkeypatch):
    """By what the caller's variable calls them, and by what names the hardware; by the former alone if need be."""
    said = {"gpus": [["GPU-a", "T4"], ["", "T4"]], "nccl": [2, 30, 7], "trouble": ""}
    assert found(monkeypatch, said, value="3,1") == Machine(
        gpus=(Gpu(token="3", key="GPU-a", name="T4"), Gpu(token="1", key="1", name="T4")), nccl=(2, 30, 7)
    )


def test_gpus_of_one_uuid_are_told_apart(monkeypatch):
    """Instances of one GPU may all be told under its UUID: then what CUDA_VISIBLE_DEVICES calls them names them."""
    told = [["GPU-a", "A100"], ["GPU-a", "A100"], ["GPU-b", "A100"]]
    gpus = found(monkeypatch, {"gpus": told, "nccl": [], "trouble": ""}, value="MIG-1,MIG-2,0").gpus
    assert [gpu.key for gpu in gpus] == ["MIG-1", "MIG-2", "GPU-b"]


def test_the_order_that_indices_count_by_is_kept(monkeypatch):
    monkeypatch.setenv(visible_devices.ORDER, "PCI_BUS_ID")
    assert found(monkeypatch, {"gpus": [["GPU-a", "T4"]], "nccl": [], "trouble": ""}).gpus[0].order == "PCI_BUS_ID"


def test_why_there_is_none(monkeypatch):
    """A build for the CPU, a driver that complains, and one that does not answer are told."""
    assert found(monkeypatch, {}, build=None) == Machine(trouble="this build of torch is for the CPU alone")
    complaint = {"gpus": [], "nccl": [], "trouble": "The NVIDIA driver is too old"}
    assert found(monkeypatch, complaint) == Machine(trouble="The NVIDIA driver is too old")
    assert found(monkeypatch, "gave no answer in 60 s") == Machine(
        trouble="the driver was asked, and gave no answer in 60 s"
    )


def test_a_process_that_has_asked_cuda_asks_through_an_interpreter(monkeypatch):
    """Its forks could not use CUDA."""
    assert found(monkeypatch, gpu_inventory._POISONED).gpus == (Gpu(token="0", key="GPU-a", name="T4"),)


def test_here_it_does_not_raise():
    """On whatever machine this is, the question has an answer."""
    there = gpu_inventory.look()
    assert len(there.gpus) == (gpu_inventory.said_by_child(torch.cuda.device_count) if CUDA_BUILD else 0)
    assert bool(there.gpus) or there.trouble or CUDA_BUILD


# --- NCCL


@pytest.mark.parametrize(
    ("number", "version"),
    [(23007, (2, 30, 7)), (22005, (2, 20, 5)), (20901, (2, 9, 1)), (2708, (2, 7, 8)), (30000, (3, 0, 0))],
)
def test_the_version_of_nccl_is_decoded(number, version):
    """Both of NCCL's ways of writing a version as one number."""
    assert gpu_inventory.decoded(number) == version


PRELOADED = """
int ncclGetVersion(int* version) { *version = 29901; return 0; }
"""


@pytest.mark.long
def test_a_preloaded_nccl_is_the_one_that_counts(tmp_path):
    """The library that is loaded is asked, and not what torch was compiled with."""
    source, library = tmp_path / "nccl.c", tmp_path / "libnccl.so.2"
    source.write_text(PRELOADED)
    try:
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("there is no C compiler here")
    code = "import json; from ddpcheck.gpus import gpu_inventory as machine; print(json.dumps(machine.nccl_version()))"
    run = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"LD_PRELOAD": str(library)}, capture_output=True, check=True
    )
    assert json.loads(run.stdout) == [2, 99, 1]


@pytest.mark.skipif(not CUDA_BUILD, reason="this build of torch has no NCCL")
def test_the_version_of_torchs_own_nccl():
    """Without another one, the library that torch brings is asked."""
    assert gpu_inventory.said_by_child(gpu_inventory.nccl_version)[:2] == list(torch.cuda.nccl.version()[:2])


# --- a clean process to fork from


def test_a_zygote_counts_devices_without_cuda(monkeypatch):
    """Its environment says so; in a rank the user's own setting is back, and without one there is none."""
    name = "PYTORCH_NVML_BASED_CUDA_CHECK"
    inside = imports.without_cuda({"A": "b"})
    assert inside[name] == "1"
    assert imports.without_cuda({name: "0"}) == {name: "0"}
    for environment in (inside, {name: "0"}):
        for key in {*inside, name}:
            monkeypatch.delenv(key, raising=False)
        for key, value in environment.items():
            monkeypatch.setenv(key, value)
        imports.restore_cuda_check()
        assert os.environ.get(name) == ("0" if environment is not inside else None)


@pytest.mark.usefixtures("unasked")
@pytest.mark.parametrize("gpus", [True, False])
def test_a_process_that_has_counted_devices_is_not_forked_from(monkeypatch, gpus):
    """Its forks cannot use CUDA; where there is no GPU, that is no matter."""
    safety = imports.ForkSafety()
    safety.has_gpus = gpus
    assert safety.lost() == ""
    monkeypatch.setattr(torch._C, "_cuda_isInBadFork", lambda: True, raising=False)
    assert safety.lost() == ("it had CUDA count the devices, as torch.cuda.is_available() does" if gpus else "")
