"""How long each stage takes on the way to a first collective: the ranks' origin, a context, NCCL, and its end.

    python -m tests.gpu.stages

Each stage is a process of its own with a limit of its own, and a line of JSON, which says why where there is no figure.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.gpu import scripts

LIMIT = 180.0
"""Seconds for one stage: the first start of NCCL takes a minute on some machines, and none takes longer."""

ROOT = Path(__file__).parents[2]
STAGES = ("ranks", "context", "nccl 1", "nccl 2")


def main() -> int:
    """Run all stages, and print a line for each as it ends."""
    for stage in STAGES:
        ended = scripts.run([sys.executable, "-m", "tests.gpu.stages", *stage.split()], ROOT, LIMIT)
        print(json.dumps({"stage": stage, **told(ended)}), flush=True)
    return 0


def told(ended: scripts.Ended) -> dict[str, Any]:
    """What a stage has said, and what went wrong: all lines that are JSON, and the last of the others."""
    found: dict[str, Any] = {}
    others = []
    for line in ended.output.splitlines():
        try:
            said = json.loads(line)
            found |= said if isinstance(said, dict) else {}
        except ValueError:
            others.append(line)
    if ended.timed_out:
        found["failed"] = f"did not end within {LIMIT:.0f} s"
    elif ended.code:
        found["failed"] = f"ended with {ended.code}"
    if "failed" in found:
        found["last lines"] = others[-15:]
    if ended.left:
        found["left behind"] = ended.left
    return found


def tell(**said: object) -> None:
    """A line of a stage; what it has said stays, if it goes no further."""
    print(json.dumps(said), flush=True)


class Clock:
    """Seconds since the last question."""

    def __init__(self) -> None:
        self._at = time.monotonic()

    def lap(self) -> float:
        """The seconds, rounded; the next ones begin here."""
        before, self._at = self._at, time.monotonic()
        return round(self._at - before, 3)


def ranks() -> None:
    """What tests' ranks are forked from: its start, the question for GPUs included, and why it cannot be forked."""
    from ddpcheck.zygote.client import Launcher

    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # what else is installed is no part of it
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pytest.ini").write_text("[pytest]\n")
        arguments = ["-c", os.path.join(folder, "pytest.ini"), "--rootdir", folder]
        launcher = Launcher({"plugins": ["no:terminal", "no:cacheprovider"]}, arguments, {}, folder, False)
        try:
            machine = launcher.machine()
            zygote = launcher.start()
            assert zygote.ready is not None
            tell(
                zygote_start=clock.lap(),
                forkable=zygote.ready.cannot_fork or True,
                gpus=[(gpu.name, gpu.token) for gpu in machine.gpus],
                nccl=machine.nccl,
                trouble=machine.trouble,
            )
        finally:
            launcher.stop()
    tell(zygote_end=clock.lap())


def context() -> None:
    """The first thing on a GPU."""
    clock = Clock()
    import torch

    tell(import_torch=clock.lap())
    tell(devices=torch.cuda.device_count(), count_devices=clock.lap())
    torch.cuda.init()
    tell(init=clock.lap())
    first = torch.ones(1024, device="cuda:0")
    torch.cuda.synchronize()
    tell(first_context=clock.lap(), free_and_total=torch.cuda.mem_get_info())
    (first + first).sum().item()
    tell(first_kernels=clock.lap())
    (first.reshape(32, 32) @ first.reshape(32, 32)).sum().item()
    tell(first_matrix_product=clock.lap())


def nccl(size: str) -> None:
    """The first call of NCCL among so many ranks, and its end."""
    import torch

    from ddpcheck.gpus.allotment import SHARING_NCCL, sharing_variables, version_text
    from ddpcheck.gpus.gpu_inventory import nccl_version

    there, environment = torch.cuda.device_count(), dict(os.environ)
    if there < int(size):
        if not there or nccl_version() < SHARING_NCCL:
            needed, loaded = version_text(SHARING_NCCL), version_text(nccl_version()) or "none"
            tell(not_measured=f"{size} ranks on {there} GPUs need NCCL {needed}, and there is {loaded}")
            return
        environment |= sharing_variables(int(size), there, os.environ)
    with tempfile.TemporaryDirectory() as folder:
        environment |= {"STAGE_STORE": os.path.join(folder, "store"), "WORLD_SIZE": size}
        command = [sys.executable, "-m", "tests.gpu.stages", "rank"]
        started = [
            subprocess.Popen(command, env=environment | {"RANK": str(rank)}, cwd=ROOT) for rank in range(int(size))
        ]
        codes = [process.wait() for process in started]
    if any(codes):
        tell(failed=f"the ranks ended with {codes}")


def rank() -> None:
    """One rank of NCCL's stages; rank 0 tells."""
    import torch
    import torch.distributed as dist

    number, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", number % torch.cuda.device_count())
    torch.cuda.set_device(device)
    total = torch.ones(1024, device=device)
    torch.cuda.synchronize()
    store, clock = dist.FileStore(os.environ["STAGE_STORE"], size), Clock()

    def note(**said: object) -> None:
        if number == 0:
            tell(**said)

    dist.init_process_group("nccl", store=store, rank=number, world_size=size, device_id=device)
    note(make_group=clock.lap())
    dist.all_reduce(total)
    torch.cuda.synchronize()
    note(first_call=clock.lap(), sum=total[0].item())
    for _ in range(10):
        dist.all_reduce(total)
    torch.cuda.synchronize()
    note(ten_further_calls=clock.lap())
    dist.barrier()
    note(barrier=clock.lap())
    dist.destroy_process_group()
    note(destroy=clock.lap())


if __name__ == "__main__":
    wanted: dict[str, Callable[..., None]] = {"ranks": ranks, "context": context, "nccl": nccl, "rank": rank}
    if len(sys.argv) > 1:
        wanted[sys.argv[1]](*sys.argv[2:])
    else:
        sys.exit(main())
