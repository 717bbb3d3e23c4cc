"""torchrun's numbers of nodes and ranks: whether it can make something of them, before it starts anything."""

from __future__ import annotations

import argparse
import ctypes
from pathlib import Path

from ddpcheck.run.command_parser import WrongUsage


def least_and_most(nodes: str) -> tuple[int, int]:
    """What --nnodes says, as torchrun reads it; raises ValueError."""
    numbers = [int(one) for one in nodes.split(":")]
    if len(numbers) > 2:
        raise ValueError(nodes)
    return numbers[0], numbers[-1]


def see_numbers(torchruns: argparse.Namespace) -> None:
    """See that torchrun can make something of the numbers of nodes and ranks, before it starts anything."""
    try:
        least, most = least_and_most(str(torchruns.nnodes))
    except ValueError:
        least, most = 0, 0
    if not 1 <= least <= most:
        raise WrongUsage(
            f"--nnodes {torchruns.nnodes} is neither a number of nodes nor MIN:MAX, with MAX not below MIN"
        )
    try:
        ranks = _ranks(str(torchruns.nproc_per_node))
    except ValueError as error:
        why = str(error).rstrip(".")
        raise WrongUsage(f"--nproc-per-node {torchruns.nproc_per_node} does not work here: {why}") from None
    if ranks < 1:
        raise WrongUsage(f"--nproc-per-node {torchruns.nproc_per_node} starts no rank; give 1 or more")


def _ranks(text: str) -> int:
    """How many ranks torchrun starts; raises ValueError. torch is asked only where it alone knows."""
    try:
        return int(text)
    except ValueError:
        pass
    if text == "gpu" and not _may_have_cuda():
        raise ValueError("Cuda is not available")
    if text not in ("auto", "cpu", "gpu", "xpu") and not _has_further_backends():
        raise ValueError(f"Unsupported nproc_per_node value: {text}")
    from torch.distributed.run import determine_local_world_size

    return int(determine_local_world_size(text))


def _may_have_cuda() -> bool:
    """False where it is certain that torch finds no GPU: it could not load the driver."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return Path("/dev/kfd").exists()
    return True


def _has_further_backends() -> bool:
    """Whether torch may know a kind of device by a name of another package's."""
    from importlib import metadata

    return bool(metadata.entry_points(group="torch.backends"))
