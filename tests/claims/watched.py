"""Scripts of a few lines, and what their judges say of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

HEAD = """
import os, signal, sys, time
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

rank = int(os.environ["RANK"])


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()

"""
"""What each script begins with."""


@dataclass
class Seen:
    """What was seen of a script's run."""

    path: Path
    said: dict[str, Any]
    """As ``tests/corpus/forked.py`` tells it."""

    @property
    def findings(self) -> list[dict[str, Any]]:
        assert self.said["defects"] == []
        return list(self.said["findings"])

    @property
    def errors(self) -> list[str]:
        """The checks of the errors, in their order."""
        return [f["check"] for f in self.findings if f["severity"] == "error"]

    @property
    def ended_well(self) -> bool:
        return self.said["exits"] == {"0": 0, "1": 0}

    def line(self, finding: dict[str, Any]) -> str:
        """The line of the script that a finding points at."""
        assert finding["where"] is not None
        assert Path(finding["where"]["file"]).name == self.path.name
        return self.path.read_text().splitlines()[finding["where"]["line"] - 1].strip()
