"""Tests of an inner session in which one rank fails while the others are blocked in a collective.

The rank writes the time just before into a file in ``BENCH_FAILED`` that is named like the test.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist


def fail(how: str) -> None:
    match how:
        case "raises":
            raise ValueError("on purpose")
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "leaves":
            os._exit(0)


@pytest.mark.ddp(world_size=[2, 4, 8])
@pytest.mark.parametrize("how", ["raises", "killed", "leaves"])
@pytest.mark.parametrize("turn", range(int(os.environ["BENCH_TESTS"])))
def test_failing(ddp: Any, turn: int, how: str) -> None:
    if ddp.rank == turn % ddp.world_size:
        time.sleep(0.2)  # until the others wait
        Path(os.environ["BENCH_FAILED"], f"{how}-{ddp.world_size}-{turn}").write_text(str(time.monotonic()))
        fail(how)
    dist.all_reduce(torch.ones(1))
