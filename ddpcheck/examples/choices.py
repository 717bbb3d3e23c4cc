"""What an example is made of, as plain data: the choices that its values are drawn from.

An example crosses to the ranks as its choices and not as its values: every rank
draws the same values from them, by the same strategies, whatever these make of
them. A choice is an integer of any size, a float to the last bit of a NaN, a
truth value, a text or bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from ddpcheck.vocabulary.model import Struct

_SMALLEST, _LARGEST = -(2**63), 2**64 - 1


class Ask(Struct, frozen=True, kw_only=True):
    """A choice that is to be made in the midst of an example."""

    kind: str
    """integer, float, boolean, string or bytes."""
    constraints: dict[str, Any]
    forced: Any = None
    spans: tuple[int | bool, ...] = ()
    """What of the structure of draws has come before it: a label where a part begins, and whether a part is thrown
    away where one ends."""

    @property
    def text(self) -> str:
        """What is asked for, as a noun."""
        given = {name: plain(value) for name, value in self.constraints.items()}
        forced = "" if self.forced is None else f" that is {plain(self.forced)!r}"
        if self.kind == "integer":
            low, high = given.get("min_value"), given.get("max_value")
            if low is None and high is None:
                return f"an integer{forced}"
            return f"an integer{forced} from {'-∞' if low is None else low} to {'∞' if high is None else high}"
        if self.kind == "boolean":
            return f"a boolean{forced}"
        if self.kind == "float":
            return f"a float{forced} from {given.get('min_value')} to {given.get('max_value')}"
        noun = {"string": "a text", "bytes": "bytes"}.get(self.kind, self.kind)
        return f"{noun}{forced} of {given.get('min_size')} to {given.get('max_size')} items"


def packed(value: Any) -> Any:
    """A choice, or a constraint, as what a message can carry."""
    if isinstance(value, bool) or value is None or isinstance(value, (float, bytes)):
        return value
    if isinstance(value, int):
        return value if _SMALLEST <= value <= _LARGEST else {"integer": hex(value)}
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:  # lone surrogates: no UTF-8, but a text that a strategy may draw
            return {"text": value.encode("utf-8", "surrogatepass")}
        return value
    if isinstance(value, dict):
        return {"weights": [[packed(key), packed(weight)] for key, weight in value.items()]}
    intervals = getattr(value, "intervals", None)
    if intervals is not None:
        return {"intervals": [list(pair) for pair in intervals]}
    raise TypeError(f"{value!r} is no choice that can cross to the ranks")


def plain(value: Any, intervals: Callable[[Any], Any] = list) -> Any:
    """The inverse of `packed`; ``intervals`` makes what characters are drawn from."""
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind == "integer":
        return int(inner, 16)
    if kind == "text":
        return inner.decode("utf-8", "surrogatepass")
    if kind == "weights":
        return {plain(key): plain(weight) for key, weight in inner}
    return intervals(tuple((low, high) for low, high in inner))


def pack(choices: Iterable[Any]) -> list[Any]:
    return [packed(choice) for choice in choices]


def unpack(choices: Iterable[Any]) -> list[Any]:
    return [plain(choice) for choice in choices]


_encoder, _decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(Ask)


def ask_bytes(kind: str, constraints: dict[str, Any], forced: Any, spans: Sequence[int | bool]) -> bytes:
    """The same bytes for the same question."""
    given = {name: packed(constraints[name]) for name in sorted(constraints)}
    return _encoder.encode(Ask(kind=kind, constraints=given, forced=packed(forced), spans=tuple(spans)))


def ask_of(ask: bytes) -> Ask:
    return _decoder.decode(ask)
