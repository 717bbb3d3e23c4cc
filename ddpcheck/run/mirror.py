"""Evidence of many nodes in one place: each node sends what its ranks write down to the node of rank 0.

Rank 0 tells the others where, by way of the store at which the ranks have met
anyway. Who does not know the key is not listened to.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from multiprocessing.connection import Client, Listener
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ddpcheck.evidence import GOING, HEADER
from ddpcheck.run.folder import SUFFIX
from ddpcheck.verdict import Verdict

PIECE = 1 << 20
"""Bytes of one message, at most."""


class Piece(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A part of a file of evidence."""

    name: str
    start: int
    data: bytes


class Done(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A node's ranks have ended, and all of their evidence has been sent."""


class Stop(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """End your ranks."""

    why: str


class Concluded(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What the judging node has come to."""

    verdict: bytes
    """As JSON."""


_decoder = msgspec.msgpack.Decoder(Piece | Done | Stop | Concluded)
_encode = msgspec.msgpack.Encoder().encode


class Bound(NamedTuple):
    """A listening socket, and its port and key for the environment of this node's ranks."""

    listener: Listener
    address: str


class Collector:
    """Takes the evidence of other nodes into this node's folder."""

    def __init__(self, folder: Path, bound: Bound) -> None:
        self._folder = folder
        self._listener, self.address = bound
        self.connections: list[Any] = []
        self.done: set[int] = set()
        threading.Thread(target=self._accept, name="ddpcheck-collector", daemon=True).start()

    @staticmethod
    def bound() -> Bound:
        """A socket to listen on; no thread runs yet, so that the process may still fork."""
        key = secrets.token_hex(16)
        listener = Listener(("", 0), backlog=64, authkey=key.encode())
        return Bound(listener, f"{listener.address[1]}:{key}")

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except Exception as error:  # somebody without the key, or the end
                if isinstance(error, OSError) and getattr(self._listener, "_listener", None) is None:
                    return
                continue
            self.connections.append(connection)
            threading.Thread(target=self._take, args=(connection,), name="ddpcheck-node", daemon=True).start()

    def _take(self, connection: Any) -> None:
        with contextlib.suppress(EOFError, OSError, msgspec.DecodeError):
            while True:
                message = _decoder.decode(connection.recv_bytes())
                if isinstance(message, Piece) and message.name.endswith(SUFFIX) and "/" not in message.name:
                    with (self._folder / message.name).open("r+b" if message.start else "wb") as file:
                        file.seek(message.start)
                        file.write(message.data)
                elif isinstance(message, Done):
                    self.done.add(id(connection))
        self.done.add(id(connection))  # gone, too, will send no more

    def stop(self, why: str) -> None:
        """Ask the other nodes to end their ranks."""
        self._tell(Stop(why))

    def wait(self, seconds: float) -> None:
        """Wait until every node that has sent evidence has sent all of it."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and any(id(c) not in self.done for c in self.connections):
            time.sleep(0.05)

    def tell(self, verdict: Verdict) -> None:
        """Send the verdict to every node, and listen no more."""
        self._tell(Concluded(msgspec.json.encode(verdict)))
        with contextlib.suppress(OSError):
            self._listener.close()

    def _tell(self, message: Stop | Concluded) -> None:
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.send_bytes(_encode(message))


class Sender:
    """Sends this node's evidence to the node that judges."""

    def __init__(self, address: str) -> None:
        host, port, key = address.rsplit(":", 2)
        self._connection = Client((host, int(port)), authkey=key.encode())
        self._places: dict[str, int] = {}
        self.stop_asked = ""
        self.verdict: Verdict | None = None
        self._closed = threading.Event()
        threading.Thread(target=self._listen, name="ddpcheck-sender", daemon=True).start()

    def _listen(self) -> None:
        with contextlib.suppress(EOFError, OSError, msgspec.DecodeError):
            while True:
                message = _decoder.decode(self._connection.recv_bytes())
                if isinstance(message, Stop):
                    self.stop_asked = message.why
                elif isinstance(message, Concluded):
                    self.verdict = msgspec.json.decode(message.verdict, type=Verdict)
                    break
        self._closed.set()

    def push(self, folder: Path) -> None:
        """Send what has been written since the last time."""
        for file in folder.glob(f"*{SUFFIX}"):
            with file.open("rb") as opened:
                opened.seek(self._places.get(file.name, 0))
                while data := opened.read(PIECE):
                    start = self._places.get(file.name, 0)
                    self._connection.send_bytes(_encode(Piece(file.name, start, data)))
                    self._places[file.name] = start + len(data)
            if self._places.get(file.name):
                self._send_status(file)

    def _send_status(self, file: Path) -> None:
        """The header once more: one byte of it changes at the end."""
        with file.open("rb") as opened:
            header = opened.read(len(HEADER) + 1)
        if header[len(HEADER) :] != GOING:
            self._connection.send_bytes(_encode(Piece(file.name, len(HEADER), header[len(HEADER) :])))

    def finish(self, folder: Path, seconds: float) -> Verdict | None:
        """Send the rest, and wait for the verdict; None where it does not come."""
        with contextlib.suppress(OSError):
            self.push(folder)
            self._connection.send_bytes(_encode(Done()))
            self._closed.wait(seconds)
        return self.verdict
