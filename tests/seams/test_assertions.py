"""Assertions under a torch that lacks what they rest on: not passed in silence, and no cause that nobody saw."""

from __future__ import annotations

import pytest

from tests.inner import InnerProject

pytestmark = pytest.mark.long

LACKING = """
import pytest, torch, ddpcheck
from ddpcheck.seams import BY_NAME
from tests.seams import renaming

for name in ("torch.nn.parallel.DistributedDataParallel._post_forward",
             "torch.nn.parallel.DistributedDataParallel._module_parameters",
             "torch.optim.optimizer.register_optimizer_step_post_hook"):
    renaming.rename(BY_NAME[name])

pytestmark = pytest.mark.ddp(world_size=2)

def model_of(ddp):
    torch.manual_seed(0)
    return ddp.wrap(torch.nn.Linear(2, 1))

def test_identical(ddp):
    assert ddpcheck.assert_replicas_identical(model_of(ddp)) == 0

def test_parameters(ddp):
    assert ddpcheck.assert_parameters_identical(model_of(ddp)) == 2

def test_gradients(ddp):
    model = model_of(ddp)
    with model.no_sync():
        model(torch.full((1, 2), float(ddp.rank))).sum().backward()
    ddpcheck.assert_gradients_identical(model)

def test_file(ddp):
    path = ddp.tmp_path / "last.pt"
    ddpcheck.assert_read_after_write(
        lambda: torch.save(1, path) if ddp.rank == 0 else None, lambda: torch.distributed.barrier() or torch.load(path))
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """One session of all of them."""
    project = InnerProject(tmp_path_factory.mktemp("lacking") / "project")
    project.write("test_lacking.py", LACKING)
    return project.run()


def checks(seen):
    return [(run["check"], run["status"]) for run in seen.ddp["checks"]]


@pytest.mark.parametrize(
    ("name", "check", "lacks"),
    [
        ("test_identical", "initial-broadcast", "torch.optim.optimizer.register_optimizer_step_post_hook"),
        ("test_file", "checkpoint-read-after-write", "torch.nn.parallel.DistributedDataParallel._post_forward"),
    ],
)
def test_what_cannot_be_judged_is_told_as_not_checked(ran, name, check, lacks):
    """The test goes on, with a warning that says what is missing; no tensor was compared."""
    seen = ran[name]
    assert (seen.outcome, checks(seen)) == ("passed", [(check, "not-checked")])
    assert any(f"has no {lacks}, on which this check rests" in warning for warning in seen.warnings), seen.warnings


def test_what_rests_on_none_of_it_is_judged(ran):
    """Parameters are compared as ever."""
    assert (ran["test_parameters"].outcome, checks(ran["test_parameters"])) == ("passed", [("parameter-sync", "held")])
    assert ran["test_parameters"].warnings == []


def test_a_cause_is_none_where_it_was_not_seen(ran):
    """Gradients that differ do; that no forward armed the reducer, or that DDP does not know them, is not said."""
    seen = ran["test_gradients"]
    assert (seen.outcome, checks(seen)) == ("failed", [("gradient-sync", "violated")])
    assert "the model is not in Dist" not in seen.text
    assert "no forward went through" not in seen.text
    assert "DDP does not know" not in seen.text
