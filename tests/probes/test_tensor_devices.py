"""What a rank says of where its tensors are, where GPUs are only told of."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import ddpcheck
from ddpcheck.probes import tensor_devices

CPU = torch.device("cpu")


def facts(module, **more):
    return tensor_devices.facts(module, given=CPU, local_rank=0, **({"batch": {}} | more))


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
    (("a", "b"), None, {"cuda:0": "GPU-a", "cuda:1": "GPU-b"}),
    (("", ""), None, {}),
    (("", ""), "3, 5", {"cuda:0": "cuda:3", "cuda:1": "cuda:5"}),
    (("", ""), "GPU-a,GPU-b", {"cuda:0": "GPU-a", "cuda:1": "GPU-b"}),
    (("", ""), "3", {"cuda:0": "cuda:3"}),
    (("a", ""), "3,5", {"cuda:0": "GPU-a", "cuda:1": "cuda:5"}),
    (("a", "a"), "MIG-1,MIG-2", {"cuda:0": "MIG-1", "cuda:1": "MIG-2"}),
])  # fmt: skip
@pytest.mark.few(2)
def test_what_names_a_gpu_itself(gpus, uuids, visible, names):
    """Its UUID; for a torch that knows none, what CUDA_VISIBLE_DEVICES calls it; else its number alone."""
    gpus(uuids, visible)
    assert facts(nn.Linear(1, 1), devices_per_rank=2).hardware == names


def test_a_simulated_device_has_no_other_name(monkeypatch):
    """CUDA_VISIBLE_DEVICES speaks of real GPUs, and its second number is not that of the second simulated one."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    with ddpcheck.simulated_devices(2):
        assert facts(nn.Linear(1, 1), devices_per_rank=2).hardware == {}


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
@pytest.mark.few(3)
def test_devices_as_they_may_be_said(gpus, devices, own):
    """As torch takes devices; `cuda` is the current one; one, several, or a function from the local rank."""
    gpus()
    assert facts(nn.Linear(1, 1), devices=devices).own == own


def test_memory_on_another_gpu_is_told(gpus):
    """What torch's allocator holds where no tensor of Python's is."""
    gpus(uuids=("a", "b"), allocated=(512, 1_000_000))
    found = facts(nn.Linear(1, 1), devices=[0])
    assert found.left == {"cuda:1": "1,000,000 bytes of memory"}
    assert found.hardware == {
        "cuda:0": "GPU-a",
        "cuda:1": "GPU-b",
    }  # another rank may see that one under another number


@dataclasses.dataclass
class Batch:
    image: torch.Tensor
    name: str


class Plain:
    """A batch of somebody's own making."""

    def __init__(self, **parts):
        vars(self).update(parts)


class Slotted:
    __slots__ = ("_mask", "unset")

    def __init__(self, mask):
        self._mask = mask


class Output(dict):
    """As some libraries hand back: what is an item is an attribute, too."""

    def __init__(self, **parts):
        super().__init__(parts)
        vars(self).update(parts, extra=torch.ones(1))


def test_tensors_are_found_in_nests():
    """Through lists, mappings and dataclasses, each with the way to it."""
    one = torch.zeros(1)
    batch = {"inputs": {"a": [one, (one, "text")], "b": Batch(one, "x")}, "outputs": one, "targets": None}
    found = facts(nn.Linear(1, 1), batch=batch).batch
    assert list(found) == ["inputs", "outputs"]
    assert list(found["inputs"]) == ["inputs['a'][0]", "inputs['a'][1][0]", "inputs['b'].image"]
    assert found["outputs"] == {"outputs": "cpu"}


@pytest.mark.parametrize(("batch", "ways"), [
    ([{torch.ones(1)}, frozenset([torch.ones(1)])], ["inputs[0][0]", "inputs[1][0]"]),
    ({"a": torch.ones(1)}.values(), ["inputs[0]"]),
    (Plain(mask=[torch.ones(1)], size=3), ["inputs.mask[0]"]),
    (Plain(inner=Slotted(torch.ones(1))), ["inputs.inner._mask"]),
    (Output(logits=torch.ones(1)), ["inputs['logits']", "inputs.extra"]),
    (SimpleNamespace(x=torch.ones(1)), ["inputs.x"]),
    (nn.utils.rnn.pack_sequence([torch.ones(2), torch.ones(1)]), ["inputs.data"]),
    ([torch.ones(1), range(10**12), "text", nn.Linear(1, 1), Plain, torch.ones(1).numpy()], ["inputs[0]"]),
])  # fmt: skip
def test_tensors_are_found_in_whatever_holds_them(batch, ways):
    """Sets, views, and objects by their attributes; of a packed sequence its data; a module is no batch."""
    assert list(facts(nn.Linear(1, 1), batch={"inputs": batch}).batch["inputs"]) == ways


def test_nests_without_an_end_are_gone_through_once():
    """What holds itself, and what is deeper than Python may recurse."""
    circle = Plain(x=torch.ones(1))
    circle.me, circle.all = circle, [circle]
    assert list(facts(nn.Linear(1, 1), batch={"inputs": circle}).batch["inputs"]) == ["inputs.x"]
    deep = torch.ones(1)
    for _ in range(5000):
        deep = [deep]
    assert len(facts(nn.Linear(1, 1), batch={"inputs": deep}).batch["inputs"]) == 1


def broken():
    raise KeyError("gone")
    yield


@pytest.mark.parametrize(("batch", "words"), [
    ([torch.ones(1), iter([torch.ones(1)])], "inputs[1] (list_iterator), which can be gone through only once"),
    ({"a": (x for x in [1]), "b": torch.ones(1)}, "inputs['a'] (generator), which can be gone through only once"),
    (Plain(), "inputs that hold no tensor (Plain)"),
    (type("Lost", (list,), {"__iter__": lambda self: broken()})([1]), "inputs (Lost), which raised KeyError: 'gone'"),
])  # fmt: skip
def test_what_cannot_be_looked_into_is_named(batch, words):
    """Nothing is passed over in silence, and nothing raised here on one rank."""
    assert words in facts(nn.Linear(1, 1), batch={"inputs": batch}).wrong


def test_a_tied_parameter_is_told_where_it_is_used_last():
    """The head of a language model may be its embedding: the model ends where the head is."""
    model = nn.Sequential(nn.Embedding(3, 2), nn.Linear(2, 2), nn.Linear(2, 3, bias=False))
    model[2].weight = model[0].weight
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
    model(torch.zeros(1, dtype=torch.long)).sum().backward()
    optimizer.step()
    found = facts(model, optimizer=optimizer)
    assert list(found.model) == ["0.weight", "1.weight", "1.bias", "2.weight"]
    assert [entry.name.rpartition(" ")[2] for entry in found.state] == ["0.weight", "1.weight", "1.bias"]


@pytest.mark.parametrize(("said", "order"), [
    ({"devices": [1, 0]}, ["cuda:1", "cuda:0"]),
    ({"devices": lambda rank: (0, 1, 0)}, ["cuda:0", "cuda:1", "cuda:0"]),
    ({"devices": {0, 1}}, []),
    ({"devices_per_rank": 2}, []),
    ({}, []),
])  # fmt: skip
@pytest.mark.few(2)
def test_the_order_in_which_the_model_goes_through_its_devices(gpus, said, order):
    """As it was listed, a device twice where the model comes back to it; a set has none, and a number has none."""
    gpus()
    found = facts(nn.Linear(1, 1), **said)
    assert found.order == order
    assert len(found.own) == len(set(found.own))


def test_the_state_of_an_optimizer():
    """Moments with their parameters' names; the count of steps is on the CPU on purpose."""
    model = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    assert facts(model, optimizer=optimizer).state == []
    optimizer.step()
    names = [entry.name for entry in facts(model, optimizer=optimizer).state]
    assert names == [f"{moment} of {name}" for name in ("weight", "bias") for moment in ("exp_avg", "exp_avg_sq")]


def test_the_state_of_an_optimizer_that_keeps_lists():
    """What is within them is told as well, by the way to it."""
    model = nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(1, 2)).exp().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert "old_dirs[0] of weight" in [entry.name for entry in facts(model, optimizer=optimizer).state]


def test_buffers_and_what_ddp_was_told():
    """Buffers are reported as such; a module that is not wrapped has no device_ids."""
    found = facts(nn.BatchNorm1d(2))
    assert list(found.model)[2:] == [f"{b} (buffer)" for b in ("running_mean", "running_var", "num_batches_tracked")]
    assert (found.device_ids, found.output_device) == (None, None)
