"""Trainers that shard the job's model: the right one holds, each mistake is found by the check that fits it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ddpcheck.conformance.suite import Suite
from tests.conformance.conducting import Conductor, conducting

NAMES = ("fit", "fit_own_weights", "fit_no_copies", "fit_norm_of_own_shard", "fit_new_optimizer")
SHARDED = ("fsdp2", "hsdp")


@pytest.fixture(scope="module")
def conductor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Conductor]:
    if not hasattr(pytest.importorskip("torch.distributed.fsdp"), "fully_shard"):
        pytest.skip("torch 2.6 and later have fully_shard")
    with conducting(tmp_path_factory.mktemp("sharded"), "fixtures.trainers.sharding", NAMES) as one:
        yield one


RESHARD = "resume-equivalence:fsdp2-reshard"
ROWS = [
    (name, size)
    for name, size in Suite((2, 3, 4), parallelism=SHARDED)
    if name.partition(":")[2].startswith(SHARDED) and name != RESHARD
]


@pytest.mark.long
@pytest.mark.parametrize(("check", "world_size"), ROWS)
def test_a_right_one_holds(conductor: Conductor, check: str, world_size: int) -> None:
    """Over all ranks, and in two copies."""
    result = conductor.result("fit", check, world_size, parallelism=SHARDED)
    assert result.status == "held", result.text


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "check", "world_size", "words"),
    [
        ("fit_own_weights", "parameter-sync:hsdp", 4, "no wrapper broadcasts what is sharded"),
        ("fit_own_weights", "gradient-oracle:hsdp", 4, "another update"),
        ("fit_no_copies", "gradient-sync:hsdp", 4, "Shard over the whole of job.mesh"),
        ("fit_no_copies", "gradient-oracle:hsdp", 4, "it was not reduced along replicate"),
        ("fit_norm_of_own_shard", "gradient-oracle:fsdp2-accumulation-clipping", 2, "clipped in pieces"),
        ("fit_new_optimizer", "resume-equivalence:fsdp2", 2, "learning rate"),
    ],
)
def test_mistakes(conductor: Conductor, name: str, check: str, world_size: int, words: str) -> None:
    """Each in the words that fit it."""
    result = conductor.result(name, check, world_size, parallelism=SHARDED)
    assert result.status == "violated"
    assert words in result.text


@pytest.fixture(scope="module")
def resharding(conductor: Conductor, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Conductor]:
    names = ("fit", "fit_own_shard", "fit_cut_to_fit", "fit_model_alone")
    with conducting(tmp_path_factory.mktemp("resharding"), "fixtures.trainers.resharding", names) as one:
        yield one


OTHER_RANKS = [
    ("fit", "held", ""),
    ("fit_own_shard", "violated", "Save what no number of ranks matters to"),
    ("fit_cut_to_fit", "violated", "Save what no number of ranks matters to"),
    ("fit_model_alone", "violated", "the optimizer has lost its state"),
]


@pytest.mark.long
@pytest.mark.parametrize("world_size", [2, 4])
@pytest.mark.parametrize(("name", "status", "words"), OTHER_RANKS)
def test_a_resume_in_another_number_of_ranks(
    resharding: Conductor, name: str, status: str, words: str, world_size: int
) -> None:
    """From four ranks to two, and from two to four."""
    result = Suite((2, 4), [RESHARD], parallelism=SHARDED).result(resharding.runner(name), RESHARD, world_size)
    assert result.status == status, result.text
    assert words in result.text


@pytest.mark.long
def test_what_goes_on_in_as_many_ranks_alone(conductor: Conductor, resharding: Conductor) -> None:
    """One says so; one does so, and is right as long as there are as many."""
    result = Suite((2, 4), [RESHARD], parallelism=SHARDED).result(conductor.runner("fit"), RESHARD, 2)
    assert result.status == "not-checked"
    assert result.reason == "not supported: it goes on in as many ranks as it was saved in"
    assert resharding.result("fit_own_shard", "resume-equivalence:fsdp2", 2, parallelism=SHARDED).status == "held"


def test_what_can_be_asked_for() -> None:
    """Sharded jobs are there for those who ask; what cannot be is refused with a sentence."""
    assert not any("fsdp2" in name or "hsdp" in name for name, _ in Suite())
    for one in ("hsdp", "ddp-tp"):
        assert {size for name, size in Suite(parallelism=[one]) if one in name} == {4}
    assert [size for name, size in Suite((1, 2, 3, 4), parallelism=["fsdp2"]) if name == RESHARD] == [2, 4]
    assert RESHARD not in [name for name, _ in Suite((2, 3), parallelism=["fsdp2"])]
    assert [*Suite(parallelism="ddp")] == [*Suite()]
    with pytest.raises(ValueError, match="parallelism names 'fsdp': there are ddp, fsdp2, hsdp, ddp-tp"):
        Suite(parallelism=["fsdp"])
    with pytest.raises(ValueError, match="parallelism names 'hsdp', which is trained in 4 ranks: world_sizes="):
        Suite([2], parallelism=["hsdp"])
