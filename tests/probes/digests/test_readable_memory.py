"""Memory is read of tensors that have some; of all others nothing is, and the program goes on."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh

from ddpcheck.checkpoint_trials import unloaded_state
from ddpcheck.evidence import ABSENT, UNSEEN, Looking, Mesh, Optimizer, Parameter, Site, Step
from ddpcheck.judging.evidence_folder import Folder
from ddpcheck.probes.ddp import model_state
from ddpcheck.probes.digests import batch_fingerprints, fast_digests, readable_memory
from ddpcheck.probes.digests.exact_digests import Unreadable, digest, tensor_bytes
from ddpcheck.probes.digests.sample_fingerprints import fingerprint
from ddpcheck.probes.optimizers import steps as optimizers
from ddpcheck.probes.recording import patching, recorder
from ddpcheck.probes.training_state import held_values

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # of kinds of tensors that torch calls prototypes

ONES = torch.ones(4, 3)


class Foreign(torch.Tensor):
    """A tensor without elements."""

    @staticmethod
    def __new__(cls, like: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, like.size(), dtype=like.dtype, device=like.device)  # type: ignore[attr-defined]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} was computed with it")


class Named(torch.Tensor):
    """A tensor of memory, of a class that only adds names, as torchvision's are."""


class Secretive(torch.Tensor):
    """One that wants to hear of nothing."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} was asked of it")


class Elsewhere(torch.Tensor):
    """A stand-in for one on a device that this machine does not have."""

    device = property(lambda self: torch.device("mps"))  # type: ignore[assignment]
    is_cpu = property(lambda self: False)  # type: ignore[assignment]


def freed(start: int = 0) -> torch.Tensor:
    """A part of a storage that was given back, as FSDP does with what is gathered."""
    flat = torch.ones(100)
    part = flat[start : start + 12].view(4, 3)
    flat.untyped_storage().resize_(0)
    return part


def cut() -> torch.Tensor:
    """More elements than the storage still has."""
    flat = torch.ones(100)
    part = flat[4:16].view(4, 3)
    flat.untyped_storage().resize_(8 * 4)
    return part


def of_transform(transform: Any) -> Callable[[], torch.Tensor]:
    """What a function gets that torch.func transforms."""

    def make() -> torch.Tensor:
        kept = []
        transform(lambda x: (kept.append(x), x.sum())[1])(ONES)
        return kept[0]

    return make


SEEN = {
    "plain": lambda: ONES.clone(),
    "a parameter": lambda: torch.nn.Parameter(ONES.clone()),
    "of a class with names": lambda: ONES.clone().as_subclass(Named),
    "a parameter of such a class": lambda: torch.nn.Parameter(ONES.clone().as_subclass(Named)),
    "transposed": lambda: torch.ones(3, 4).t(),
    "expanded": lambda: torch.ones(1).expand(4, 3),
    "negated lazily": lambda: torch._neg_view(-ONES),
    "sparse": lambda: ONES.to_sparse(),
    "sparse by rows": lambda: ONES.to_sparse_csr(),
    "in a graph": lambda: ONES.clone().requires_grad_() * 1,
    "in inference": lambda: torch.inference_mode()(lambda: ONES.clone())(),
}
if torch.backends.mkldnn.is_available():
    SEEN["laid out for a library"] = lambda: ONES.to_mkldnn()

NOT_SEEN = {
    "a wrapper subclass": lambda: Foreign(ONES),
    "freed": freed,
    "a part of what was freed": lambda: freed(10),
    "cut off": cut,
    "on the meta device": lambda: ONES.to("meta"),
    "fake": lambda: FakeTensorMode().from_tensor(ONES),
    "functional": lambda: torch._to_functional_tensor(ONES),
    "of vmap": of_transform(torch.vmap),
    "of grad": of_transform(torch.func.grad),
    "zeros that are nowhere": lambda: torch._efficientzerotensor(4, 3),
    "ragged": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    "not there yet": lambda: torch.nn.UninitializedParameter(),
    "on another device": lambda: ONES.clone().as_subclass(Elsewhere),
    "sparse and too large": lambda: torch.sparse_coo_tensor([[0], [0]], [1.0], (1 << 20, 1 << 10)),
}


@pytest.mark.parametrize("make", SEEN.values(), ids=SEEN)
def test_elements_are_looked_at(make: Callable[[], torch.Tensor]) -> None:
    """However they lie in memory, they have the digest of the same elements in a plain tensor."""
    tensor = make()
    assert fast_digests.digests([tensor]) == fast_digests.digests([ONES])
    assert digest(tensor) == digest(ONES)
    assert readable_memory.unseen(tensor) == ""


@pytest.mark.parametrize("make", NOT_SEEN.values(), ids=NOT_SEEN)
def test_what_has_no_memory_is_not_read(make: Callable[[], torch.Tensor]) -> None:
    """Beside others, of which it hinders none."""
    tensor = make()
    found = fast_digests.digests([ONES, tensor, None, ONES], 3)
    assert found == fast_digests.digests([ONES]) + UNSEEN + ABSENT + fast_digests.digests([ONES])
    if tensor.layout is torch.strided:
        assert readable_memory.unseen(tensor)
    assert not readable_memory.is_shared(tensor)


@pytest.mark.parametrize("name", sorted(set(NOT_SEEN) - {"on another device"}))
def test_nobody_else_reads_it_either(name: str) -> None:
    """What asks for bytes has an error in their place, and not the end of the process."""
    tensor = NOT_SEEN[name]()
    with pytest.raises(Unreadable):
        tensor_bytes(tensor)
    with pytest.raises(Unreadable):
        fingerprint([tensor])
    with pytest.raises(ValueError, match="a tensor without memory"):
        batch_fingerprints.head(tensor, 100)
    assert readable_memory.local(tensor) is None


def test_nothing_is_asked_of_a_class_of_the_users() -> None:
    """Its functions may print, count or raise: a step that is looked at calls none of them."""
    tensor = ONES.clone().as_subclass(Secretive)
    assert fast_digests.digests([tensor]) == fast_digests.digests([ONES])
    assert readable_memory.unseen(tensor) == ""


OTHER_KINDS = {
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "bfloat16": lambda: torch.ones(5, dtype=torch.bfloat16),
    "float8": lambda: torch.ones(5).to(torch.float8_e4m3fn),
    "conjugated": lambda: torch.tensor([1 + 2j]).conj(),
    "imaginary": lambda: torch.tensor([1 + 2j]).conj().imag,
    "empty": lambda: torch.zeros(0, 3),
    "nan": lambda: torch.tensor(math.nan),
}
if hasattr(torch, "quantize_per_tensor"):  # torch is about to drop them
    OTHER_KINDS["quantised"] = lambda: torch.quantize_per_tensor(ONES, 0.1, 0, torch.qint8)


@pytest.mark.parametrize("make", OTHER_KINDS.values(), ids=OTHER_KINDS)
def test_other_kinds_are_read_by_their_bytes(make: Callable[[], torch.Tensor]) -> None:
    """One after the other and side by side they have the same digest, which is none of those that say nothing."""
    tensor = make()
    one = fast_digests.digests([tensor])
    assert fast_digests.digests([tensor, tensor]) == one * 2
    assert one not in (UNSEEN, ABSENT)
    assert readable_memory.unseen(tensor) == ""
    assert fast_digests.kind(tensor)
    assert len(tensor_bytes(tensor)) == tensor.numel() * tensor.element_size()


# --- DTensor


@pytest.fixture(scope="module")
def mesh() -> Any:
    """A mesh of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def sharded(mesh: Any) -> Any:
    try:
        from torch.distributed.tensor import Shard, distribute_tensor
    except ImportError:  # torch 2.4
        from torch.distributed._tensor import Shard, distribute_tensor

    return distribute_tensor(ONES.clone(), mesh, [Shard(0)])


def test_a_dtensor_is_the_part_of_this_rank(mesh: Any) -> None:
    """What is local is read; that all ranks cannot be compared by it is said."""
    tensor = torch.nn.Parameter(sharded(mesh))
    assert readable_memory.unseen(tensor) == "DTensor"
    assert fast_digests.digests([tensor]) == fast_digests.digests([ONES])
    assert digest(tensor) == digest(ONES)
    assert not readable_memory.is_shared(tensor)
    assert held_values.tensor("parameter", tensor) == held_values.tensor("parameter", ONES)
    assert tensor.grad_fn is None


def test_nothing_waits_for_a_dtensor_that_is_under_way(mesh: Any) -> None:
    """Its local part may be the result of a collective, for which nobody has waited yet."""
    tensor = sharded(mesh)
    tensor._local_tensor = Foreign(ONES)
    assert readable_memory.local(tensor) is None
    assert fast_digests.digests([tensor]) == UNSEEN
    with pytest.raises(Unreadable):
        tensor_bytes(tensor)


def test_models_of_shards_say_who_holds_them(mesh: Any) -> None:
    """A plain tensor beside them is nobody's copy; an assertion that cannot look says so."""
    model = torch.nn.Linear(3, 4)
    assert {one.holders for one in model_state.facts(model, model_state.parameters(model)).tensors.values()} == {None}
    model.weight = torch.nn.Parameter(sharded(mesh))
    for named in (model_state.parameters(model), model_state.gradients(model)):
        found = model_state.facts(model, named).tensors
        assert (found["weight"].placements, found["weight"].holders) == (("S0",), (0,))
        assert found["bias"].holders == ()
    model.weight._local_tensor = Foreign(ONES)
    with pytest.raises(Unreadable, match="still be on its way"):
        model_state.facts(model, model_state.parameters(model))


def test_what_fsdp_leaves_is_a_shard() -> None:
    """The parts that FSDP registers are plain tensors, which it marks."""
    from torch.distributed.fsdp import _common_utils

    parameter = torch.nn.Parameter(ONES.clone())
    assert readable_memory.unseen(parameter) == ""
    _common_utils._set_fsdp_flattened(parameter)
    assert readable_memory.unseen(parameter) == "FullyShardedDataParallel"


# --- a load into what cannot be looked at


class Held(torch.nn.Module):
    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("odd", tensor)
        self.register_buffer("even", torch.ones(2))


@pytest.mark.parametrize("make", [lambda: Foreign(ONES), freed, lambda: torch.ones(1).expand(3)])
def test_what_cannot_be_marked_is_passed_over(make: Callable[[], torch.Tensor]) -> None:
    """It is named, and nothing is said of whether a load has reached it."""
    training = {"model": Held(make())}
    assert unloaded_state.mark(training, 1) == ["model.odd"]
    before = unloaded_state.held(training)
    unloaded_state.mark(training, 0)
    assert unloaded_state.left(before, unloaded_state.held(training)) == {"model.even": (2, 2)}
    assert unloaded_state.places(training)["model.even"]


# --- steps under recording


@pytest.fixture
def stepped(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let an optimizer make steps that are watched; what was put down."""

    def step(parameters: list[Any], times: int = 2, **more: Any) -> tuple[list[Parameter], list[Step]]:
        recorder.begin(tmp_path, 1 << 20)
        optimizer = torch.optim.SGD(parameters, lr=0.5, **more)
        optimizer.register_step_pre_hook(patching.shielded(optimizers._before))
        optimizer.register_step_post_hook(patching.shielded(optimizers._after))
        for _ in range(times):
            optimizer.step()
        folder = Folder(tmp_path)
        folder.read()
        found = [record for process in folder.processes.values() for record in process.records]
        assert {type(one) for one in found} - {Site, Looking, Mesh} == {Optimizer, Step}  # and no defect
        (described,) = (one for one in found if isinstance(one, Optimizer))
        return described.parameters, [one for one in found if isinstance(one, Step)]

    yield step
    recorder.stop()


def test_a_step_of_dtensors(stepped: Any, mesh: Any) -> None:
    """It is made, it counts, and the part of this rank is looked at as the plain tensor beside it."""
    one, other = torch.nn.Parameter(sharded(mesh)), torch.nn.Parameter(ONES.clone())
    one.grad, other.grad = sharded(mesh), ONES.clone()
    described, steps = stepped([one, other], foreach=False, momentum=0.9)
    assert [p.unseen for p in described] == ["DTensor", ""]
    assert [s.number for s in steps] == [0, 1]
    assert steps[0].gradients == fast_digests.digests([ONES, ONES])
    assert steps[0].parameters == fast_digests.digests([ONES / 2, ONES / 2])
    assert list(steps[0].state) == ["momentum_buffer"]
    assert torch.equal(one.to_local(), other)


def test_a_step_with_a_tensor_on_the_meta_device(stepped: Any) -> None:
    """Torch steps it; nobody can say what it holds."""
    parameter = torch.nn.Parameter(torch.ones(3, device="meta"))
    parameter.grad = torch.ones(3, device="meta")
    described, steps = stepped([parameter])
    assert [p.unseen for p in described] == ["tensor on meta"]
    assert steps[1].gradients == steps[1].parameters == UNSEEN


def test_a_step_with_a_sparse_gradient(stepped: Any) -> None:
    """It is looked at in its dense form."""
    parameter = torch.nn.Parameter(ONES.clone())
    parameter.grad = ONES.to_sparse()
    _, steps = stepped([parameter], times=1)
    assert steps[0].gradients == fast_digests.digests([ONES])


def test_a_step_that_memory_does_not_suffice_to_look_at(stepped: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step is made and counted; what was not looked at is said to be so, and is no defect of ours."""
    from ddpcheck.probes.recording import unwatchable_moments

    told: list[str] = []
    monkeypatch.setattr(fast_digests, "overlooked", told.append)
    monkeypatch.setattr(
        readable_memory, "local", lambda tensor: (_ for _ in ()).throw(torch.cuda.OutOfMemoryError("CUDA"))
    )
    parameter = torch.nn.Parameter(ONES.clone())
    parameter.grad = torch.ones(3, 4).t()  # of which a look takes a copy
    _, steps = stepped([parameter])
    assert [s.gradients for s in steps] == [UNSEEN] * 2
    assert [s.parameters for s in steps] == [fast_digests.digests([ONES / 2]), fast_digests.digests([ONES * 0])]
    assert set(told) == {"memory"}
    assert unwatchable_moments.is_out_of_memory(MemoryError())
    assert not unwatchable_moments.is_out_of_memory(RuntimeError("shapes do not match"))
