"""Claim 23 (S2): a rank is global, a local rank is per node, and ranks are unique in 0 to world size - 1.

On two nodes of two ranks: two launchers on this machine, which meet at a
rendezvous endpoint as the guide has it.
"""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import pytest

from tests.command.running import TRAINING, Ran, begin, finish, script

BODY = """
import json
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

model, optimizer = setup()
names = ("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
with open(f"rank{dist.get_rank()}", "w") as file:
    json.dump({name: int(os.environ[name]) for name in names}, file)
data = TensorDataset(torch.arange(64.0).reshape(16, 4))

shared = DistributedSampler(data, dist.get_world_size(), dist.get_rank())
for (x,) in DataLoader(data, batch_size=2, sampler=shared):
    step(model, optimizer, lambda _: model(x))
shared = DistributedSampler(data, dist.get_world_size(), int(os.environ["LOCAL_RANK"]))
for (x,) in DataLoader(data, batch_size=2, sampler=shared):
    step(model, optimizer, lambda _: model(x))
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def nodes(tmp_path_factory, forks) -> tuple[list[dict[str, int]], Ran]:
    """What the environment of each rank has said, and what the command says of the run."""
    folder = tmp_path_factory.mktemp("nodes")
    path = script(folder, BODY)
    with socket.socket() as found:
        found.bind(("localhost", 0))
        endpoint = f"localhost:{found.getsockname()[1]}"
    meeting = ["--nnodes", "2", "--nproc-per-node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint]
    began = time.monotonic()
    targets = [folder / f"{node}.json" for node in range(2)]
    options = [*meeting, "--rdzv-id", "job", path]
    started = [begin(folder, "--json", target, *options, forks=forks) for target in targets]
    ran = [finish(process, target, began) for process, target in zip(started, targets, strict=True)]
    assert ran[0].document == ran[1].document, ran[0].err + ran[1].err
    return [json.loads((folder / f"rank{rank}").read_text()) for rank in range(4)], ran[0]


@pytest.mark.long
def test_ranks_are_global_and_local_ranks_per_node(nodes):
    """RANK is 0 to 3, once each; LOCAL_RANK is 0 and 1 on each node, and is not RANK on the second."""
    said, _ = nodes
    assert [one["RANK"] for one in said] == [0, 1, 2, 3]
    assert [(one["GROUP_RANK"], one["LOCAL_RANK"]) for one in said] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert {one["WORLD_SIZE"] for one in said} == {4}
    assert {one["LOCAL_WORLD_SIZE"] for one in said} == {2}


def line_of(finding: dict[str, Any]) -> str:
    return (TRAINING + BODY).splitlines()[finding["where"]["line"] - 1]


def test_sharding_by_local_rank_is_caught_and_by_rank_is_not(nodes):
    """The loop that shares data out by LOCAL_RANK is told, and that by RANK, before it in the same run, is not."""
    _, ran = nodes
    assert ran.found == ["shard-partition"], ran.err
    (finding,) = ran.document["findings"]
    assert finding["severity"] == "error"
    assert "LOCAL_RANK" in line_of(finding)
    assert ran.document["nnodes"] == 2
    assert ran.document["world_size"] == 4
    assert ran.document["checks"]["shard-partition"]["checked"] == 2
