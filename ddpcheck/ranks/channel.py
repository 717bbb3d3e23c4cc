"""Connections between the processes that ddpcheck started: messages in frames on a socket.

A frame is four bytes of length and a msgpack body. multiprocessing.connection
reads whole messages only: a rank that is stopped in the midst of sending one
would stop whoever watches all ranks.
"""

from __future__ import annotations

import contextlib
import struct
from socket import SHUT_WR, socket  # by name, as below: a test may replace what others find there

from ddpcheck.ranks import messages
from ddpcheck.ranks.descriptors import identity, out_of_reach
from ddpcheck.ranks.plain_data import encode

_LENGTH = struct.Struct("<I")
_READ_SIZE = 1 << 16


class Closed(ConnectionError):
    """The other end is gone."""


class Taken(Closed):
    """The descriptor of this end is closed, or another file's: somebody else in this process has closed it."""


_send, _receive = socket.sendall, socket.recv


class Channel:
    """One end of a connection between two processes that ddpcheck started."""

    def __init__(self, sock: socket) -> None:
        self.sock = sock
        self._descriptor = sock.fileno()
        self._identity = identity(self._descriptor)
        self._received = bytearray()
        self._messages: list[messages.AnyMessage] = []

    def fileno(self) -> int:
        return self.sock.fileno()

    def close(self) -> None:
        if self._is_ours():
            self.sock.close()
        else:
            self.sock.detach()

    def hang_up(self) -> None:
        """Send nothing more; the other end sees that."""
        if self._is_ours():
            with contextlib.suppress(OSError):
                self.sock.shutdown(SHUT_WR)

    def moved_out_of_reach(self) -> Channel:
        """The same connection, where no test that closes or redirects low descriptors meets it; instead of this."""
        return Channel(socket(fileno=out_of_reach(self.sock.detach())))

    def send(self, message: messages.Message) -> None:
        """Send one message; raises Closed where nobody listens any more, and Taken where this end is not ours now."""
        body = encode(message)
        self._make_sure()
        try:
            _send(self.sock, _LENGTH.pack(len(body)) + body)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed from error

    def _is_ours(self) -> bool:
        return self._identity is not None and identity(self._descriptor) == self._identity

    def _make_sure(self) -> None:
        """What is sent must not land in a file of the test that has this descriptor's number."""
        if not self._is_ours():
            raise Taken(f"descriptor {self._descriptor}, over which this rank reports, was closed by the test")

    def receive(self) -> messages.AnyMessage:
        """Wait for the next message; raises Closed at the end of the stream."""
        while not self._messages:
            self.read()
        return self._messages.pop(0)

    def next(self) -> messages.AnyMessage | None:
        """The next of the messages that have been read, if there is one."""
        return self._messages.pop(0) if self._messages else None

    def receive_ready(self) -> list[messages.AnyMessage]:
        """Read once from a readable connection: the messages that are complete now."""
        self.read()
        ready, self._messages = self._messages, []
        return ready

    def read(self) -> None:
        """Read once; raises Closed at the end of the stream."""
        self._make_sure()
        try:
            data = _receive(self.sock, _READ_SIZE)
        except ConnectionResetError as error:
            raise Closed from error
        if not data:
            raise Closed
        self._received += data
        while len(self._received) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._received)
            end = _LENGTH.size + size
            if len(self._received) < end:
                return
            body = bytes(self._received[_LENGTH.size : end])
            del self._received[:end]
            self._messages.append(messages.decode(body))
