"""A stretch of a test that is put on record: what this rank does with files, and the collectives that order it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch.distributed as dist

from ddpcheck.evidence import HEADER
from ddpcheck.probes import all_probes
from ddpcheck.probes.collectives import one_call
from ddpcheck.probes.recording import patching, recorder, user_lines
from ddpcheck.vocabulary.clock import clock

PROBES = ("collectives.process_groups", "collectives.every_call", "collectives.stores", "files.file_operations")
_PATIENCE = 10.0
"""Seconds for threads that were started in a section, all together."""
_LIMIT = 64 << 20
"""Bytes of evidence: of a save and a load there are a few thousand."""


class Section:
    """Records from ``begin`` to ``end``; in between, only what is done within ``heard``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "section"
        self._before: recorder.Recorder | None = None
        self._lines = user_lines.numbering()

    def begin(self) -> None:
        """Begin to record; the probes stay in place afterwards, and do nothing."""
        all_probes.patch(PROBES)
        _watch_groups()
        patching.rebind(user_lines.is_users_file)
        self._folder.mkdir(exist_ok=True)
        self._before, self._lines = recorder.always(), user_lines.numbering()
        all_probes.open_file(self._folder, _LIMIT)
        all_probes.note_group("section")
        # Of all threads: callbacks of collectives run in torch's own.
        recorder.mute(True)

    @contextmanager
    def heard(self) -> Iterator[None]:
        """What is done in here is on record, and what threads do that were started here, to their end.

        That we wait for them is not on record: what they have written is known, and that nobody waited for it.
        """
        before = set(threading.enumerate())
        recorder.mute(False)
        try:
            yield
        finally:
            deadline = clock.now() + _PATIENCE
            with recorder.silence():
                for thread in set(threading.enumerate()) - before:
                    thread.join(max(0.0, deadline - clock.now()))
            recorder.mute(True)

    def so_far(self) -> bytes:
        """The records up to now, as they were written."""
        writer = recorder.always()
        if writer is None:  # in a copy of the rank nothing is recorded
            return b""
        return writer.path.read_bytes()[len(HEADER) + 1 :]

    def end(self) -> None:
        """Record no more."""
        recorder.stop()
        recorder.mute(False)
        recorder.use(self._before)
        user_lines.number_by(self._lines)


# --- a group's own methods


@cache
def _watch_groups() -> None:
    """Record every call of a group's own methods."""
    for name, op in _OF_GROUPS.items():
        patching.around(dist.ProcessGroup, name, partial(_around_method, op=op))


_OF_GROUPS = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce_coalesced",
    "allgather": "all_gather",
    "_allgather_base": "all_gather_into_tensor",
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all_single",
    "barrier": "barrier",
    "broadcast": "broadcast",
    "scatter": "scatter",
    "reduce": "reduce",
    "gather": "gather",
}
"""A group's own methods: what the functions of torch.distributed call, and whoever holds one of these from before."""


def _around_method(original: Any, op: str) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if one_call.unwatched():
            return original(self, *args, **kwargs)
        options = next((one for one in (*args, *kwargs.values()) if hasattr(one, "rootRank")), None)
        root = next((one for one in args if isinstance(one, int)), getattr(options, "rootRank", None))
        peer = dist.get_global_rank(self, root) if root is not None else None
        with one_call.call(op, self, peer=peer, waits=False) as this:
            work = original(self, *args, **kwargs)
            if this.made is not None:
                one_call.remember(work, this.made)
            return work

    return method
