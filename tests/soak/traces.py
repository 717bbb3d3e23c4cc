"""What a session may leave on the machine: processes, folders, shared memory.

A session's processes are known by a variable in their environment, wherever
they are and whoever their parent is.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

MARK = "SOAK_RUN"
SHARED_MEMORY = Path("/dev/shm")


def processes(run: str) -> dict[int, str]:
    """The living processes of this run: number and command line."""
    mark = f"{MARK}={run}".encode()
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        # A zombie has no environment any more.
        with contextlib.suppress(OSError):
            if int(folder.name) != os.getpid() and mark in (folder / "environ").read_bytes().split(b"\0"):
                words = (folder / "cmdline").read_bytes().split(b"\0")
                found[int(folder.name)] = b" ".join(words).decode(errors="replace")[:200]
    return found


def gone(run: str, patience: float) -> float | None:
    """Seconds until no process of this run was left; None if some are after ``patience`` seconds."""
    begun = time.monotonic()
    while processes(run):
        if time.monotonic() - begun > patience:
            return None
        time.sleep(0.02)
    return time.monotonic() - begun


def folders(temp: Path) -> list[str]:
    """What ddpcheck has left in the folder that the session had for temporary files."""
    return sorted(p.name for p in temp.iterdir() if p.name.startswith("ddpcheck-"))


def shared_memory() -> set[str]:
    """The names of all shared memory on this machine."""
    return {p.name for p in SHARED_MEMORY.iterdir()} if SHARED_MEMORY.is_dir() else set()


def environment(run: str, temp: Path) -> dict[str, str]:
    """The environment of a session whose traces can be found afterwards."""
    temp.mkdir(parents=True, exist_ok=True)
    return {**os.environ, MARK: run, "TMPDIR": str(temp)}
