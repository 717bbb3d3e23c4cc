"""Claim 28 (S3, unsaid): its example calls a function that does not exist, and starts one rank of four.

Neither is left to a reader's patience: torch tells the first at once, and waits
for the other three ranks for half an hour; ddpcheck tells of both.
"""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
import torch.distributed as dist

import ddpcheck
from fixtures import s3_as_printed, s3_ten_steps
from tests.command.running import run

PROGRAM = Path(s3_as_printed.__file__)


def line_with(text: str) -> int:
    """The number of the program's line that has this text."""
    (number,) = [n for n, line in enumerate(PROGRAM.read_text().splitlines(), 1) if text in line]
    return number


def test_function_that_does_not_exist_is_told(answers):
    """The failure is told with the name that torch has not, and with the line that asks for it."""
    said = json.loads(answers(PROGRAM, "function"))

    (finding,) = said["findings"]
    assert finding["check"] == "rank-failure"
    assert "has no attribute 'start_processes'" in finding["found"]
    assert Path(finding["where"]["file"]).name == PROGRAM.name
    assert finding["where"]["line"] == line_with("dist.start_processes")


@pytest.mark.long
def test_one_rank_of_four_is_told_and_ended(tmp_path):
    """A process that waits for three others is ended after --stall-timeout: who is missing, and the line."""
    ran = run(tmp_path, "--stall-timeout", "1", PROGRAM, "rank", env={"PYTHONPATH": str(PROGRAM.parents[1])})

    assert ran.code == 1
    assert ran.document["verdict"] == "hung", ran.err
    assert ran.found == ["no-hang"]
    (finding,) = ran.document["findings"]
    assert finding["ranks"] == [1, 2, 3]
    assert "waiting in init_process_group for ranks 1-3" in finding["found"]
    assert finding["where"]["line"] == line_with("dist.init_process_group")


@pytest.mark.ddp(world_size=1)
def test_torchs_own_timeout_tells_how_many_came(ddp, monkeypatch):
    """With a timeout that somebody lives to see, torch gives up by itself; newer ones say that one of four came."""
    dist.destroy_process_group()
    init = dist.init_process_group
    monkeypatch.setattr(dist, "init_process_group", lambda *a, **k: init(*a, **k, timeout=timedelta(seconds=1)))
    for name in s3_ten_steps.VARIABLES:
        monkeypatch.setenv(name, "")  # the program's own are gone afterwards

    with pytest.raises(RuntimeError, match=r"1/4 clients joined|timed out"):
        s3_as_printed.setup(rank=0)


@pytest.mark.ddp(world_size=s3_as_printed.WORLD_SIZE)
def test_fixed_example_trains_on_four_ranks(ddp):
    """The twin: with all four ranks started, and only functions that there are, ten steps hold the invariants."""
    model = s3_ten_steps.train(ddp.rank)

    ddpcheck.assert_gradients_identical(model)
    ddpcheck.assert_parameters_identical(model)
