"""``ddpcheck demo``: a small training with a mistake, written into a folder and run, so that one sees a finding."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

FOLDER = "ddpcheck-demo"
SCRIPT = "train.py"

PROGRAM = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
x = torch.randn(64, 10, generator=torch.Generator().manual_seed(0))
data = TensorDataset(x, x.sum(1, keepdim=True))
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
model = DistributedDataParallel(torch.nn.Linear(10, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(3):
    for inputs, targets in loader:
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
dist.destroy_process_group()
"""
"""It runs to its end, its loss falls, and every epoch has the order of the first one."""

USAGE = """usage: ddpcheck demo [FOLDER]

Writes a small training with a mistake to FOLDER/train.py (ddpcheck-demo/train.py), and runs it in two ranks as
`ddpcheck run` runs any script. Takes some seconds on the CPU, and ends as that run does, with 1."""


def demo(arguments: Sequence[str], run: Callable[[list[str]], int]) -> int:
    """Write the training and run it as `ddpcheck run` would; the exit code is that of the run."""
    from ddpcheck.verdict.verdict import Exit

    if any(one in ("-h", "--help") for one in arguments):
        print(USAGE)
        return Exit.HELD
    if len(arguments) > 1 or any(one.startswith("-") for one in arguments):
        print("ddpcheck demo: it takes one folder at most, and no options: ddpcheck demo [FOLDER]", file=sys.stderr)
        return Exit.USAGE
    script = Path(arguments[0] if arguments else FOLDER) / SCRIPT
    try:
        written = script.read_text(encoding="utf-8") if script.exists() else None
        if written not in (None, PROGRAM):
            print(
                f"ddpcheck demo: {script} is there already, and is not overwritten; name another folder, or run it: "
                f"{command(script)}",
                file=sys.stderr,
            )
            return Exit.USAGE
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(PROGRAM, encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        print(f"ddpcheck demo: {script} cannot be written: {error}", file=sys.stderr)
        return Exit.USAGE
    print(
        f"{script} is a training with a mistake; this runs it:\n\n    {command(script)}\n", file=sys.stderr, flush=True
    )
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # torchrun sets it, too, and warns of that
    return run(["--standalone", "--nproc-per-node", "2", str(script)])


def command(script: Path) -> str:
    """What runs the script from here."""
    return f"ddpcheck run --standalone --nproc-per-node 2 {script}"
