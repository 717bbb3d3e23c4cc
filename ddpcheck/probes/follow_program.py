"""Watching an unmodified program: every process of it, from the moment that it imports torch."""

from __future__ import annotations

import os
from pathlib import Path

from ddpcheck.probes.recording import signal_exceptions
from ddpcheck.probes.recording.after_import import after_import

FOLDER, LIMIT = "DDPCHECK_EVIDENCE", "DDPCHECK_EVIDENCE_LIMIT"
"""The environment in which a process learns that it is watched: the folder for its evidence, and the most of it."""

COLLECTOR = "DDPCHECK_COLLECTOR"
"""In the environment: the port and the key at which this node's ddpcheck takes evidence of other nodes."""

DEFAULT_LIMIT = 256 * 1024 * 1024


def begin() -> None:
    """Watch this process once it imports torch; one that never does pays nothing."""
    after_import("torch", lambda: _start())  # by its name, as it is then


def _start() -> None:
    """Watch from now on, or not at all: whatever comes in between, the program has imported torch."""
    try:
        from ddpcheck.probes import all_probes

        all_probes.start(Path(os.environ[FOLDER]), int(os.environ.get(LIMIT, DEFAULT_LIMIT)))
    except Exception as error:
        signal_exceptions.let_through(error)
