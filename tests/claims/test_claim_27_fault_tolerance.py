"""Claim 27 (S3): DDP is fault-tolerant, and handles errors during training.

Refuted: a rank that dies takes the others along, since they wait for its part
of the next reduction. What starts all of them anew is the launcher, if it is
told to; and they go on from where a checkpoint lets them. Even that takes a
setting (below), or luck.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import torch

from fixtures import s0_basic
from tests import progress

ROOT = Path(__file__).parents[2]


def test_death_of_a_rank_fails_the_others(watch):
    """Rank 1 is killed before its third step: rank 0 gets an error from the next reduction, and trains no further."""
    seen = watch(
        """
        dist.init_process_group("gloo")
        torch.manual_seed(rank)
        model = DistributedDataParallel(nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(5):
            if rank == 1 and number == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            step(model, optimizer)
            print(f"rank {rank} made step {number}", flush=True)
        """
    )

    exits = seen.said["exits"]
    assert exits["1"] == -9
    assert exits["0"] not in (0, None)
    assert "rank 0 made step 1" in seen.said["output"]
    assert "rank 0 made step 2" not in seen.said["output"]
    (finding,) = [f for f in seen.findings if f["severity"] == "error"]
    assert finding["check"] == "rank-failure"
    assert finding["ranks"] == [1]
    assert "SIGKILL" in finding["found"]


SCRIPT = """
import json, os, signal, sys
from pathlib import Path

import torch
import torch._dynamo.utils  # once, and not by the first DistributedDataParallel of each rank
import torch.distributed as dist
from torch.distributed import run as torchrun
from torch.distributed.launcher.api import elastic_launch
from torch.nn.parallel import DistributedDataParallel

from fixtures import s0_basic

def train():
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    saved, new = Path("job.pt"), Path("job.pt.new")
    with s0_basic.process_group():
        rank = dist.get_rank()
        net, first = s0_basic.build_model(seed=rank), 0
        if saved.exists():
            state = torch.load(saved, weights_only=True)
            net.load_state_dict(state["model"])
            first = state["steps"]
        model = DistributedDataParallel(net)
        optimizer = s0_basic.make_optimizer(model)
        for number in range(first, 6):
            if attempt == 0 and rank == 1 and number == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            s0_basic.train_step(model, optimizer, s0_basic.make_batch(rank, number))
            if number % 2 and rank == 0:
                torch.save({"model": net.state_dict(), "steps": number + 1}, new)
                os.replace(new, saved)
            dist.barrier()
        weights = net.output.weight.flatten().tolist()
        Path(f"rank{rank}").write_text(json.dumps({"attempt": attempt, "first": first, "weights": weights}))

# What torchrun does with its options, but that the ranks are forks of it, and need no interpreters of their own.
config, _, _ = torchrun.config_from_args(torchrun.parse_args(sys.argv[1:]))
elastic_launch(config, train)()
"""

STORE_OF_ITS_OWN = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""A new store for each attempt. From torch 2.5 on the launcher has one for all of them, and a rank that is started
anew may read the address of a peer that has died: whether a restart then succeeds is a race."""


@pytest.mark.long
def test_only_the_launcher_restarts_them(tmp_path):
    """A job whose rank 1 dies in its fourth step: told to, torchrun starts both anew, and they resume and finish."""
    (tmp_path / "train.py").write_text(SCRIPT)

    ran = progress.run(
        [sys.executable, "train.py", "--start-method", "fork", "--rdzv-backend", "c10d",
         "--rdzv-endpoint", "localhost:0", "--nproc-per-node", "2", "--max-restarts", "1", "train.py"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **STORE_OF_ITS_OWN},
        text=True,
    )  # fmt: skip

    assert ran.returncode == 0, ran.stderr
    ends = [json.loads((tmp_path / f"rank{rank}").read_text()) for rank in range(2)]
    assert [end["attempt"] for end in ends] == [1, 1]
    assert [end["first"] for end in ends] == [2, 2]
    assert ends[0]["weights"] == ends[1]["weights"] == pytest.approx(uninterrupted())


def uninterrupted() -> list[float]:
    """The weights after the same six steps in one process that has both ranks' batches, and never dies."""
    model = s0_basic.build_model(seed=0)
    optimizer = s0_basic.make_optimizer(model)
    for number in range(6):
        batches = [s0_basic.make_batch(rank, number) for rank in range(2)]
        s0_basic.train_step(model, optimizer, tuple(map(torch.cat, zip(*batches, strict=True))))
    return model.output.weight.flatten().tolist()
