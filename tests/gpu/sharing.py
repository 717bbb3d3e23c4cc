"""How several ranks share the GPUs that a test of this process has."""

from __future__ import annotations

import os

import pytest
import torch

from ddpcheck.gpus.allotment import SHARING_NCCL, sharing_variables, version_text
from ddpcheck.gpus.gpu_inventory import nccl_version


class Unshared(Exception):
    """This NCCL cannot have so many ranks on these GPUs; says which could."""


def backend_for(ranks: int, simulated: bool) -> str:
    """NCCL where it can have so many ranks here, and gloo elsewhere."""
    if simulated:
        return "gloo"
    return "nccl" if torch.cuda.device_count() >= ranks or nccl_version() >= SHARING_NCCL else "gloo"


def needed(backend: str, ranks: int) -> dict[str, str]:
    """What a script's ranks need in their environment; raises Unshared where this NCCL cannot do it."""
    if backend == "gloo" or torch.cuda.device_count() >= ranks:
        return {}
    version = nccl_version()
    if version < SHARING_NCCL:
        first, loaded = version_text(SHARING_NCCL), version_text(version) or "of no known version"
        raise Unshared(f"{ranks} ranks on one GPU need NCCL {first} or newer, and NCCL {loaded} is loaded")
    return sharing_variables(ranks, torch.cuda.device_count(), os.environ)


def environment_for(backend: str, ranks: int) -> dict[str, str]:
    """The same for a test, which is skipped where this NCCL cannot do it."""
    try:
        return needed(backend, ranks)
    except Unshared as error:
        pytest.skip(str(error))
