"""Default process groups that a test makes itself, in the place of the one that it was given.

No port is fixed: rank 0 opens a store at one that is free, and tells the others
of it by a file.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch.distributed as dist

_kept: list[object] = []
"""A group outlives its test here: torch may wait for ever where a model is the last to let go of one."""


@contextlib.contextmanager
def group_of_its_own(backend: str | None = "gloo", timeout: float = 30.0, **how: Any) -> Iterator[None]:
    """Be in a new default group, made ``how`` init_process_group is told, and destroyed at the end.

    ``timeout`` is in seconds.
    """
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout), **how)
    _kept.append(dist.group.WORLD)
    try:
        yield
    finally:
        dist.destroy_process_group()


def group_by_file(ddp: Any, backend: str | None = "gloo", timeout: float = 30.0, name: str = "store") -> Any:
    """One in which the test's ranks have met by a file of this name in the folder that they share."""
    path = f"file://{ddp.tmp_path}/{name}"
    return group_of_its_own(backend, timeout, init_method=path, rank=ddp.rank, world_size=ddp.world_size)


def open_store(ddp: Any) -> dist.TCPStore:
    """The store of all ranks of the test, at rank 0's port; it stays open to the test's end."""
    told = ddp.tmp_path / "port"
    if ddp.rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, ddp.world_size, True, wait_for_workers=False)
        unfinished = told.with_suffix(".new")
        unfinished.write_text(str(store.port))
        unfinished.replace(told)
    else:
        while not told.exists():
            time.sleep(0.01)
        store = dist.TCPStore("127.0.0.1", int(told.read_text()), ddp.world_size, False)
    _kept.append(store)
    return store


def set_environment(monkeypatch: pytest.MonkeyPatch, store: dist.TCPStore, rank: int, world_size: int) -> None:
    """Set the four variables of env://, for ranks that are to meet at this store.

    The two further ones are torchrun's, which keeps the store of its ranks as
    well: with them rank 0 does not open one at MASTER_PORT.
    """
    given = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": store.port, "RANK": rank, "WORLD_SIZE": world_size}
    for name, value in {**given, "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": 0}.items():
        monkeypatch.setenv(name, str(value))
