"""What a rank says of where its tensors are, where GPUs are only told of."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from ddpcheck.observe import whereabouts

CPU = torch.device("cpu")


def facts(module, **more):
    return whereabouts.facts(module, given=CPU, local_rank=0, **({"batch": {}} | more))


@pytest.fixture
def gpus(monkeypatch):
    """Two GPUs, as torch.cuda would tell of them; the first is current."""

    def tell(uuids=("", ""), visible=None, allocated=(0, 0)):
        cuda = torch.cuda
        monkeypatch.setattr(cuda, "device_count", lambda: len(uuids))
        monkeypatch.setattr(cuda, "current_device", lambda: 0)
        monkeypatch.setattr(cuda, "is_initialized", lambda: True)
        monkeypatch.setattr(cuda, "get_device_properties", lambda device: SimpleNamespace(uuid=uuids[device.index]))
        monkeypatch.setattr(cuda, "memory_allocated", lambda index: allocated[index])
        if visible is None:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        else:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    return tell


@pytest.mark.parametrize(("uuids", "visible", "names"), [
    (("a", "b"), None, {"cuda:0": "a", "cuda:1": "b"}),
    (("", ""), None, {}),
    (("", ""), "3, 5", {"cuda:0": "cuda:3", "cuda:1": "cuda:5"}),
    (("", ""), "GPU-a,GPU-b", {"cuda:0": "GPU-a", "cuda:1": "GPU-b"}),
    (("", ""), "3", {"cuda:0": "cuda:3"}),
    (("a", ""), "3,5", {"cuda:0": "a", "cuda:1": "cuda:5"}),
])  # fmt: skip
def test_what_names_a_gpu_itself(gpus, uuids, visible, names):
    """Its UUID; for a torch that knows none, what CUDA_VISIBLE_DEVICES calls it; else its number alone."""
    gpus(uuids, visible)
    assert facts(nn.Linear(1, 1), devices_per_rank=2).hardware == names


def test_the_cpu_alone_asks_nothing_of_cuda(monkeypatch):
    """Where no GPU is spoken of, CUDA is not even initialised."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1 / 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1 / 0)
    found = facts(nn.Linear(1, 1))
    assert (found.own, found.current, found.visible, found.left) == (["cpu"], "", None, {})
    assert found.model == {"weight": "cpu", "bias": "cpu"}


@pytest.mark.parametrize(("devices", "own"), [
    (1, ["cuda:1"]),
    ("cuda", ["cuda:0"]),
    ("cuda:1", ["cuda:1"]),
    (torch.device("cuda", 1), ["cuda:1"]),
    (["cpu", "cuda:1"], ["cpu", "cuda:1"]),
    (["cpu:0"], ["cpu"]),
    ((0, "cuda:1"), ["cuda:0", "cuda:1"]),
    (lambda rank: rank + 1, ["cuda:1"]),
    (lambda rank: [rank, rank + 1], ["cuda:0", "cuda:1"]),
    (iter([0, 1]), ["cuda:0", "cuda:1"]),
])  # fmt: skip
def test_devices_as_they_may_be_said(gpus, devices, own):
    """As torch takes devices; `cuda` is the current one; one, several, or a function from the local rank."""
    gpus()
    assert facts(nn.Linear(1, 1), devices=devices).own == own


def test_memory_on_another_gpu_is_told(gpus):
    """What torch's allocator holds where no tensor of Python's is."""
    gpus(uuids=("a", "b"), allocated=(512, 1_000_000))
    found = facts(nn.Linear(1, 1), devices=[0])
    assert found.left == {"cuda:1": "1,000,000 bytes of memory"}
    assert found.hardware == {"cuda:0": "a", "cuda:1": "b"}  # another rank may see that one under another number


@dataclasses.dataclass
class Batch:
    image: torch.Tensor
    name: str


def test_tensors_are_found_in_nests():
    """Through lists, mappings and dataclasses, each with the way to it."""
    one = torch.zeros(1)
    batch = {"inputs": {"a": [one, (one, "text")], "b": Batch(one, "x")}, "outputs": one, "targets": None}
    found = facts(nn.Linear(1, 1), batch=batch).batch
    assert list(found) == ["inputs", "outputs"]
    assert list(found["inputs"]) == ["inputs['a'][0]", "inputs['a'][1][0]", "inputs['b'].image"]
    assert found["outputs"] == {"outputs": "cpu"}


def test_the_state_of_an_optimizer():
    """Moments with their parameters' names; the count of steps is on the CPU on purpose."""
    model = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    assert facts(model, optimizer=optimizer).state == []
    optimizer.step()
    names = [entry.name for entry in facts(model, optimizer=optimizer).state]
    assert names == [f"{moment} of {name}" for name in ("weight", "bias") for moment in ("exp_avg", "exp_avg_sq")]


def test_buffers_and_what_ddp_was_told():
    """Buffers are told as such; a module that is not wrapped has no device_ids."""
    found = facts(nn.BatchNorm1d(2))
    assert list(found.model)[2:] == [f"{b} (buffer)" for b in ("running_mean", "running_var", "num_batches_tracked")]
    assert (found.wrapped, found.device_ids, found.output_device) == (False, None, None)
