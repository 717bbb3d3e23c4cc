"""How many GPUs a test gets, when ranks share them, and the words for what cannot run: all without a GPU."""

from __future__ import annotations

import pytest

from ddpcheck.gpus.allotment import Allotment, Refusal, allot, sharing_variables
from ddpcheck.marks.ddp_mark import BadMark
from ddpcheck.marks.gpu_mark import GpuMark, read
from ddpcheck.vocabulary.model import Gpu, Machine, Plan

OLD, NEW = (2, 29, 7), (2, 30, 0)


def test_what_nccl_is_told_where_ranks_share() -> None:
    """Few blocks for each rank, and no NVLS; what the caller has set is the caller's."""
    assert sharing_variables(2, 1, {}) == {
        "NCCL_MULTI_RANK_GPU_ENABLE": "1",
        "NCCL_NVLS_ENABLE": "0",
        "NCCL_MAX_CTAS": "8",
    }
    assert sharing_variables(5, 2, {})["NCCL_MAX_CTAS"] == "5"
    assert sharing_variables(64, 1, {"NCCL_NVLS_ENABLE": "2"}) == {
        "NCCL_MULTI_RANK_GPU_ENABLE": "1",
        "NCCL_MAX_CTAS": "1",
    }
    assert sharing_variables(2, 1, dict.fromkeys(sharing_variables(2, 1, {}), "")) == {}


def machine(gpus, nccl=NEW, trouble=""):
    return Machine(gpus=tuple(Gpu(token=str(n), key=f"GPU-{n}") for n in range(gpus)), nccl=nccl, trouble=trouble)


def ask(world_size, backend="nccl", wanted=None, required=None, **there):
    return allot("the test", world_size, backend, wanted, machine(**there), required)


@pytest.mark.parametrize(
    ("world_size", "backend", "wanted", "gpus", "nccl", "got"),
    [
        (1, "nccl", None, 1, OLD, Allotment(1)),
        (2, "nccl", None, 2, OLD, Allotment(2)),
        (2, "nccl", None, 8, OLD, Allotment(2)),
        (2, "nccl", None, 1, NEW, Allotment(1, nccl_shares=True)),
        (4, "nccl", None, 1, (2, 31), Allotment(1, nccl_shares=True)),
        (4, "nccl", None, 3, (3, 0, 1), Allotment(3, nccl_shares=True)),
        (2, "gloo", None, 1, (), Allotment(1)),
        (2, "nccl", 1, 4, NEW, Allotment(1, nccl_shares=True)),
        (2, "nccl", 4, 4, OLD, Allotment(4)),
        (1, "gloo", 2, 2, OLD, Allotment(2)),
    ],
)
def test_what_a_test_gets(world_size, backend, wanted, gpus, nccl, got):
    """One for each rank or as many as there are; NCCL is told to share exactly where ranks of NCCL do."""
    assert ask(world_size, backend, wanted, gpus=gpus, nccl=nccl) == got


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_without_a_gpu(backend):
    """No GPU: skipped with the reason, which is torch's own where it has told one."""
    found = ask(2, backend, gpus=0, trouble="the driver is too old")
    assert found == Refusal("the test needs 1 GPU, and torch sees no GPU (the driver is too old)")


@pytest.mark.parametrize("nccl", [OLD, (2, 27, 5), (1, 99), ()])
def test_an_older_nccl_names_the_one_that_would_do(nccl):
    """Too old an NCCL, or one of which nothing is known: skipped, with both versions."""
    found = ask(4, gpus=1, nccl=nccl)
    assert isinstance(found, Refusal)
    assert not found.fails
    assert "its 4 ranks on 1 GPU, which needs NCCL 2.30 or newer (torch 2.14 and newer ship it)" in found.reason
    assert ("NCCL " + ".".join(map(str, nccl)) if nccl else "an NCCL of unknown version") + " is loaded" in found.reason


def test_too_few_for_what_the_mark_names():
    """A number that was asked for is not made up by sharing."""
    assert ask(2, "gloo", wanted=4, gpus=3) == Refusal("the test needs 4 GPUs, and torch sees 3 GPUs")


@pytest.mark.parametrize(
    ("world_size", "wanted", "gpus", "required", "fails"),
    [
        (2, None, 0, 1, True),
        (2, None, 1, 2, True),  # it could share, but two were promised
        (2, 4, 2, 4, True),
        (2, 4, 2, 2, False),
    ],
)
def test_promised_gpus_that_are_not_there(world_size, wanted, gpus, required, fails):
    """With fewer GPUs than were promised, what cannot run as it would on them fails, and says by which option."""
    found = ask(world_size, "gloo", wanted, required, gpus=gpus)
    assert isinstance(found, Refusal)
    assert found.fails is fails
    assert (f"--ddp-require-gpus {required} was given" in found.reason) is fails


def test_promised_gpus_that_are_there():
    """A promise that is kept changes nothing; a test that is content with what there is runs either way."""
    assert ask(2, required=2, gpus=2) == Allotment(2)
    assert ask(4, required=1, gpus=1) == Allotment(1, nccl_shares=True)
    assert ask(1, required=2, gpus=1) == Allotment(1)
    assert ask(2, wanted=1, required=2, gpus=1) == Allotment(1, nccl_shares=True)


# --- the mark


@pytest.mark.parametrize(
    ("marks", "mark"),
    [
        ([], None),
        ([((), {})], GpuMark()),
        ([((2,), {})], GpuMark(2)),
        ([((), {"count": 3, "real": "kernels"})], GpuMark(3, "kernels")),
        ([((), {"real": "NCCL"}), ((4,), {"real": "a class's"})], GpuMark(4, "NCCL")),
    ],
)
def test_what_the_mark_says(marks, mark):
    """A number of GPUs, and why simulated ones will not do; the closest mark counts for each."""
    assert read(marks) == mark


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ((0,), {}, "gpu(0): it takes a number of GPUs above 0"),
        ((True,), {}, "above 0"),
        (("two",), {}, "gpu('two')"),
        ((1, 2), {}, "and nothing else"),
        ((), {"gpus": 2}, "gpu(gpus=2): it takes a number of GPUs, such as gpu(2)"),
        ((), {"real": True}, "say in a few words"),
    ],
)
def test_wrong_marks_are_a_sentence(args, kwargs, words):
    """Everything else is refused with the mark as it stands, and the fix."""
    with pytest.raises(BadMark) as caught:
        read([(args, kwargs)])
    assert words in str(caught.value)


# --- the ranks' places


@pytest.mark.parametrize(
    ("world_size", "gpus", "places"),
    [
        (1, 1, [0]),
        (2, 2, [0, 1]),
        (2, 1, [0, 0]),
        (4, 2, [0, 1, 0, 1]),
        (4, 3, [0, 1, 2, 0]),
        (4, 8, [0, 2, 4, 6]),
        (2, 5, [0, 2]),
    ],
)
def test_the_gpu_of_each_rank(world_size, gpus, places):
    """Its local rank; the first of its own where it has several; round and round where ranks share."""
    plan = Plan(
        nodeid="", path="", world_size=world_size, backend="nccl", device="cuda", timeout=1.0, shared_dir="",
        own_dirs="", capture="no", gpus=machine(gpus).gpus,
    )  # fmt: skip
    assert [plan.gpu_of(rank) for rank in range(world_size)] == places
