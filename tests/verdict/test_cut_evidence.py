"""Evidence that stopped early, or is damaged, of a training that is right: the verdict accuses nobody of anything."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests import progress

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]

SCRIPT = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

os.chdir(os.path.dirname(os.path.abspath(__file__)))
dist.init_process_group("gloo")
rank = dist.get_rank()
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.1), torch.nn.Linear(4, 1))
model = DistributedDataParallel(net)
torch.manual_seed(100 + rank)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
data = TensorDataset(torch.arange(96.0).reshape(24, 4))
sampler = DistributedSampler(data, shuffle=True)
loader = DataLoader(data, batch_size=4, sampler=sampler)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    schedule.step()
    if rank == 0:
        torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, "new.pt")
        os.replace("new.pt", "last.pt")
    dist.barrier()
    state = torch.load("last.pt", map_location="cpu")
    net.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])
    dist.all_reduce(torch.ones(1))
dist.all_reduce(torch.ones(2), group=dist.new_group([0, 1]))
dist.destroy_process_group()
"""

DRIVER = """
import json, sys
from pathlib import Path
from ddpcheck import evidence as ev
from ddpcheck.verdict.judges import judge_world
from ddpcheck.judging.world import Process
from ddpcheck.judging.membership import worlds
from ddpcheck.probes import all_probes as watching
from ddpcheck.verdict.verdict import conclude
from tests.corpus.forked import run

watching.patch()
ran = run(Path(sys.argv[1]))
assert set(ran.exits.values()) == {0}, ran.output
processes = [rank.process for rank in ran.worlds[0]]
host = processes[0].began.host
parent = Process("agent")
parent.add([ev.Began(n=0, at=0.0, pid=1, parent=0, host=host, node=0, argv=[], folder="", wall=0.0)])
parent.add([ev.ChildEnded(n=1, at=1e9, pid=p.pid, code=0, signal=None) for p in processes])


def stopped(process, cut):
    part = Process(process.name)
    part.add(process.records[:cut])
    part.gap = "there was no room for more"
    return part


def damaged(process, cut):
    part = Process(process.name)
    part.add(process.records[:cut] + process.records[cut + 1 :])
    part.damaged, part.whole_to = 100, process.records[cut - 1].n
    return part


def judged(*given):
    found = worlds([parent, *given])
    defects = []
    verdict = conclude([judge_world(world, defects) for world in found], worlds=found, processes=given)
    return [f"{f.check}: {f.found}" for f in verdict.findings], defects, verdict.notes


wrong, cuts = [], 0
for lose, whole, other in ((damaged, *processes), (stopped, *processes[::-1])):
    for cut in range(1, len(whole.records)):
        cuts += 1
        findings, defects, notes = judged(lose(whole, cut), other)
        if findings or defects or "evidence of" not in notes[0]:
            wrong.append([lose.__name__, repr(whole.records[cut]), findings, defects, notes])
print(json.dumps([judged(*processes)[:2], cuts, wrong]))
"""


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """What the whole evidence of a right training comes to, and all parts of it that come to something else."""
    script = tmp_path_factory.mktemp("cut") / "train.py"
    script.write_text(SCRIPT)
    run = progress.run(
        [sys.executable, "-c", DRIVER, str(script)],
        text=True,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def test_what_is_not_on_record_is_nobodys_fault(judged):
    """Wherever one rank's record ends or has a hole, nothing is found, and the first note says whose it is."""
    whole, cuts, wrong = judged
    assert whole == [[], []]
    assert cuts > 150
    assert wrong == []
