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
from itertools import chain
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
_LONGEST_BEGINNING = _HEAD + 4 + max(len(kind.__name__) for kind in kinds())
_MOST_OPEN = 1000
"""Frames that are not complete and have others behind them, at the most: all but one of them are none."""


def frame(record: Record) -> bytes:
    """A record as it is written; characters that UTF-8 does not have are written as escapes."""
    try:
        body = _encoder.encode(record)
    except UnicodeEncodeError:
        body = _encoder.encode(_escaped(msgspec.to_builtins(record, builtin_types=(bytes,))))
    length = len(body).to_bytes(4, "little")
    return length + _checksum(length, body) + body


def _checksum(length: bytes | bytearray, body: bytes | bytearray) -> bytes:
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
    """The records of one file, as far as it has been written; ask again for more.

    Each byte costs the same, whatever it is: it is searched once, and claims that come to nothing are bounded.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        self._open = [0]
        """Places in it where a frame may begin that is not there to its end; the first is behind the last record."""
        self._searched = 1
        """Up to here it was searched for further ones."""
        self._passed = 0
        """Bytes before it that are no record, of which is told when one follows."""
        self._patience = 4 * _LONGEST
        """Bytes that may be summed up for nothing."""
        self.damaged = 0
        """Bytes that were no record and have been passed over."""

    def feed(self, data: bytes) -> Iterator[Any]:
        """Yield the records that are complete with this further piece of the file (the header taken off)."""
        self._rest += data
        self._patience += len(data)
        while self._rest and (found := self._next_whole()) is not None:
            start, end = found
            self.damaged += self._passed + start
            try:
                record = _decoder.decode(self._rest[start + _HEAD : end])
            except Exception:  # a record that this version does not know, or that none of our ranks has written
                self.damaged += end - start
                record = None
            del self._rest[:end]
            self._open, self._searched, self._passed = [0], 1, 0
            if record is not None:
                yield record

    def _next_whole(self) -> tuple[int, int] | None:
        """The place of the first frame that is complete; lets go of what is none, and where there is none of that."""
        still = []
        for start in chain(self._open, self._beginnings()):
            length = int.from_bytes(self._rest[start : start + 4], "little") + _HEAD
            if start + length > len(self._rest):
                if length <= _LONGEST:
                    still.append(start)
            elif length <= self._patience:
                body = self._rest[start + _HEAD : start + length]
                if _checksum(self._rest[start : start + 4], body) == self._rest[start + 4 : start + _HEAD]:
                    return start, start + length
                self._patience -= length
        still = still[:1] + still[1:][-_MOST_OPEN:]
        gone = still[0] if still else self._searched
        del self._rest[:gone]
        self._passed += gone
        self._open = [start - gone for start in still]
        self._searched -= gone
        return None

    def _beginnings(self) -> Iterator[int]:
        """Where frames may begin in what was not searched yet."""
        while (found := _BEGINNING.search(self._rest, self._searched)) is not None:
            self._searched = found.start() + 1
            yield found.start()
        self._searched = max(self._searched, len(self._rest) - _LONGEST_BEGINNING)

    @property
    def torn(self) -> bool:
        """The file ends in the middle of a record."""
        return bool(self._rest or self._passed)
