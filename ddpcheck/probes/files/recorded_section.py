"""A stretch of a test that is put on record: what this rank does with files, and the collectives that order it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ddpcheck.evidence import HEADER
from ddpcheck.probes import all_probes
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
