"""What each element of the loss counts in an update: at the first steps, and at every one where that is asked for."""

from __future__ import annotations

import pytest
from running import run, script

HELD = {
    "status": "held",
    "checked": 5,
    "coverage": {"compared": 5, "of": 5, "unit": "windows"},
    "skipped_because": None,
}
AT_RISK = {**HELD, "status": "at-risk"}

PROGRAM = """
import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    for number in range(4):
        batch = torch.randn(4, 6)
        with contextlib.nullcontext() if number == 3 else model.no_sync():
            loss = nn.functional.mse_loss(model(batch), batch[:, :2])
            {loss}.backward()  # here
    {before}
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""


def made(tmp_path, forks, *options, loss="loss", before="", program=PROGRAM):
    path = script(tmp_path, program.format(loss=loss, before=before), head="")
    return run(tmp_path, "--nproc-per-node", "2", *options, path, forks=forks)


def of_the_weights(ran):
    lines = PROGRAM.splitlines()
    return [
        (f["severity"], f["found"], "# here" in lines[f["where"]["line"] - 1], f["count"])
        for f in ran.document["findings"]
        if f["check"] == "token-weight"
    ]


def test_micro_batches_that_are_not_divided(tmp_path, forks):
    ran = made(tmp_path, forks, "--oracle")
    assert of_the_weights(ran) == [
        ("warning", "4 micro-batches before the step, each with the whole weight of a mean: the update is that of 4 "
         "times the mean", True, 5)
    ]  # fmt: skip
    assert ran.document["checks"]["token-weight"] == AT_RISK
    assert ran.code == 0


def test_with_strict_it_fails_the_run(tmp_path, forks):
    ran = made(tmp_path, forks, "--oracle", "--strict")
    assert (ran.code, ran.document["verdict"]) == (1, "violated")
    assert "\nVIOLATED" in ran.err


@pytest.mark.parametrize(
    ("loss", "before"),
    [
        ("(loss / 4)", ""),
        ("(loss / 4).mul(1)", ""),
        ("loss", "[one.grad.div_(4) for one in model.parameters()]"),
    ],
)
def test_what_is_divided(tmp_path, forks, loss, before):
    """Before backward(), or in the gradients themselves."""
    ran = made(tmp_path, forks, "--oracle", loss=loss, before=before)
    assert of_the_weights(ran) == []
    assert ran.document["checks"]["token-weight"] == HELD


def test_a_loss_without_elements(tmp_path, forks):
    ran = made(tmp_path, forks, "--oracle", loss="loss.sqrt()")
    check = ran.document["checks"]["token-weight"]
    assert (check["status"], check["checked"]) == ("not-checked", 0)
    assert "one number that Sqrt has made" in check["skipped_because"]


def test_long_runs(tmp_path, forks):
    """After the first steps, ever fewer are weighed; all of them where that is asked for, or the check is named."""
    # A look at a step may take a hundredth of the time: of steps as short as these, few would be looked at in full.
    as_of_a_real_model = "import time; time.sleep(0.1)"
    long = PROGRAM.replace("range(5)", "range(20)").replace("{before}", as_of_a_real_model)
    weighed = made(tmp_path, forks, program=long)
    checked = weighed.document["checks"]["token-weight"]["checked"]
    assert 8 <= checked < 20
    assert [count for *_, count in of_the_weights(weighed)] == [checked]
    for options in (["--oracle"], ["--checks", "token-weight"]):
        assert made(tmp_path, forks, *options, program=long).document["checks"]["token-weight"]["checked"] == 20


def test_a_loss_that_counts_nothing_is_not_held(tmp_path, forks):
    """There is no weight to compare."""
    check = made(tmp_path, forks, "--oracle", loss="(0 * loss)").document["checks"]["token-weight"]
    assert (check["status"], check["checked"]) == ("not-checked", 0)
    assert "no step that is a sum of gradients of losses" in check["skipped_because"]


def test_a_step_of_which_a_part_is_not_compared_is_not_held(tmp_path, forks):
    """One term is a mean, and the other none: what was not seen did not hold."""
    check = made(tmp_path, forks, "--oracle", loss="(loss / 4 + loss.sqrt())").document["checks"]["token-weight"]
    assert (check["status"], check["checked"]) == ("not-checked", 0)
