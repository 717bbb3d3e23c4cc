"""The file that records are written to: a header, then frames.

Four bytes of length (little-endian), four of a checksum, and one record as
msgpack. A process that is killed leaves at most one torn frame, the last;
everything before it counts. What else has been written over, between or
behind the frames is passed over: reading never raises.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from functools import reduce
from operator import or_
from typing import Any

import msgspec

from ddpcheck.evidence.record import Record, kinds

FORMAT = b"ddpcheck-evidence-"
HEADER = FORMAT + b"%08x" % zlib.crc32(
    repr([(kind.__name__, [*kind.__struct_fields__], kind.__annotations__) for kind in kinds()]).encode()
)
"""What a file begins with: the records and their fields have a number, by which another version is known. One byte
more says how recording goes."""
GOING, LIMITED, FULL, LOST, OVER = b".", b"M", b"F", b"L", b"O"
"""It goes on; with some records left out, for its limit was reached; there was no room for more; the file could not be
reached any more; it ended as it should."""

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(reduce(or_, kinds()))

_HEAD = 8
"""Bytes of length and checksum."""
_LONGEST = 1 << 26
"""Bytes of a frame; what claims to be longer is none."""

_BEGINNING = re.compile(
    rb"(?s).{%d}(?:[\x90-\x9f]|\xdc..)[\xa0-\xbf](?:%s)"
    % (_HEAD, b"|".join(sorted(kind.__name__.encode() for kind in kinds())))
)
"""Where a frame may begin: its head, an array, and the name of a record."""


def frame(record: Record) -> bytes:
    """A record as it is written; characters that UTF-8 does not have are written as escapes."""
    try:
        body = _encoder.encode(record)
    except UnicodeEncodeError:
        body = _encoder.encode(_escaped(msgspec.to_builtins(record, builtin_types=(bytes,))))
    length = len(body).to_bytes(4, "little")
    return length + _checksum(length, body) + body


def _checksum(length: bytes, body: bytes) -> bytes:
    return zlib.crc32(body, zlib.crc32(length)).to_bytes(4, "little")


def _escaped(value: Any) -> Any:
    """Plain data, with the surrogates in its texts (names of files and messages have them) as escapes."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, (list, tuple)):
        return [_escaped(one) for one in value]
    if isinstance(value, dict):
        return {_escaped(key): _escaped(one) for key, one in value.items()}
    return value


class Reader:
    """The records of one file, as far as it has been written; ask again for more."""

    def __init__(self) -> None:
        self._rest = b""
        self.damaged = 0
        """Bytes that were no record and have been passed over."""

    def feed(self, data: bytes) -> Iterator[Any]:
        """Yield the records that are complete with this further piece of the file (the header taken off)."""
        data = self._rest + data
        start = 0
        while start < len(data):
            end = _whole(data, start)
            if end is None:
                # It may not have been written to its end yet; unless what follows it has been.
                begins = _next_whole(data, start + 1)
                if begins is None:
                    break
                self.damaged += begins - start
                start = begins
                continue
            try:
                record = _decoder.decode(data[start + _HEAD : end])
            except Exception:  # a record that this version does not know
                self.damaged += end - start
            else:
                yield record
            start = end
        self._rest = data[start:]

    @property
    def torn(self) -> bool:
        """The file ends in the middle of a record."""
        return bool(self._rest)


def _whole(data: bytes, start: int) -> int | None:
    """The end of the frame that begins here; None where none does that is complete."""
    length = data[start : start + 4]
    end = start + _HEAD + int.from_bytes(length, "little")
    if end > len(data) or end - start > _LONGEST:
        return None
    body = data[start + _HEAD : end]
    return end if _checksum(length, body) == data[start + 4 : start + _HEAD] else None


def _next_whole(data: bytes, start: int) -> int | None:
    """Where the next frame begins that is complete."""
    while (found := _BEGINNING.search(data, start)) is not None:
        if _whole(data, found.start()) is not None:
            return found.start()
        start = found.start() + 1
    return None
