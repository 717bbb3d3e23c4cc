"""The folder of evidence, read while it is being written."""

from __future__ import annotations

import math
import os
from pathlib import Path

from ddpcheck.evidence import FORMAT, FULL, HEADER, LIMITED, LOST, Reader
from ddpcheck.judging.world import Process
from ddpcheck.vocabulary import regular_files
from ddpcheck.vocabulary.clock import clock

SUFFIX = ".evidence"

BEYOND = 1 << 26
"""Bytes by which a file of ours may be longer than its limit: some records are written whatever that is."""

_PIECE = 1 << 20
"""Bytes that are read at once."""


class Folder:
    """All processes that have written into a folder so far.

    What cannot be read is left out, and noted at the process: nothing that a
    program does to these files raises here, or is waited for. ``limit`` is
    that of each process.
    """

    def __init__(self, path: Path, limit: float = math.inf) -> None:
        self.path = path
        self._longest = limit + BEYOND
        self.processes: dict[str, Process] = {}
        self._readers: dict[str, Reader] = {}
        self._places: dict[str, int] = {}
        self._signed: dict[str, int] = {}
        """The times of the files, which processes set as a sign of life."""
        self._cut: set[str] = set()
        """Files that were shorter than before at some look."""

    def read(self, most: int = -1) -> bool:
        """Take in what has been written since the last time; whether there was anything.

        Of each file no more than ``most`` bytes, where that is not negative.
        """
        anything = False
        present = {file.name: file for file in sorted(self.path.glob(f"*{SUFFIX}"))}
        for name in self.processes.keys() - present.keys():
            self.processes[name].gap = "its file has been removed"
        for name, file in present.items():
            try:
                anything |= self._read_file(name, file, most)
            except OSError as error:
                self._process(name).gap = f"its file cannot be read ({error.strerror})"
        return anything

    def _process(self, name: str) -> Process:
        return self.processes.setdefault(name, Process(name))

    def _read_file(self, name: str, file: Path, most: int) -> bool:
        start = len(HEADER) + 1
        with regular_files.opened(file) as opened:
            signed = os.fstat(opened.fileno()).st_mtime_ns
            header = opened.read(start)
            size = opened.seek(0, os.SEEK_END)
            if len(header) < start and name not in self._places:
                return False  # it is about to be begun
            process = self._process(name)
            if self._signed.get(name) != signed:
                self._signed[name], process.sign_at = signed, clock.now()
            if header.startswith(FORMAT) and header[:-1] != HEADER:
                process.gap = "another version of ddpcheck has written it"
                return False
            place = self._places.get(name, start)
            if size < place:  # what is written from now on begins here
                self._cut.add(name)
                self._readers.pop(name, None)
                place = size
            if size > self._longest:
                process.gap = "its file is longer than what a process writes down (see --evidence-limit)"
                return False
            opened.seek(place)
            end = size if most < 0 else min(size, place + most)
            reader = self._readers.setdefault(name, Reader())
            for start in range(place, end, _PIECE):
                for record in reader.feed(opened.read(min(_PIECE, end - start))):
                    _note_damage(process, reader)
                    if record.judged:
                        process.add([record])
        self._places[name] = end
        _note_damage(process, reader)
        process.torn = reader.torn
        process.gap = self._gap(name, header)
        return end > place

    def _gap(self, name: str, header: bytes) -> str:
        if name in self._cut:
            return "its file has been cut off"
        return _GAPS.get(header[-1:], "") if header[:-1] == HEADER else "its file has been written over"


def _note_damage(process: Process, reader: Reader) -> None:
    if reader.damaged:
        if not process.damaged:
            process.whole_to = process.records[-1].n if process.records else 0
        process.damaged += reader.damaged
        reader.damaged = 0


_GAPS = {
    LIMITED: "it had come to its limit (see --evidence-limit)",
    FULL: "there was no room for more (is the disk full?)",
    LOST: "its file could not be reached any more",
}
"""Why recording stopped, by the byte that says so."""
