"""A TCP connection between two nodes of a run: both know the key, and say so before anything else is listened to.

multiprocessing.connection has no deadline for showing the key, and closing
such a connection does not wake a thread that reads from it.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import ipaddress
import secrets
import socket
import threading

DEADLINE = 10.0
"""Seconds in which the other end has to show that it knows the key, and in which it has to be reached."""

_NONCE = 32
_LENGTH = 4


class Refused(Exception):
    """The other end does not know the key, or is no ddpcheck."""


class Link:
    """Sends and receives messages: bytes, each after its length."""

    def __init__(self, connected: socket.socket, longest: int) -> None:
        self._socket = connected
        self._longest = longest
        self._sending = threading.Lock()

    def send(self, message: bytes) -> None:
        """Send a message; raises OSError where the other end does not take it."""
        with self._sending:
            self._socket.sendall(len(message).to_bytes(_LENGTH, "little") + message)

    def receive(self) -> bytes:
        """The next message; raises EOFError at the end, and OSError for one that is longer than any can be."""
        length = int.from_bytes(self._exactly(_LENGTH), "little")
        if length > self._longest:
            raise OSError(f"a message of {length} bytes")
        return self._exactly(length)

    def _exactly(self, length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            more = self._socket.recv(min(length - len(data), 1 << 16))
            if not more:
                raise EOFError
            data += more
        return bytes(data)

    def close(self) -> None:
        """Hang up; whoever waits at either end is told."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    # --- the key

    def trust(self, key: str, here: bytes, there: bytes) -> None:
        """Show that this end knows the key, and see that the other one does; raises Refused.

        ``here`` and ``there`` tell the two ends apart, so that neither can
        send back what it got.
        """
        own = secrets.token_bytes(_NONCE)
        self._socket.settimeout(DEADLINE)
        # A deadline for all of it: whoever sends a byte now and then would pass any for a single one.
        too_late = threading.Timer(DEADLINE, self.close)
        too_late.daemon = True
        too_late.start()
        try:
            self._socket.sendall(own)
            other = self._exactly(_NONCE)
            self._socket.sendall(_proof(key, here, own, other))
            if not hmac.compare_digest(self._exactly(_NONCE), _proof(key, there, other, own)):
                raise Refused
        except (OSError, EOFError) as error:
            raise Refused from error
        finally:
            too_late.cancel()
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _proof(key: str, end: bytes, own: bytes, other: bytes) -> bytes:
    return hmac.digest(key.encode(), end + own + other, hashlib.sha256)


def interface(endpoint: str) -> str:
    """The address of this machine at which the others reach it that have met at an endpoint (``host:port``, or a host).

    Raises OSError where the host is not known.
    """
    host = endpoint.split(",")[0].strip()
    if host.count(":") == 1 or host.startswith("["):
        host = host.rpartition(":")[0].strip("[]") or host
    here = _towards(host or "localhost")
    if ipaddress.ip_address(here).is_loopback and not _is_loopback(host or "localhost"):
        # Many machines know their own name by a loopback address, which is theirs alone.
        with contextlib.suppress(OSError):
            return _towards("192.0.2.1")
    return here


def _towards(host: str) -> str:
    """The address from which this machine would talk to a host; nothing is sent."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0]).partition("%")[0]


def _is_loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host.partition(".")[0] in ("localhost", "ip6-localhost")
