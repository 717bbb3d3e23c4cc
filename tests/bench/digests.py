"""How fast a tensor is digested on one core, beside SHA-1 over the same bytes."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence

from figures import Row
from inner import MeasurementFailed

SIZE = 256 * 10**6
TURNS = 5
ENOUGH = 8.0


def measure() -> list[Row]:
    """Both in turns; the fastest turn of each counts, since nothing but the machine slows one down."""
    import torch

    from ddpcheck.probes.digests.exact_digests import digest, tensor_bytes

    torch.set_num_threads(1)
    tensor = torch.rand(SIZE // 4)
    changed = tensor.clone()
    changed[-1] += 1
    if digest(tensor) == digest(changed):
        raise MeasurementFailed("two different tensors have the same digest")
    mine, peers = [], []
    for _ in range(TURNS):
        mine.append(_seconds(lambda: digest(tensor)))
        peers.append(_seconds(lambda: hashlib.sha1(tensor_bytes(tensor)).digest()))
    ratio = min(peers) / min(mine)
    what = f"digest of {SIZE / 1e6:.0f} MB of float32, against SHA-1"
    return [Row(what, _speed(mine), _speed(peers), f"{ratio:.1f} times", f"{ENOUGH:g} times", ratio >= ENOUGH)]


def _speed(times: Sequence[float]) -> str:
    return f"{SIZE / min(times) / 1e9:.1f} GB/s"


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun
