"""Recorded evidence under other names: the same facts, every name of the user's replaced, all source texts empty.

A judge that reads only facts reports the same errors and warnings for both.
:mod:`tests.recordings.field_table` says what happens to each field.
"""

from __future__ import annotations

import copy
import functools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from ddpcheck.evidence.record import Record, kinds
from ddpcheck.judging.world import Process
from tests.recordings.field_table import FIELDS, KEYS, Action, Words, fact, function

# --- the records


def renamed(processes: Iterable[Process]) -> list[Process]:
    """Return new processes that hold the same records under other names.

    One mapping serves all processes: equal names stay equal, and different names
    stay different. The given processes are not modified.
    """
    every = list(processes)
    words = Words()
    records = [record for process in every for record in process.records]
    for record in records:
        if type(record).__name__ == "Modules":
            words.types.update(part.name for part in record.classes if not part.users)
        if type(record).__name__ == "Site":
            words.files.add(record.file)
    for process in every:
        _records(process, words)
    words.number()
    return [_process(process, words) for process in every]


def _process(process: Process, words: Words) -> Process:
    new = copy.copy(process)
    new.records, new._by_kind, new._sites, new._places, new._bodies = [], defaultdict(list), {}, {}, {}
    new.add(_records(process, words))
    new.taken = process.taken
    return new


def _records(process: Process, words: Words) -> list[Record]:
    functions = {site.id: site.function for site in process.records if type(site).__name__ == "Site"}
    return [_record(record, functions, words) for record in process.records]


def _record(record: Any, functions: dict[int, str], words: Words) -> Any:
    new = _struct(record, words)
    if type(record).__name__ == "Pulse":
        return _pulse(new, functions, words)
    if type(record).__name__ == "Raised":
        return _raised(record, new)
    return new


def _pulse(pulse: Any, functions: dict[int, str], words: Words) -> Any:
    """Replace the running function if it is the function of the pulse's own line; others are a library's."""
    users = functions.get(pulse.site, "")
    if pulse.doing and pulse.doing in (users, users.rpartition(".")[2]):
        return replace(pulse, doing=function(pulse.doing, words))
    return pulse


def _raised(record: Any, new: Any) -> Any:
    """Keep the class of an exception unless the traceback says that it is from ``__main__``."""
    last = re.findall(rf"^([\w.]*?)\.?{re.escape(record.kind)}(?=:|$)", record.text, re.MULTILINE)
    users = bool(last) and last[-1].partition(".")[0] == "__main__"
    text = new.text.replace(f"__main__.{record.kind}", f"__main__.{new.kind}") if users else new.text
    return replace(new, kind=new.kind if users else record.kind, text=text)


# --- structs, field by field


Change = Callable[[Any, Words], Any]


def _struct(struct: Any, words: Words) -> Any:
    changed = {}
    for field, change in _changes(type(struct)):
        old = getattr(struct, field)
        new = change(old, words)
        if new != old:
            changed[field] = new
    return replace(struct, **changed) if changed else struct


@functools.cache
def _changes(cls: type) -> tuple[tuple[str, Change], ...]:
    """The fields of a struct that may hold names, and how each is changed."""
    actions, keys = FIELDS.get(cls.__name__, {}), KEYS.get(cls.__name__, {})
    found = []
    info: Any = msgspec.inspect.type_info(cls)
    for field in info.fields:
        change = _change(field.type, actions.get(field.name), keys.get(field.name))
        if change is not None:
            found.append((field.name, change))
    return tuple(found)


def _change(held: Any, action: Action | None, keys: Action | None) -> Change | None:
    """The change for values of a type; None if it holds no names."""
    if isinstance(held, msgspec.inspect.UnionType):
        return next((found for part in held.types if (found := _change(part, action, keys)) is not None), None)
    if isinstance(held, msgspec.inspect.StructType):
        return lambda struct, words: _struct(struct, words) if struct is not None else None
    if isinstance(held, (msgspec.inspect.ListType, msgspec.inspect.VarTupleType)):
        within = _change(held.item_type, action, keys)
        if within is None:
            return None
        return lambda values, words: (
            type(values)(within(value, words) for value in values) if values is not None else None
        )
    if isinstance(held, msgspec.inspect.DictType):
        change, of_keys = _change(held.value_type, action, keys) or _same, _change(held.key_type, keys, None) or _same
        return lambda values, words: {of_keys(key, words): change(value, words) for key, value in values.items()}
    if isinstance(held, msgspec.inspect.StrType) and action not in (None, fact):
        return lambda text, words: action(text, words) if text is not None else None
    return None


def _same(value: Any, words: Words) -> Any:
    return value


def text_fields() -> dict[str, set[str]]:
    """The fields that hold text, by class: of every record, and of every struct that a record holds."""
    found: dict[str, set[str]] = {}
    waiting: list[type] = list(kinds())
    while waiting:
        cls = waiting.pop()
        if cls.__name__ in found:
            continue
        info: Any = msgspec.inspect.type_info(cls)
        found[cls.__name__] = {field.name for field in info.fields if _holds_text(field.type, waiting)}
    return {cls: fields for cls, fields in found.items() if fields}


def keyed_fields() -> dict[str, set[str]]:
    """The dictionaries whose keys are text, by class of the record."""
    found: dict[str, set[str]] = defaultdict(set)
    for cls in kinds():
        info: Any = msgspec.inspect.type_info(cls)
        for field in info.fields:
            if isinstance(field.type, msgspec.inspect.DictType) and _holds_text(field.type.key_type, []):
                found[cls.__name__].add(field.name)
    return dict(found)


def _holds_text(held: Any, structs: list[type]) -> bool:
    """Whether a type holds text itself; the structs in it are added to ``structs``."""
    if isinstance(held, msgspec.inspect.StructType):
        structs.append(held.cls)
        return False
    if isinstance(held, (msgspec.inspect.StrType, msgspec.inspect.LiteralType, msgspec.inspect.AnyType)):
        return True
    parts = [getattr(held, part) for part in ("item_type", "key_type", "value_type") if hasattr(held, part)]
    parts += [*getattr(held, "types", ()), *getattr(held, "item_types", ())]
    holding = [_holds_text(part, structs) for part in parts]  # a list: every part is searched for structs
    return any(holding)
