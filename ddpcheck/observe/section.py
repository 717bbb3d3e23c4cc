"""A stretch of a test that is put on record: what this rank does with files, and the collectives that order it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch.distributed as dist

from ddpcheck.evidence import HEADER, Joined
from ddpcheck.observe import patching, recorder, sites, watching

PROBES = ("membership", "collectives", "stores", "files")
_PATIENCE = 10.0
"""Seconds for threads that were started in a section, all together."""
_LIMIT = 64 << 20
"""Bytes of evidence: of a save and a load there are a few thousand."""


class Section:
    """Records from ``begin`` to ``end``; in between, only what is done within ``heard``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "section"
        self._silence = recorder.silence()

    def begin(self) -> None:
        """Begin to record; the probes stay in place afterwards, and do nothing."""
        watching.patch(PROBES)
        patching.rebind(sites.is_users_file)
        self._folder.mkdir(exist_ok=True)
        watching.open_file(self._folder, _LIMIT)
        writer = recorder.always()
        assert writer is not None
        writer.write(
            Joined(
                **writer.next(),
                rank=dist.get_rank(),
                world_size=dist.get_world_size(),
                token="section",
                backend=dist.get_backend(),
                local_rank=int(os.environ["LOCAL_RANK"]),
                site=0,
            )
        )
        self._silence.__enter__()

    @contextmanager
    def heard(self) -> Iterator[None]:
        """What is done in here is on record, and what threads do that were started here, to their end.

        That we wait for them is not on record: what they have written is known, and that nobody waited for it.
        """
        self._silence.__exit__(None, None, None)
        before = set(threading.enumerate())
        try:
            yield
        finally:
            self._silence = recorder.silence()
            self._silence.__enter__()
            deadline = time.monotonic() + _PATIENCE
            for thread in set(threading.enumerate()) - before:
                thread.join(max(0.0, deadline - time.monotonic()))

    def so_far(self) -> bytes:
        """The records up to now, as they were written."""
        writer = recorder.always()
        if writer is None:  # in a copy of the rank nothing is recorded
            return b""
        return writer.path.read_bytes()[len(HEADER) + 1 :]

    def end(self) -> None:
        """Record no more."""
        self._silence.__exit__(None, None, None)
        recorder.stop()
