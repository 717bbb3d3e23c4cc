"""Several nodes, as two agents on this machine: one verdict, told by both."""

from __future__ import annotations

import contextlib
import socket
import time

import psutil
import pytest
from running import begin, finish, script

from tests.command.forks import PERIOD

BODY = """
model, optimizer = setup()
assert int(os.environ["LOCAL_RANK"]) != dist.get_rank() or dist.get_rank() == 0
dataset = torch.utils.data.TensorDataset(torch.arange(32.0).reshape(8, 4))
share = int(os.environ["LOCAL_RANK"]) if "--fault" in sys.argv else dist.get_rank()  # the fault
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
sampler = DistributedSampler(dataset, num_replicas=dist.get_world_size(), rank=share)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for (x,) in DataLoader(dataset, batch_size=2, sampler=sampler):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
dist.destroy_process_group()
"""


def silent(process):
    """A connection to a port of a process, over which nothing is said."""
    while True:
        assert process.poll() is None, process.communicate()
        for one in psutil.Process(process.pid).net_connections("tcp"):
            if one.status == psutil.CONN_LISTEN:
                assert one.laddr.ip == "127.0.0.1"
                return socket.create_connection(one.laddr)
        time.sleep(0.01)


def two_nodes(forks, folder, path, *arguments, second=None, stranger=False):
    """Run a script on two nodes of one rank each; what each came to. ``second``: the second one's environment."""
    with socket.socket() as found:
        found.bind(("localhost", 0))
        port = found.getsockname()[1]
    began = time.monotonic()
    nodes = []
    for number in range(2):
        target = folder / f"verdict{number}.json"
        options = [
            "--nnodes", "2", "--nproc-per-node", "1", "--node-rank", str(number),
            "--master-addr", "localhost", "--master-port", str(port),
        ]  # fmt: skip
        env = second if number else None
        nodes.append((begin(folder, "--json", target, *options, path, *arguments, env=env, forks=forks), target))
    with silent(nodes[0][0]) if stranger else contextlib.nullcontext():
        return [finish(process, target, began) for process, target in nodes]


@pytest.mark.parametrize("fault", [pytest.param(False, marks=pytest.mark.long), True], ids=["correct", "faulty"])
def test_two_nodes_come_to_one_verdict(tmp_path, forks, fault):
    """LOCAL_RANK is 0 on both: who shards by it is found by the evidence of both nodes together.

    And somebody has found the port at which it is taken, and says nothing.
    """
    path = script(tmp_path, BODY)
    ran = two_nodes(forks, tmp_path, path, *(["--fault"] if fault else []), stranger=True)
    assert [r.code for r in ran] == [int(fault)] * 2, ran[0].err + ran[1].err
    assert ran[0].document == ran[1].document
    document = ran[0].document
    assert document["world_size"] == 2
    assert document["nnodes"] == 2
    assert [r["exit_code"] for r in document["ranks"]] == [0, 0]
    assert ran[0].found == (["shard-partition"] if fault else [])
    reports = [r for r in ran if "shows the report" not in r.err]
    assert len(reports) == 1, "the node of rank 0 shows the report"


@pytest.mark.long
def test_a_node_that_sends_late_is_waited_for(tmp_path, forks):
    """The ranks have all ended before the second node looks at their evidence for the first time: it counts."""
    path = script(tmp_path, BODY)
    ran = two_nodes(forks, tmp_path, path, "--fault", second={PERIOD: "4"})
    assert [r.code for r in ran] == [1, 1], ran[0].err + ran[1].err
    assert ran[0].found == ran[1].found == ["shard-partition"]


@pytest.mark.long
def test_a_deadlock_between_nodes_ends_both(tmp_path, forks):
    """What is certain on the judging node ends the ranks of the other one."""
    path = script(
        tmp_path,
        """
        model, optimizer = setup()
        step(model, optimizer)
        if dist.get_rank() == 0:
            dist.barrier()
        else:
            dist.all_reduce(torch.ones(3))
        """,
    )
    ran = two_nodes(forks, tmp_path, path)
    assert [r.code for r in ran] == [1, 1]
    assert {r.document["verdict"] for r in ran} == {"hung"}
    assert max(r.seconds for r in ran) < 60
