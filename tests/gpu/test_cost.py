"""What a small training pays for being watched, in time and in memory.

Needs one GPU; the figures are of one rank, so that ranks which share a GPU do not measure each other.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu import slow_down

MOST = {50: 1.6, 200: 1.1, 1000: 1.05}
"""How many times as long: short runs pay for their first steps, which are looked at whole."""

MARGIN = 96 << 20
"""Bytes for what a look needs beside the model: it goes in portions."""


@pytest.mark.gpu(real="the time that a device takes")
@pytest.mark.parametrize("steps", sorted(MOST))
def test_slow_down(tmp_path: Path, steps: int) -> None:
    """The best of three runs each way, of a net whose step takes about twelve milliseconds."""
    found = slow_down.measure(tmp_path, steps, "nccl", {}, ranks=1, arguments=["--channels-last"])
    assert found.ratio < MOST[steps], found


@pytest.mark.gpu(real="the memory of a GPU")
def test_peak_memory_with_channels_last(tmp_path: Path) -> None:
    """No copy is made of all tensors whose elements do not lie in their order; the optimizer's own would hide it."""
    large = ["--channels-last", "--width", "2304", "--batch", "1", "--one-by-one"]
    found = slow_down.measure(tmp_path, 6, "nccl", {}, ranks=1, runs=1, arguments=large, repeats=1)
    assert found.parameters * 4 > 4 * MARGIN, "the model is too small to show anything"
    assert found.memory_watched - found.memory_alone < MARGIN, found
