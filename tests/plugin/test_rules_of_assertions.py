"""Rules of assertions that no other recorded test reaches: what fires each of them, and what does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import ddpcheck
from ddpcheck import seams
from ddpcheck.checks import missing_seams
from ddpcheck.ranks.judged_assertion import AtRisk
from tests.checkpoints import trainer
from tests.checkpoints.trainer import Trainer


def rule(assertion: Callable[..., Any], *args: Any, **options: Any) -> str:
    """The rule of the one error that an assertion finds."""
    with pytest.raises(ddpcheck.Violation) as caught:
        assertion(*args, **options)
    (finding,) = caught.value.findings
    assert finding.severity == "error"
    return finding.rule


def loader(size: int, batch_size: int = 2, drop_last: bool = False) -> DataLoader[Any]:
    dataset = TensorDataset(torch.arange(size))
    return DataLoader(dataset, batch_size, sampler=DistributedSampler(dataset), drop_last=drop_last)


# --- the calls themselves


@pytest.mark.ddp(world_size=2)
def test_one_rank_ends_without_the_call(ddp: Any) -> None:
    ddpcheck.assert_batch_count(loader(8))
    if ddp.rank == 0:
        assert rule(ddpcheck.assert_batch_count, loader(8)) == "batch-count/unequal-assertion-calls"


@pytest.mark.ddp(world_size=2)
def test_the_ranks_call_different_assertions(ddp: Any) -> None:
    assertion = ddpcheck.assert_batch_count if ddp.rank == 0 else ddpcheck.assert_shards_partition
    assert rule(assertion, loader(8)) == "batch-count/unequal-assertion-calls"


@pytest.mark.ddp(world_size=2)
def test_what_the_assertion_rests_on_is_missing(ddp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ddp.wrap(nn.Linear(2, 2))
    ddpcheck.assert_device_placement(model)
    monkeypatch.setattr(missing_seams, "SEAMS", [seams.Seam("posixpath.nothing", "devices")])
    with pytest.warns(AtRisk, match="no posixpath.nothing, on which this check rests"):
        ddpcheck.assert_device_placement(model)


# --- data


@pytest.mark.ddp(world_size=2)
def test_no_sample_is_read(ddp: Any) -> None:
    ddpcheck.assert_shards_partition(loader(4))
    assert rule(ddpcheck.assert_shards_partition, []) == "shard-partition/no-samples-read"


@pytest.mark.ddp(world_size=2)
def test_datasets_of_different_sizes(ddp: Any) -> None:
    ddpcheck.assert_shards_partition(loader(8))
    assert rule(ddpcheck.assert_shards_partition, loader(8 + ddp.rank)) == "shard-partition/different-dataset-sizes"


@pytest.mark.ddp(world_size=2)
def test_every_batch_is_dropped(ddp: Any) -> None:
    """Each rank has two samples, which fill no batch of eight."""
    ddpcheck.assert_batch_count(loader(4, batch_size=8))
    assert rule(ddpcheck.assert_batch_count, loader(4, batch_size=8, drop_last=True)) == "batch-count/no-batches"


# --- models


def trained(ddp: Any, outputs: int = 3) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A model after a backward."""
    torch.manual_seed(0)
    model = nn.Linear(2, outputs)
    model(torch.ones(1, 2)).sum().backward()
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


ASSERTIONS = {
    "initial-broadcast": ddpcheck.assert_initial_broadcast,
    "gradient-sync": ddpcheck.assert_gradients_identical,
    "parameter-sync": ddpcheck.assert_parameters_identical,
}
DIFFERENT = {
    "initial-broadcast": "different-initial-state",
    "gradient-sync": "different-gradients",
    "parameter-sync": "different-parameters",
}


@pytest.mark.ddp(world_size=2)
@pytest.mark.parametrize("check", ASSERTIONS)
def test_models_of_different_shapes(ddp: Any, check: str) -> None:
    ASSERTIONS[check](trained(ddp)[0])
    assert rule(ASSERTIONS[check], trained(ddp, 3 + ddp.rank)[0]) == f"{check}/{DIFFERENT[check]}"


@pytest.mark.ddp(world_size=2)
@pytest.mark.parametrize("check", ASSERTIONS)
def test_there_is_nothing_to_compare(ddp: Any, check: str) -> None:
    model: nn.Module = nn.ReLU()
    if check == "gradient-sync":
        model, optimizer = trained(ddp)
        ASSERTIONS[check](model)
        optimizer.zero_grad()
    assert rule(ASSERTIONS[check], model) == f"{check}/nothing-to-compare"


# --- checkpoints


def rounded(trainer_: Trainer, path: Path) -> None:
    """Load weights that were saved in a lower precision."""
    trainer.load(trainer_, path)
    with torch.no_grad():
        for parameter in trainer_.model.parameters():
            parameter.copy_(parameter.bfloat16())


@pytest.mark.ddp(world_size=2)
def test_loaded_values_are_rounded(ddp: Any) -> None:
    options: dict[str, Any] = {"build": Trainer, "step": Trainer.step, "kills": 0, "bare": False}
    ddpcheck.assert_checkpoint_resumable(trainer.save, trainer.load, **options)
    found = rule(ddpcheck.assert_checkpoint_resumable, trainer.save, rounded, **options)
    assert found == "checkpoint-load-complete/values-not-restored"
