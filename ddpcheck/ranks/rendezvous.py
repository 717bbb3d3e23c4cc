"""The store over which the ranks of a test find each other: a file that is looked at often.

torch's FileStore needs no port, and nobody outside the folder can reach it; but
it looks for a missing key every 10 ms only, which is longer than ranks on one
machine need for all else when they join.
"""

from __future__ import annotations

from datetime import timedelta
from time import sleep  # by name: a test may replace that of the module
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import Store

from ddpcheck.vocabulary.clock import clock

FIRST_LOOK = 0.0001
"""Seconds for each rank of the world before the second look at a file that lacks a key: looks take a core's time,
and with many ranks the key of one is not all that is awaited. Each further pause is longer by half."""

LAST_LOOK = 0.01

_kept_alive: list[Store] = []
"""torch's groups hold the C++ half of a store alone, and would find it without its methods."""


class PromptFileStore(Store):
    """torch's FileStore over ``path``, for ``world_size`` ranks, without its pauses.

    Waiting for a key raises torch's DistStoreError after the store's timeout.
    """

    def __init__(self, path: str, world_size: int) -> None:
        super().__init__()
        self._file: Any = dist.FileStore(path, world_size)  # type: ignore[attr-defined]
        _kept_alive.append(self)
        self._first_pause = min(FIRST_LOOK * world_size, LAST_LOOK)

    # C++ finds these by the names of its own methods, so that two are in its style.

    def set(self, key: str, value: bytes) -> None:  # type: ignore[override]  # as C++ calls it
        self._file.set(key, value)

    def get(self, key: str) -> bytes:
        self.wait([key])
        found: bytes = self._file.get(key)
        return found

    def add(self, key: str, amount: int) -> int:
        total: int = self._file.add(key, amount)
        return total

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:  # type: ignore[override]
        now: bytes = self._file.compare_set(key, expected, desired)
        return now

    def check(self, keys: list[str]) -> bool:
        return bool(self._file.check(keys))

    def getNumKeys(self) -> int:
        return int(self._file.num_keys())

    def deleteKey(self, key: str) -> bool:
        return bool(self._file.delete_key(key))

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        own: Any = self
        patience = own.timeout if timeout is None else timeout
        end = clock.now() + patience.total_seconds()
        pause = self._first_pause
        while not self._file.check(keys):
            if clock.now() > end:
                raise dist.DistStoreError(f"no rank has set {', '.join(keys)} within {patience}")
            sleep(pause)
            pause = min(pause * 1.5, LAST_LOOK)
