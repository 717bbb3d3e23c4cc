"""Evidence of many nodes in one place: each node sends what its ranks write down to the node of rank 0.

Rank 0 tells the others where, by way of the store at which the ranks have met
anyway. Who does not know the key is not listened to. Nothing here waits for
another node in the thread that watches the run.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import re
import secrets
import socket
import threading
import time
from collections import deque
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from ddpcheck.evidence import GOING, HEADER
from ddpcheck.judging.evidence_folder import BEYOND, SUFFIX
from ddpcheck.run.node_link import DEADLINE, Link, Refused, interface
from ddpcheck.verdict.verdict import Verdict
from ddpcheck.vocabulary import regular_files

PIECE = 1 << 20
"""Bytes of evidence in one message, at most."""

LONGEST = 1 << 26
"""Bytes of a message, at most; a verdict with many findings is the longest."""

STRANGERS = 64
"""Connections, at most, that have yet to show the key; for a further one, that is closed which has had most time."""
NOTES = 100
"""Sentences on the evidence of other nodes, at most."""
ROOM = 1 << 30
"""Bytes that other nodes' evidence leaves free on this disk, or a twentieth of it where that is less."""

PERIOD = 0.25
"""Seconds between two looks at what is new."""

AT_ONCE = 0.5
"""Seconds within which nodes were started together: then the one of rank 0 shows the report."""

AGAIN = 1.0
"""Seconds between two attempts to reach the node that judges."""

_JUDGE, _NODE = b"judge", b"node"

_WRITING = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The first word of a node."""

    host: Annotated[str, msgspec.Meta(max_length=255)]
    format: bytes
    """What its files of evidence begin with."""
    began: float = math.inf
    """When its command was started, in seconds since the epoch."""
    sender: bytes = b""
    """What nobody else knows: a file is written by who began it."""


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
    shown_by: str = ""
    """Who shows the report, as a noun; empty where it is the node that gets this."""


class Taken(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """This node has the verdict, and shows the report."""


class OtherFormat(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Your evidence cannot be read here."""


_decoder = msgspec.msgpack.Decoder(Hello | Piece | Done | Stop | Concluded | Taken | OtherFormat)
_encode = msgspec.msgpack.Encoder().encode


class Bound(NamedTuple):
    """A listening socket; and its address and key, for the environment of this node's ranks."""

    listener: socket.socket
    address: str


class Node:
    """Another node that sends evidence."""

    def __init__(self, link: Link, host: str, began: float = math.inf) -> None:
        self.link, self.host, self.began = link, host, began
        self.has_verdict = threading.Event()
        self.names: set[str] = set()
        """Of its files."""
        self.whole = True
        """All that it has sent could be kept here."""
        self.done = False
        """It has sent all of its evidence."""
        self.gone = False


class Collector:
    """Takes the evidence of other nodes into this node's folder."""

    def __init__(self, folder: Path, bound: Bound, began: float = -math.inf, limit: float = math.inf) -> None:
        """``began``: when this node's command was started; of one that shows the report whoever was first, never."""
        self._folder = folder
        self._longest = limit + BEYOND
        self._senders: dict[str, bytes] = {}
        """Who has begun each file."""
        self._began = began
        self._name = "the node of rank 0" if began > 0 else "the task of rank 0"
        self._listener, self.address = bound
        self._strangers: deque[Link] = deque()
        self.nodes: list[Node] = []
        self.notes: list[str] = []
        """What a reader has to know of the evidence of other nodes, as sentences."""
        threading.Thread(target=self._accept, name="ddpcheck-collector", daemon=True).start()

    @staticmethod
    def bound(endpoint: str) -> Bound:
        """A socket to listen on, where the nodes meet; no thread runs yet, so that the process may still fork."""
        key = secrets.token_hex(16)
        here = interface(endpoint)
        listener = socket.create_server(
            (here, 0), family=socket.AF_INET6 if ":" in here else socket.AF_INET, backlog=STRANGERS
        )
        return Bound(listener, f"{here}:{listener.getsockname()[1]}:{key}")

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._listener.accept()
                link = Link(connected, LONGEST)
                self._strangers.append(link)
                with contextlib.suppress(IndexError):
                    if len(self._strangers) > STRANGERS:
                        self._strangers.popleft().close()
                threading.Thread(target=self._serve, args=(link,), name="ddpcheck-node", daemon=True).start()
            except (OSError, RuntimeError):
                if self._listener.fileno() < 0:
                    return
                time.sleep(0.05)  # no room for a descriptor or a thread, perhaps

    def _serve(self, link: Link) -> None:
        """See who it is, and take what it sends."""
        try:
            try:
                link.trust(self.address.rpartition(":")[2], _JUDGE, _NODE)
            finally:
                with contextlib.suppress(ValueError):
                    self._strangers.remove(link)
            hello = _decoder.decode(link.receive())
            if not isinstance(hello, Hello):
                return
            if hello.format != HEADER:
                self._note(
                    f"The evidence of {hello.host} cannot be read here: another version of ddpcheck runs there. "
                    "Install the same one on all nodes."
                )
                link.send(_encode(OtherFormat()))
                return
            node = Node(link, hello.host, hello.began)
            self.nodes.append(node)
            try:
                self._take(node, hello.sender)
            finally:
                node.gone = True
        except (Refused, EOFError, OSError, msgspec.DecodeError):
            pass
        except Exception as error:  # a fault of ours
            self._note(f"The evidence of another node could not be taken here: {error!r}.")
        finally:
            link.close()

    def _take(self, node: Node, sender: bytes) -> None:
        while True:
            message = _decoder.decode(node.link.receive())
            if isinstance(message, Piece) and re.fullmatch(rf"[^/\0]+{SUFFIX}", message.name):
                try:
                    self._write(node, sender, message)
                except OSError as error:
                    self._note(f"Not all evidence of {node.host} could be kept here: {error.strerror or error}.")
                    node.whole = False
            elif isinstance(message, Done):
                node.done = True
            elif isinstance(message, Taken):
                node.has_verdict.set()

    def _write(self, node: Node, sender: bytes, piece: Piece) -> None:
        """A node that comes back sends all of it again: nothing is cut off for that."""
        new = piece.name not in self._senders
        descriptor = os.open(self._folder / piece.name, _WRITING | (new * (os.O_CREAT | os.O_EXCL)), 0o600)
        with open(descriptor, "r+b") as file:
            if self._senders.setdefault(piece.name, sender) != sender:
                raise OSError(errno.EPERM, "it has sent for a file of another node")
            node.names.add(piece.name)
            disk, size = os.fstatvfs(descriptor), file.seek(0, os.SEEK_END)
            if disk.f_bavail * disk.f_frsize < min(ROOM, disk.f_blocks * disk.f_frsize // 20):
                raise OSError(errno.ENOSPC, "the disk is nearly full")
            if not 0 <= piece.start <= size or piece.start + len(piece.data) > self._longest:
                raise OSError(errno.EFBIG, "a file has gaps, or is longer than it may be (see --evidence-limit)")
            file.seek(piece.start)
            file.write(piece.data)

    def _note(self, text: str) -> None:
        if text not in self.notes and len(self.notes) < NOTES:
            self.notes.append(text)

    # --- the run's end

    def stop(self, why: str) -> None:
        """Ask the other nodes to end their ranks."""
        self._tell(Stop(why), *self.nodes)

    def wait(self, seconds: float) -> None:
        """Wait until every node that has sent evidence has sent all of it, or has gone."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not all(node.done or node.gone for node in self.nodes):
            time.sleep(0.05)

    @property
    def cut_off(self) -> set[str]:
        """The files of nodes that have not sent all of them."""
        done = {name for node in self.nodes if node.done and node.whole for name in node.names}
        return {name for node in self.nodes for name in node.names} - done

    def tell(self, verdict: Verdict) -> str:
        """Send the verdict to every node, and listen no more; who shows the report, empty where it is this one."""
        end = time.monotonic() + DEADLINE
        data = msgspec.json.encode(verdict)
        first = self._started_first()
        name = f"the node that was started first ({first.host})" if first is not None else ""
        if first is not None:
            for sending in self._tell(Concluded(data), first):
                sending.join(max(0.0, end - time.monotonic()))
            if not first.has_verdict.wait(max(0.0, end - time.monotonic())):
                first, name = None, ""
        others = [node for node in self.nodes if node is not first]
        for sending in self._tell(Concluded(data, name or self._name), *others):
            sending.join(max(0.0, end - time.monotonic()))
        with contextlib.suppress(OSError):
            self._listener.close()
        return name

    def _started_first(self) -> Node | None:
        """The node that the user has started first, where that is clear, and another one than this."""
        there = [node for node in self.nodes if not node.gone and node.began < self._began - AT_ONCE]
        return min(there, key=lambda node: node.began, default=None)

    def _tell(self, message: Stop | Concluded, *nodes: Node) -> list[threading.Thread]:
        """Send to these nodes, each in a thread of its own: one that does not take it holds up nobody."""
        data = _encode(message)
        sending = [
            threading.Thread(target=_try_to_send, args=(node.link, data), name="ddpcheck-told", daemon=True)
            for node in nodes
            if not node.gone
        ]
        for thread in sending:
            thread.start()
        return sending


def _try_to_send(link: Link, data: bytes) -> None:
    with contextlib.suppress(OSError):
        link.send(data)


class Sender:
    """Sends this node's evidence to the node that judges, in a thread of its own, as long as there is any."""

    def __init__(self, address: str, folder: Path, began: float = math.inf, limit: float = math.inf) -> None:
        self._host, port, self._key = address.rsplit(":", 2)
        self._own = secrets.token_bytes(16)
        self._longest = limit + BEYOND
        self._port = int(port)
        self._folder = folder
        self._began = began
        self.shown_by = ""
        """Who shows the report, as a noun; empty where this node does."""
        self.stop_asked = ""
        self.verdict: Verdict | None = None
        self.note = ""
        """Why the node that judges has not had this node's evidence, as a sentence; empty where it has."""
        self._last_look = threading.Event()
        self._told = threading.Event()
        """The verdict has come, or will not."""
        self.reached = False
        """The node that judges has been reached, at least once."""
        threading.Thread(target=self._run, name="ddpcheck-sender", daemon=True).start()

    def _run(self) -> None:
        """Reach the node that judges, as often as need be, and send everything."""
        while not self._told.is_set():
            try:
                self._send_all()
            except (Refused, EOFError, OSError) as error:
                if self._told.is_set():  # the answer came while there was more to send, and closed the connection
                    return
                why = getattr(error, "strerror", None) or "it does not answer as ddpcheck does"
                self.note = f"The node that judges could not be reached at {self._host} ({why})."
            except Exception as error:  # a fault of ours
                self.note = f"This node's evidence could not be sent: {error!r}."
            self._told.wait(AGAIN)

    def _send_all(self) -> None:
        """All evidence, from the beginning: what was sent over a connection that broke may not have come."""
        link = Link(socket.create_connection((self._host, self._port), timeout=DEADLINE), LONGEST)
        try:
            link.trust(self._key, _NODE, _JUDGE)
            self.reached = True
            link.send(_encode(Hello(socket.gethostname(), HEADER, self._began, self._own)))
            listening = threading.Thread(target=self._listen, args=(link,), name="ddpcheck-listener", daemon=True)
            listening.start()
            places: dict[str, int] = {}
            last = False
            while not last:
                last = self._last_look.wait(PERIOD)
                self._push(link, places)
            link.send(_encode(Done()))
            self.note = self.note if self._told.is_set() else ""
            listening.join()
        finally:
            link.close()

    def _listen(self, link: Link) -> None:
        with contextlib.suppress(EOFError, OSError, msgspec.DecodeError):
            while not self._told.is_set():
                message = _decoder.decode(link.receive())
                if isinstance(message, Stop):
                    self.stop_asked = message.why
                elif isinstance(message, Concluded):
                    self.verdict = msgspec.json.decode(message.verdict, type=Verdict)
                    self.shown_by = message.shown_by
                    if not self.shown_by:
                        link.send(_encode(Taken()))
                    self._told.set()
                elif isinstance(message, OtherFormat):
                    self.note = (
                        "The node of rank 0 runs another version of ddpcheck; install the same one on all nodes."
                    )
                    self._told.set()
        link.close()

    def _push(self, link: Link, places: dict[str, int]) -> None:
        """Send what has been written since the last time."""
        for file in self._folder.glob(f"*{SUFFIX}"):
            try:
                opened = regular_files.opened(file)
            except OSError:  # it is none of ours, or has been removed
                continue
            with opened:
                if os.fstat(opened.fileno()).st_size > self._longest:
                    continue
                opened.seek(places.get(file.name, 0))
                while data := opened.read(PIECE):
                    start = places.get(file.name, 0)
                    link.send(_encode(Piece(file.name, start, data)))
                    places[file.name] = start + len(data)
                opened.seek(0)
                header = opened.read(len(HEADER) + 1)
            # The header once more: one byte of it changes at the end.
            if places.get(file.name) and header[len(HEADER) :] != GOING:
                link.send(_encode(Piece(file.name, len(HEADER), header[len(HEADER) :])))

    def finish(self, seconds: float) -> Verdict | None:
        """Send the rest, and wait for the verdict; None where it does not come."""
        self._last_look.set()
        self._told.wait(seconds if self.reached else min(seconds, DEADLINE))
        self._told.set()
        return self.verdict
