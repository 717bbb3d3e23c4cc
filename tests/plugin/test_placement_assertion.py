"""assert_device_placement in real ranks: on the CPU, and on simulated devices, each fault with its silent twin."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ddpcheck
from ddpcheck import assert_device_placement, simulated_devices
from fixtures import s0_basic, s0_model_parallel
from tests.claims.findings import only_finding


def devices_of(rank: int) -> tuple[torch.device, torch.device]:
    """Devices 2r and 2r + 1, the first of them current, as a program would begin."""
    torch.cuda.set_device(2 * rank)
    return torch.device("cuda", 2 * rank), torch.device("cuda", 2 * rank + 1)


def violation(model: nn.Module, **said: object):
    """The only finding of a violated placement."""
    with pytest.raises(ddpcheck.Violation) as caught:
        assert_device_placement(model, **said)
    finding = only_finding(caught)
    assert finding.check == "device-placement"
    return finding


# --- without any device but the CPU


@pytest.mark.ddp(world_size=[1, 2])
def test_a_model_on_the_cpu_holds(ddp):
    """In a test of the CPU everything is on the CPU, wrapped or not, in training and after it."""
    model = ddp.wrap(s0_basic.build_model(seed=0))
    optimizer = torch.optim.Adam(model.parameters())
    inputs, targets = s0_basic.make_batch(ddp.rank)
    outputs = model(inputs)
    nn.functional.mse_loss(outputs, targets).backward()
    optimizer.step()
    assert_device_placement(model, inputs=inputs, targets={"labels": [targets]}, outputs=outputs, optimizer=optimizer)
    assert_device_placement(model.module)


@pytest.mark.ddp
def test_a_layer_on_the_meta_device_is_caught(ddp):
    """On one rank a layer was never given memory: all ranks are told, with its name."""
    model = s0_basic.build_model(seed=0)
    if ddp.rank == 1:
        model.output.to("meta")
    finding = violation(model)
    assert (finding.ranks, finding.subject, finding.count) == ((1,), "output.weight", 2)
    assert "meta on rank 1" in finding.found


@pytest.mark.ddp
@pytest.mark.parametrize(("said", "words"), [
    ({"devices_per_rank": 0}, "devices_per_rank=0, which is no whole number"),
    ({"devices_per_rank": True}, "devices_per_rank=True, which is no whole number"),
    ({"devices_per_rank": 1, "devices": ["cpu"]}, "both given"),
    ({"devices": []}, "devices that name none"),
    ({"devices": ["gpu:1"]}, "devices=['gpu:1']"),
    ({"devices": [object()]}, "devices=[<object"),
    ({"devices": lambda rank: 1 / 0}, "raised ZeroDivisionError"),
    ({"inputs": "text"}, "inputs that hold no tensor (str)"),
    ({"inputs": iter([torch.ones(1)])}, "inputs (list_iterator), which can be gone through only once"),
    ({"optimizer": 3}, "int in the place of a torch.optim.Optimizer"),
])  # fmt: skip
def test_arguments_that_cannot_be(ddp, said, words):
    """Each is one clear finding on every rank, though one rank alone may have passed it."""
    model = s0_basic.build_model(seed=0)
    finding = violation(model, **(said if ddp.rank == 1 else {}))
    assert finding.ranks == (1,)
    assert words in finding.found


@pytest.mark.ddp
def test_what_is_no_model(ddp):
    """Something else in the model's place, and a model without a tensor, are told."""
    assert "list in the place of a torch.nn.Module" in violation([]).found
    assert "nothing was checked" in violation(nn.ReLU()).found


@pytest.mark.ddp
def test_devices_that_this_machine_has_not_got(ddp):
    """Devices beyond those that there are: the message says how many there are."""
    if torch.cuda.is_available():
        pytest.skip("this machine has GPUs")
    finding = violation(s0_basic.build_model(seed=0), devices_per_rank=2)
    assert finding.ranks == (0, 1)
    assert "cuda:0, cuda:1, where it sees no GPU on rank 0" in finding.found


# --- one simulated device in each rank


@pytest.mark.ddp(world_size=[2, 4])
def test_a_step_on_one_device_each_holds(ddp):
    """A wrapped model that trains on the GPU of its rank is silent at every stage, its moments and gradients too."""
    with simulated_devices(4):
        torch.cuda.set_device(ddp.local_rank)
        model = s0_basic.build_model(seed=ddp.rank).cuda()
        model = DistributedDataParallel(model, device_ids=[ddp.local_rank])
        optimizer = torch.optim.AdamW(model.parameters())
        inputs, targets = s0_basic.make_batch(ddp.rank)
        outputs = model(inputs)
        nn.functional.mse_loss(outputs, targets.cuda()).backward()
        optimizer.step()
        assert_device_placement(
            model, inputs=inputs, targets=targets.cuda(), outputs=outputs, optimizer=optimizer, devices_per_rank=1
        )
        assert_device_placement(model, devices=lambda local_rank: local_rank)
        assert_device_placement(model, devices=[f"cuda:{ddp.local_rank}"])


@pytest.mark.ddp(world_size=2)
@pytest.mark.parametrize("kind", ["inputs", "targets", "outputs"])
def test_a_batch_that_was_left_behind(ddp, kind):
    """Without device_ids nobody moves the inputs; targets and outputs are the caller's own anyway."""
    with simulated_devices(2):
        torch.cuda.set_device(ddp.local_rank)
        model = DistributedDataParallel(s0_basic.build_model(seed=0).cuda())
        finding = violation(model, **{kind: torch.zeros(2, 10)}, devices_per_rank=1)
        assert finding.subject == kind
        assert finding.found == f"{kind} on cpu on ranks 0 and 1"
        assert_device_placement(model, **{kind: torch.zeros(2, 10).cuda()}, devices_per_rank=1)


@pytest.mark.ddp(world_size=4)
@pytest.mark.parametrize(("index", "ranks", "cause"), [
    (lambda rank: 0, (1, 3), "cuda:0 was taken by default"),
    (lambda rank: rank, (2, 3), "the global rank was used as the index of the device"),
    (lambda rank: rank + 1, (0, 1, 2, 3), "not chosen by the local rank"),
], ids=["default", "global-rank", "off-by-one"])  # fmt: skip
def test_a_model_on_another_ranks_device(ddp, index, ranks, cause):
    """Two machines of two ranks, as far as the devices go: each rank has the device of its number on its machine."""
    own = ddp.rank % 2
    with simulated_devices(5):
        torch.cuda.set_device(own)
        finding = violation(s0_basic.build_model(seed=0).to(index(ddp.rank)), devices=[own], sharing=True)
        assert finding.ranks == ranks
        assert cause in finding.cause
        assert_device_placement(s0_basic.build_model(seed=0).to(own), devices=[own], sharing=True)


@pytest.mark.ddp(world_size=2)
def test_one_device_for_two_ranks(ddp):
    """Sharing by accident is caught, on purpose it is silent."""
    with simulated_devices(2):
        model = s0_basic.build_model(seed=0).to("cuda:0")
        finding = violation(model, devices=["cuda:0"])
        assert (finding.ranks, finding.found) == ((0, 1), "cuda:0 used by ranks 0 and 1")
        assert_device_placement(model, devices=["cuda:0"], sharing=True)


@pytest.mark.ddp(world_size=2)
def test_a_model_moved_after_its_optimizer_had_stepped(ddp):
    """The moments stay behind, and are named; moved before the first step they go along."""
    with simulated_devices(2):
        torch.cuda.set_device(ddp.local_rank)
        for early in (True, False):
            model = s0_basic.build_model(seed=0)
            if early:
                model.cuda()
            optimizer = torch.optim.Adam(model.parameters())
            model(torch.zeros(2, 10, device=next(model.parameters()).device)).sum().backward()
            optimizer.step()
            model.cuda()
            if early:
                assert_device_placement(model, optimizer=optimizer, devices_per_rank=1)
            else:
                finding = violation(model, optimizer=optimizer, devices_per_rank=1)
                assert finding.subject == "exp_avg of hidden.weight"
                assert "on cpu on ranks 0 and 1" in finding.found


@pytest.mark.ddp(world_size=2)
def test_a_tensor_left_on_another_ranks_device(ddp):
    """A checkpoint's tensor that is still held on the GPU of rank 0 is told; let go of, it is not."""
    with simulated_devices(2):
        torch.cuda.set_device(ddp.local_rank)
        model = s0_basic.build_model(seed=0).cuda()
        loaded = {"weight": torch.ones(3, device="cuda:0")}
        finding = violation(model, devices_per_rank=1)
        assert finding.ranks == (1,)
        assert finding.found == "1 tensor (float32[3]) on cuda:0 on rank 1; cuda:0 is rank 0's"
        loaded.clear()
        assert_device_placement(model, devices_per_rank=1)


@pytest.mark.ddp(world_size=2)
def test_the_current_device_is_warned_of(ddp):
    """Where nothing is elsewhere yet, a current device that is another rank's is a warning on every rank."""
    with simulated_devices(2):
        model = s0_basic.build_model(seed=0).to(ddp.local_rank)
        with pytest.warns(ddpcheck.AtRisk, match="the current device"):
            assert_device_placement(model, devices_per_rank=1)
        torch.cuda.set_device(ddp.local_rank)
        assert_device_placement(model, devices_per_rank=1)


@pytest.mark.ddp(world_size=2)
def test_device_ids_of_a_module_that_moved_on(ddp):
    """DDP does not compare device_ids with where the module is; the assertion does."""
    with simulated_devices(4):
        torch.cuda.set_device(2 * ddp.local_rank)
        first, second = 2 * ddp.local_rank, 2 * ddp.local_rank + 1
        model = DistributedDataParallel(s0_basic.build_model(seed=0).to(first), device_ids=[first])
        assert_device_placement(model, devices_per_rank=2)
        model.module.to(second)
        finding = violation(model, devices_per_rank=2)
        assert finding.ranks == (0, 1)
        assert "device_ids [0] for a module on cuda:1 on rank 0" in finding.found


# --- two simulated devices in each rank: the document's model


@pytest.mark.ddp(world_size=[2, 4])
def test_the_documents_model_holds(ddp):
    """Two devices in each of four ranks, trained: silent, with outputs and labels on the second."""
    with simulated_devices(8):
        devices = devices_of(ddp.local_rank)
        model = s0_model_parallel.train(ddp.rank, devices)
        inputs, targets = s0_basic.make_batch(ddp.rank)
        assert_device_placement(
            model, inputs=inputs, targets=targets.to(devices[1]), outputs=model(inputs), devices_per_rank=2
        )


@pytest.mark.ddp(world_size=4)
@pytest.mark.parametrize(("mapping", "cause"), [
    (lambda r: (2 * r + 1, 2 * r + 2), "off by one: each is one too high"),
    (lambda r: (r, r + 1), "neighbours overlap"),
    (lambda r: (r, r), "the whole model is on the device with the number of its rank"),
    (lambda r: (0, 1), "not chosen by the local rank"),
], ids=["off-by-one", "overlapping", "global-rank", "fixed"])  # fmt: skip
def test_another_mapping_of_the_two_devices(ddp, mapping, cause):
    """A mapping of ranks to devices that is not 2r and 2r + 1 is caught after a step that went through."""
    with simulated_devices(9):
        devices_of(ddp.local_rank)
        first, second = (torch.device("cuda", index) for index in mapping(ddp.local_rank))
        model = s0_model_parallel.train(ddp.rank, (first, second), steps=1)
        finding = violation(model, devices_per_rank=2)
        assert cause in finding.cause
        assert finding.subject == "hidden.weight" or finding.subject.startswith("output.")


@pytest.mark.ddp(world_size=2)
def test_a_forgotten_submodule_of_the_two(ddp):
    """The second layer stays on the CPU: it is named, with what to do."""
    with simulated_devices(4):
        first, second = devices_of(ddp.local_rank)
        model = s0_model_parallel.TwoDevices(first, second)
        assert_device_placement(model, devices_per_rank=2)
        model.output = nn.Linear(10, 5)
        finding = violation(model, devices_per_rank=2)
        assert (finding.subject, finding.count) == ("output.weight", 2)
        assert finding.cause.startswith("the module output was added or replaced")


@pytest.mark.ddp(world_size=2)
def test_labels_where_the_model_begins(ddp):
    """Labels belong with the outputs, on the second device."""
    with simulated_devices(4):
        first, second = devices_of(ddp.local_rank)
        model = s0_model_parallel.TwoDevices(first, second)
        _, targets = s0_basic.make_batch(ddp.rank)
        finding = violation(model, targets=targets.to(first), devices_per_rank=2)
        assert finding.cause.startswith("they are where the model begins")
        assert_device_placement(model, targets=targets.to(second), devices_per_rank=2)


class Batch:
    """A plain object, with what its loader made."""

    def __init__(self, mask):
        self.mask = mask


@pytest.mark.ddp(world_size=2)
def test_a_tensor_within_a_set_or_an_object_is_seen(ddp):
    """One that was left on the CPU is named by the way to it; moved, it is silent."""
    with simulated_devices(2):
        torch.cuda.set_device(ddp.local_rank)
        model = s0_basic.build_model(seed=0).cuda()
        ok = torch.zeros(2, 10).cuda()
        finding = violation(model, inputs=[ok, Batch(mask=torch.ones(2))], devices_per_rank=1)
        assert finding.found == "inputs[1].mask on cpu on ranks 0 and 1"
        finding = violation(model, targets={"y": ok, "more": {torch.ones(2)}}, devices_per_rank=1)
        assert finding.found == "targets['more'][0] on cpu on ranks 0 and 1"
        more = {torch.ones(2).cuda()}
        assert_device_placement(model, inputs=[ok, Batch(mask=ok)], targets={"y": ok, "more": more}, devices_per_rank=1)


@pytest.mark.ddp(world_size=2)
def test_a_packed_sequence(ddp):
    """Its data is judged; its batch sizes are on the CPU on purpose."""
    with simulated_devices(2):
        torch.cuda.set_device(ddp.local_rank)
        model = nn.LSTM(3, 2).cuda()
        for there in (True, False):
            steps = [torch.zeros(2, 3), torch.zeros(1, 3)]
            packed = nn.utils.rnn.pack_sequence([one.cuda() for one in steps] if there else steps)
            if there:
                assert_device_placement(model, inputs=packed, outputs=model(packed)[0], devices_per_rank=1)
            else:
                assert violation(model, inputs=packed, devices_per_rank=1).subject == "inputs.data"


class Tied(nn.Module):
    """A language model in small: the head has the embedding's weight, on the first device."""

    def __init__(self, first, second):
        super().__init__()
        self.devices = (first, second)
        self.embedding = nn.Embedding(5, 4).to(first)
        self.body = nn.Linear(4, 4).to(second)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        first, second = self.devices
        return self.head(self.body(self.embedding(tokens.to(first)).to(second)).to(first))


@pytest.mark.ddp(world_size=2)
def test_a_head_that_is_tied_to_the_embedding(ddp):
    """It ends on the first device: outputs that were moved to the second are told, and those of the head are not."""
    with simulated_devices(4):
        first, second = devices_of(ddp.local_rank)
        model = Tied(first, second)
        outputs = model(torch.zeros(2, dtype=torch.long))
        assert_device_placement(model, outputs=outputs, devices_per_rank=2)
        assert_device_placement(model, outputs=outputs, devices=[first, second, first])
        finding = violation(model, outputs=outputs.to(second), devices=[first, second, first])
        assert finding.found == "outputs on cuda:1 on rank 0, cuda:3 on rank 1"


class HeadFirst(nn.Module):
    """The head is registered before the body."""

    def __init__(self, first, second):
        super().__init__()
        self.head = nn.Linear(10, 5).to(second)
        self.body = nn.Linear(10, 10).to(first)

    def forward(self, inputs):
        return self.head(self.body(inputs.to(self.body.weight.device)).to(self.head.weight.device))


@pytest.mark.ddp(world_size=2)
def test_a_head_that_is_registered_first(ddp):
    """The order of `devices` says where the model ends."""
    with simulated_devices(4):
        first, second = devices_of(ddp.local_rank)
        model = HeadFirst(first, second)
        outputs = model(torch.zeros(2, 10))
        assert_device_placement(model, outputs=outputs, targets=outputs, devices=[first, second])
        finding = violation(model, outputs=outputs.to(first), devices=[first, second])
        assert finding.expected.endswith("cuda:1 on rank 0, cuda:3 on rank 1")
