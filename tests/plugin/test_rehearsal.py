"""A rehearsal: tests for GPUs, in a whole session, on simulated ones."""

from __future__ import annotations

import json

import pytest

from tests.inner import InnerProject

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
    assert torch.cuda.device_count() == 2  # a tensor would have torch import its compiler, for seconds

@pytest.mark.gpu(real="its memory")
def test_real(): pass

def test_other():
    assert not torch.cuda.is_available()

@pytest.mark.ddp
def test_on_the_cpu(ddp):
    assert not torch.cuda.is_available()
"""


@pytest.mark.long
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
