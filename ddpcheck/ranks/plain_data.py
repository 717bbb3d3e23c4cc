"""What a frame can carry: plain data, and what stands for whatever a test has put into a report that is none."""

from __future__ import annotations

from typing import Any

import msgspec


def _shown(value: object) -> str:
    """What stands for an object that is no plain data; a report may carry whatever a test put into it."""
    try:
        return repr(value)
    except Exception as error:
        return f"<{type(value).__name__}, whose repr raised {type(error).__name__}>"


_encoder = msgspec.msgpack.Encoder(enc_hook=_shown)


def encode(message: msgspec.Struct) -> bytes:
    """The bytes of a message; whatever a report may carry, it goes."""
    try:
        return _encoder.encode(message)
    except (UnicodeEncodeError, OverflowError, TypeError, ValueError):
        return _encoder.encode(_sendable(msgspec.to_builtins(message, builtin_types=(bytes,), enc_hook=_shown)))


def _sendable(value: Any) -> Any:
    """Replace what a frame cannot carry: lone surrogates (output may hold any bytes), long integers, odd keys."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return str(value)
    if isinstance(value, dict):
        return {_key(k): _sendable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_sendable(v) for v in value]
    return value


def _key(key: Any) -> Any:
    plain = _sendable(key)
    return plain if isinstance(plain, (str, int, float, bool, type(None))) else _sendable(_shown(key))
