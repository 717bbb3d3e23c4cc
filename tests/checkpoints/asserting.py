"""What tests of single assertions share: a checkpoint, a load of it, and the finding of a violation."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import ddpcheck
from ddpcheck.vocabulary.model import Finding


def violated(assertion: Callable[..., None], *args: Any) -> Finding:
    """The one finding, which names a line of these tests."""
    with pytest.raises(ddpcheck.Violation) as caught:
        assertion(*args)
    (finding,) = caught.value.findings
    assert finding.severity == "error"
    assert finding.where is not None
    assert os.path.dirname(os.path.abspath(finding.where.file)) == os.path.dirname(__file__)
    return finding


def saved(ddp: Any, model: nn.Module) -> Path:
    """A checkpoint of this model, written by rank 0 and there for all."""
    path = ddp.tmp_path / "model.pt"
    if ddp.rank == 0:
        torch.save(model.module.state_dict(), path)
    dist.barrier()
    return path


def loading(path: Path, model: nn.Module, **options: Any) -> Callable[[], object]:
    return lambda: model.module.load_state_dict(torch.load(path, map_location="cpu", weights_only=True), **options)
