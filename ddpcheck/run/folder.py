"""The folder of evidence, read while it is being written."""

from __future__ import annotations

from pathlib import Path

from ddpcheck.checks.world import Process
from ddpcheck.evidence import FULL, HEADER, Reader

SUFFIX = ".evidence"


class Folder:
    """All processes that have written into a folder so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.processes: dict[str, Process] = {}
        self._readers: dict[str, Reader] = {}
        self._places: dict[str, int] = {}

    def read(self) -> bool:
        """Take in what has been written since the last time; whether there was anything."""
        anything = False
        for file in sorted(self.path.glob(f"*{SUFFIX}")):
            anything |= self._read_file(file)
        return anything

    def _read_file(self, file: Path) -> bool:
        name = file.name
        process = self.processes.setdefault(name, Process(name))
        reader = self._readers.setdefault(name, Reader())
        start = len(HEADER) + 1
        with file.open("rb") as opened:
            status = opened.read(start)[len(HEADER) :]
            opened.seek(self._places.get(name, start))
            data = opened.read()
        process.full = status == FULL
        if not data:
            return False
        self._places[name] = self._places.get(name, start) + len(data)
        process.add(reader.feed(data))
        process.torn = reader.torn
        return True

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(f.stat().st_size for f in self.path.glob(f"*{SUFFIX}"))
