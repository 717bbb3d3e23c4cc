"""How several ranks share the GPUs that a test of this process has."""

from __future__ import annotations

import pytest
import torch

from ddpcheck.gpus.allotment import SHARING_NCCL, SHARING_VARIABLE, version_text
from ddpcheck.gpus.gpu_inventory import nccl_version


def backend_for(ranks: int, simulated: bool) -> str:
    """NCCL where it can have so many ranks here, and gloo elsewhere."""
    if simulated:
        return "gloo"
    return "nccl" if torch.cuda.device_count() >= ranks or nccl_version() >= SHARING_NCCL else "gloo"


def environment_for(backend: str, ranks: int) -> dict[str, str]:
    """What a script's ranks need in their environment; skips where this NCCL cannot do it."""
    if backend == "gloo" or torch.cuda.device_count() >= ranks:
        return {}
    version = nccl_version()
    if version < SHARING_NCCL:
        needed, loaded = version_text(SHARING_NCCL), version_text(version)
        pytest.skip(f"{ranks} ranks on one GPU need NCCL {needed} or newer, and NCCL {loaded} is loaded")
    return {SHARING_VARIABLE: "1"}
