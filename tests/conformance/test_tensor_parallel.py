"""Trainers that cut the job's model by tensor parallelism, in two copies: right ones hold, mistakes are found."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ddpcheck.conformance.suite import Suite
from tests.conformance.conducting import Conductor, conducting

NAMES = (
    "fit", "fit_in_a_wrapper", "fit_not_averaged", "fit_averaged_over_all", "fit_dealt_to_all", "fit_new_optimizer",
)  # fmt: skip
ASKED = ("ddp-tp",)
ROWS = [name for name, _ in Suite((4,), parallelism=ASKED) if name.partition(":")[2].startswith(ASKED)]


@pytest.fixture(scope="module")
def conductor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Conductor]:
    if not hasattr(pytest.importorskip("torch.distributed.tensor"), "DTensor"):
        pytest.skip("torch 2.5 and later have DTensor in torch.distributed.tensor")
    with conducting(tmp_path_factory.mktemp("cut"), "fixtures.trainers.tensor_parallel", NAMES) as one:
        yield one


def test_what_there_is() -> None:
    assert ROWS == [
        "shard-partition:ddp-tp",
        "gradient-sync:ddp-tp",
        "parameter-sync:ddp-tp",
        "gradient-oracle:ddp-tp",
        "gradient-oracle:ddp-tp-accumulation-clipping",
        "resume-equivalence:ddp-tp",
    ]


@pytest.mark.long
@pytest.mark.parametrize("check", ROWS)
def test_a_right_one_holds(conductor: Conductor, check: str) -> None:
    """Two ranks take the same samples, and the two copies share the dataset."""
    result = conductor.result("fit", check, 4, parallelism=ASKED)
    assert result.status == "held", result.text
    assert result.checked


@pytest.mark.long
@pytest.mark.parametrize("check", ROWS)
def test_one_whose_wrapper_takes_the_parameters_out_of_the_model(conductor: Conductor, check: str) -> None:
    """DDP over a dimension of the mesh does; what this trainer has not is not checked, with its own words."""
    result = conductor.result("fit_in_a_wrapper", check, 4, parallelism=ASKED)
    if "accumulation" in check or "resume" in check:
        assert result.status == "not-checked"
        assert result.reason.startswith("not supported: it has no accumulation, no clipping and no checkpoints")
    else:
        assert result.status == "held", result.text
        assert result.checked


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "check", "words"),
    [
        ("fit_not_averaged", "gradient-sync:ddp-tp", "Average the gradients over job.mesh['dp']"),
        ("fit_not_averaged", "parameter-sync:ddp-tp", "4 of 4 parameters to differ from rank 0's on ranks 2 and 3"),
        ("fit_not_averaged", "gradient-oracle:ddp-tp", "it was not reduced along dp"),
        ("fit_not_averaged", "gradient-oracle:ddp-tp-accumulation-clipping", "it was not reduced along dp"),
        ("fit_averaged_over_all", "gradient-oracle:ddp-tp", "another update"),
        ("fit_dealt_to_all", "shard-partition:ddp-tp", "other samples than those of the rank before it on ranks 1 and"),
        ("fit_dealt_to_all", "gradient-oracle:ddp-tp", "took different samples"),
        ("fit_new_optimizer", "resume-equivalence:ddp-tp", "learning rate"),
    ],
)
def test_mistakes(conductor: Conductor, name: str, check: str, words: str) -> None:
    """Each in the words that fit it."""
    result = conductor.result(name, check, 4, parallelism=ASKED)
    assert result.status == "violated"
    assert words in result.text
