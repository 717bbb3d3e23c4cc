"""A test that destroys its group itself, and then lets its model go, ends as any other."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn


@pytest.mark.ddp(world_size=2, timeout=20.0)
@pytest.mark.parametrize("again", range(12))
def test_the_model_goes_after_the_group(ddp, again):
    """Right after a backward pass, gloo's threads still hold its last all-reduce: one in four such tests would hang."""
    model = ddp.wrap(nn.Linear(4, 4))
    model(torch.randn(3, 4)).sum().backward()
    dist.destroy_process_group()
    del model
    assert not dist.is_initialized()
