"""The same work as test cases of torch's own harnesses; imported by the processes that they spawn, too."""

from __future__ import annotations

import os
from collections.abc import Callable

import body
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore
from torch.testing._internal.common_distributed import MultiProcContinuousTest, MultiProcessTestCase


class Spawned(MultiProcessTestCase):
    """New interpreters for every test."""

    @property
    def world_size(self) -> int:
        return int(os.environ["BENCH_RANKS"])

    def setUp(self) -> None:
        super().setUp()
        self._spawn_processes()

    def test_compared(self) -> None:
        store = FileStore(self.file_name, self.world_size)
        dist.init_process_group("gloo", store=store, rank=self.rank, world_size=self.world_size)
        body.step_and_compare()


class Continuous(MultiProcContinuousTest):
    """One group of processes for all tests of the class."""

    world_size = int(os.environ["BENCH_RANKS"])

    @classmethod
    def backend_str(cls) -> str:
        return "gloo"

    @classmethod
    def device_type(cls) -> str:
        return "cpu"


def _test() -> Callable[[Continuous], None]:
    def test(self: Continuous) -> None:
        body.step_and_compare()

    return test


for number in range(int(os.environ["BENCH_TESTS"])):
    setattr(Continuous, f"test_compared_{number:03}", _test())
