"""The plain values of a dataset from which its samples are made: a worker process has a copy of them.

Which these are, the code says that gives samples. What that code changes is not among them: each copy goes its own way.
"""

from __future__ import annotations

import dis
import inspect
import weakref
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from torch.utils.data import Dataset

from ddpcheck.evidence import DatasetValues
from ddpcheck.probes.digests.batch_fingerprints import digest
from ddpcheck.probes.recording import recorder

GIVE = ("__getitem__", "__getitems__", "__iter__", "__next__")
"""The methods by which a dataset gives its samples."""
DEEPEST = 3
"""Datasets in each other."""
MOST = 32
"""Methods that are looked at."""


class _Uses(NamedTuple):
    """The names of attributes that some code reads, and those that it sets."""

    reads: set[str]
    writes: set[str]


_uses: weakref.WeakKeyDictionary[type, _Uses] = weakref.WeakKeyDictionary()


def write(
    writer: recorder.Recorder,
    dataset: Any,
    loader: int | None,
    pass_: int,
    worker: int | None = None,
    base_seed: int | None = None,
) -> None:
    """Write down what a dataset holds when a pass begins, of the program or of a worker process."""
    values = dict(_values(dataset, "", 0))
    if values:
        writer.write(
            DatasetValues(
                **writer.next(), loader=loader, pass_=pass_, worker=worker, base_seed=base_seed, values=values
            )
        )


def is_known(dataset: Any) -> bool:
    """Whether it was looked at before, in this process or in the one that it was forked from."""
    return type(dataset) in _uses


def _values(dataset: Any, prefix: str, depth: int) -> Iterator[tuple[str, bytes]]:
    uses = _uses_of(type(dataset))
    for name, value in getattr(dataset, "__dict__", {}).items():
        inner = [value] if isinstance(value, Dataset) else value if isinstance(value, (list, tuple)) else []
        if inner and len(inner) <= MOST and all(isinstance(one, Dataset) for one in inner):
            for place, one in enumerate(inner if depth < DEEPEST else ()):
                yield from _values(one, f"{prefix}{name}{f'[{place}]' if one is not value else ''}.", depth + 1)
        elif name in uses.reads - uses.writes and (found := digest(value)) is not None:
            yield prefix + name, found


def _uses_of(kind: type) -> _Uses:
    if kind not in _uses:
        found = _uses[kind] = _Uses(set(), set())
        names, seen = list(GIVE), set[CodeType]()
        for name in names:
            # Not the attribute itself, which may be made by the user's own code.
            attribute = inspect.getattr_static(kind, name, None)
            function = attribute.fget if isinstance(attribute, property) else attribute
            if not isinstance(function, FunctionType) or function.__code__ in seen or len(seen) >= MOST:
                continue
            seen.add(function.__code__)
            for code in _nested(function.__code__):
                own = code.co_varnames[:1] if code.co_argcount else ()
                before = ""
                for one in dis.get_instructions(code):
                    # What is read of another object, under the same name, is nothing of the dataset's.
                    if one.opname in ("LOAD_ATTR", "LOAD_METHOD") and before in (*own, "self"):
                        found.reads.add(one.argval)
                    elif one.opname in ("STORE_ATTR", "DELETE_ATTR"):
                        found.writes.add(one.argval)
                    names_of = one.argval if isinstance(one.argval, tuple) else (one.argval,)  # it may load two
                    before = names_of[-1] if one.opname.startswith(("LOAD_FAST", "LOAD_DEREF")) else ""
                names += [other for other in code.co_names if other not in names]
    return _uses[kind]


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _nested(one)
