"""How many processes the kernel has ended for want of memory, by its own count."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def counted(root: Path = Path("/")) -> int | None:
    """The count of this process's control group, else of the machine; None where there is none to be read."""
    for path in _files(root):
        try:
            words = dict(line.split()[:2] for line in path.read_text().splitlines() if len(line.split()) > 1)
            if "oom_kill" in words:
                return int(words["oom_kill"])
        except (OSError, ValueError):
            continue
    return None


def _files(root: Path) -> Iterator[Path]:
    top = root / "sys/fs/cgroup"
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    for _, controllers, place in (line.split(":", 2) for line in lines if line.count(":") > 1):
        # A container sees its own group at the top, whatever the kernel calls it.
        if not controllers:
            yield from (top / place.lstrip("/") / "memory.events", top / "memory.events")
        elif "memory" in controllers.split(","):
            memory = top / "memory"
            yield from (memory / place.lstrip("/") / "memory.oom_control", memory / "memory.oom_control")
    yield root / "proc/vmstat"
