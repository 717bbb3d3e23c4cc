"""Which NCCL, cuDNN and CUDA a process has loaded once NCCL was called: versions, and paths as the kernel maps them.

    python -m tests.gpu.loaded_libraries

What torch was built with says little of it: LD_PRELOAD, LD_LIBRARY_PATH and other wheels come before.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

_WANTED = re.compile(r"nccl|cudnn|cuda|cublas|nvidia|nvrtc|nvjitlink|cupti|gloo|c10|torch|libibverbs|libmlx|hip|rocm")


def libraries(maps: str) -> list[str]:
    """The shared libraries of these mappings that computing on GPUs rests on."""
    paths = {line.split(maxsplit=5)[5] for line in maps.splitlines() if len(line.split(maxsplit=5)) == 6}
    return sorted(path for path in paths if ".so" in path and _WANTED.search(path.rpartition("/")[2].lower()))


def _versions() -> str:
    import torch

    from ddpcheck.gpus.allotment import version_text
    from ddpcheck.gpus.gpu_inventory import nccl_version

    asked: dict[str, Callable[[], object]] = {
        "torch": lambda: torch.__version__,
        "CUDA that it was built with": lambda: torch.version.cuda,
        "HIP that it was built with": lambda: torch.version.hip,
        "NCCL that is loaded": lambda: version_text(nccl_version()) or "none",
        "NCCL that torch names": lambda: torch.cuda.nccl.version(),
        "cuDNN": torch.backends.cudnn.version,
        "architectures": torch.cuda.get_arch_list,
        "compiler": lambda: torch.__config__.show().splitlines()[1].strip(),
    }
    return "\n".join(f"{name}: {_answer(ask)}" for name, ask in asked.items())


def _answer(ask: Callable[[], object]) -> object:
    try:
        return ask()
    except Exception as error:
        return f"unknown ({type(error).__name__}: {error})"


def _call() -> str:
    import torch
    import torch.distributed as dist

    with tempfile.TemporaryDirectory() as folder:
        store = dist.FileStore(os.path.join(folder, "store"), 1)
        device = torch.device("cuda", 0)
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", store=store, rank=0, world_size=1, device_id=device)
        total = torch.ones(1, device=device)
        dist.all_reduce(total)
        torch.cuda.synchronize()
        dist.destroy_process_group()
    return f"an all_reduce of one rank: {total.item()}"


def _devices() -> str:
    import torch

    found = []
    for index in range(torch.cuda.device_count()):
        known = torch.cuda.get_device_properties(index)
        found.append(f"cuda:{index} {known}")
    return "\n".join(found) or "no device"


def main() -> int:
    """Print each on its own; the mappings last, when everything is loaded that could be."""
    failed = False
    told: tuple[tuple[str, Callable[[], str]], ...] = (
        ("versions", _versions),
        ("devices", _devices),
        ("a call of NCCL", _call),
        ("loaded", lambda: "\n".join(libraries(Path("/proc/self/maps").read_text()))),
    )
    for title, ask in told:
        print(f"--- {title}", flush=True)
        try:
            print(ask(), flush=True)
        except Exception as error:
            failed = True
            print(f"{type(error).__name__}: {error}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
