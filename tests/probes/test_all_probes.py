"""What a process says of itself when it begins to record."""

from __future__ import annotations

import os

import pytest
import torch

from ddpcheck.probes import all_probes


@pytest.mark.parametrize(
    ("built", "driver", "visible", "expected"),
    [
        ("13.0", True, None, True),
        ("13.0", True, "0,1", True),
        ("13.0", True, "", False),
        ("13.0", False, None, False),
        (None, True, None, False),
    ],
    ids=["all there", "some are visible", "none is visible", "no driver", "built for the CPU"],
)
def test_whether_there_may_be_gpus(monkeypatch, built, driver, visible, expected):
    """By the build of torch, the driver's files and the environment; no driver is asked."""
    monkeypatch.setattr(torch.version, "cuda", built)
    for other in ("hip", "xpu"):
        monkeypatch.setattr(torch.version, other, None, raising=False)
    monkeypatch.setattr(os.path, "exists", lambda path: driver)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert all_probes._has_gpus() is expected
