"""The file that records are written to: a header, then frames.

Four bytes of length (little-endian), and one record as msgpack. A process
that is killed leaves at most one torn frame, the last; everything before it
counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ddpcheck.evidence.data import Batch, Inputs, Loader, Pass, PassEnded, Stream
from ddpcheck.evidence.files import File, StateLoaded
from ddpcheck.evidence.groups import Call, Joined, Joining, JudgedBy, Left, Stored
from ddpcheck.evidence.optimizers import Optimizer, Scheduled, Step
from ddpcheck.evidence.processes import (
    Began,
    ChildEnded,
    Defect,
    Ended,
    Lingering,
    Missing,
    Pulse,
    Raised,
    Site,
    Started,
)
from ddpcheck.evidence.record import Record
from ddpcheck.evidence.wrappers import Attributes, Evaluated, Moved, Placed, Replaced, Synced, Wrapped

HEADER = b"ddpcheck-evidence-1"
"""What a file begins with; one byte more says how recording goes."""
GOING, FULL, OVER = b".", b"F", b"O"
"""It goes on; the disk was full (or another error of writing ended it); it ended as it should."""

RECORDS = (
    Began | Defect | Missing | Site | Raised | Pulse | Ended | Started | Lingering | ChildEnded | Joined | JudgedBy
    | Joining | Left | Stored | Call | Wrapped | Placed | Moved | Attributes | Replaced | Synced | Evaluated | Optimizer
    | Step | Scheduled | Loader | Pass | Batch | PassEnded | Inputs | Stream | File | StateLoaded
)  # fmt: skip

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(RECORDS)


def frame(record: Record) -> bytes:
    """A record as it is written."""
    body = _encoder.encode(record)
    return len(body).to_bytes(4, "little") + body


class Reader:
    """The records of one file, as far as it has been written; ask again for more."""

    def __init__(self) -> None:
        self._rest = b""
        self.status = GOING

    def feed(self, data: bytes) -> Iterator[Any]:
        """Yield the records that are complete with this further piece of the file (the header taken off)."""
        data = self._rest + data
        start = 0
        while len(data) - start >= 4:
            end = start + 4 + int.from_bytes(data[start : start + 4], "little")
            if end > len(data):
                break
            yield _decoder.decode(data[start + 4 : end])
            start = end
        self._rest = data[start:]

    @property
    def torn(self) -> bool:
        """The file ends in the middle of a record."""
        return bool(self._rest)
