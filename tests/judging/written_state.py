"""State that is saved and loaded, written by hand: entries with whole numbers for elements, on one axis."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np

from ddpcheck import evidence as ev
from ddpcheck.evidence.sketches import COLUMNS, FOLD, ROWS
from ddpcheck.facts import sketches


class Value(NamedTuple):
    """An entry, and what it holds."""

    entry: ev.Entry
    elements: tuple[int, ...]

    @property
    def digest(self) -> bytes:
        return struct.pack("<q", hash((self.elements, self.entry.kind)))

    @property
    def sums(self) -> bytes:
        layout = self.entry.layout
        first = layout.offset[0] if layout is not None and layout.offset is not None else 0
        place = np.arange(first, first + len(self.elements))
        mine = np.array(self.elements, dtype=float)
        sketch = (sketches.signs(place // FOLD + ROWS) * sketches.signs(place % FOLD + COLUMNS) * mine).sum(1)
        return np.concatenate([sketch, [mine.sum(), mine @ mine]]).astype("<f8").tobytes()


def plain(name: str, *elements: int, **more: Any) -> Value:
    """A tensor that nobody says anything of."""
    return Value(ev.Entry(name=name, kind=f"float32[{len(elements)}]", **more), elements)


def part(name: str, offset: int | None, whole: int, *elements: int, **more: Any) -> Value:
    """A DTensor's part; with no offset, a part of FSDP's flat parameter."""
    kind = f"float32[{len(elements)}]"
    layout = ev.Layout(
        ground="DTensor" if offset is not None else "FSDP",
        shape=(whole,),
        placements=("S0",),
        local=(len(elements),),
        offset=None if offset is None else (offset,),
    )
    return Value(ev.Entry(name=name, kind=kind, layout=layout, **{"live": True, **more}), elements)


def moment(of: str, *elements: int, key: str = "exp_avg") -> Value:
    """What an optimizer keeps for a parameter."""
    return plain(f"{of} {key}", *elements, role="moment", of=of, key=key, live=True)


def weight(name: str, *elements: int, of: str = "") -> Value:
    """A parameter of which all ranks have the whole, or a part that nobody names."""
    return plain(name, *elements, role="parameter", of=of or name.removeprefix("model."), live=True)


class Forms:
    """The state dicts of one rank."""

    def __init__(self) -> None:
        self._made = 0

    def saved(self, line: int, path: str, *values: Value, how: str = "torch.save", **more: Any) -> list[Any]:
        """A save, and its form before it."""
        fields = {"save": self._made, "how": how, "path": path, "site": line, "number": 0, **more}
        return self._with_form(ev.StateSaved, fields, values)

    def read(self, line: int, how: str, *values: Value, path: str = "", **more: Any) -> list[Any]:
        """What is held after a load."""
        fields = {"how": how, "kind": "", "path": path, "site": line, "number": 0, "given": len(values), **more}
        return self._with_form(ev.StateRead, fields, values)

    def _with_form(self, kind: type[ev.Record], fields: dict[str, Any], values: tuple[Value, ...]) -> list[Any]:
        more = {"left_out": fields.pop("left_out", 0)}
        form, self._made = self._made, self._made + 1
        looked = {"digests": b"".join(v.digest for v in values), "sums": b"".join(v.sums for v in values)}
        entries = [value.entry for value in values]
        return [(ev.StateForm, {"form": form, "entries": entries, **more}), (kind, {**fields, **looked, "form": form})]
