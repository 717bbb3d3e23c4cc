"""Every operator by which torch moves tensors between ranks, whoever calls it: one registration for all of them.

They are c10d's, and lie below torch.distributed's functions, the methods of
groups, functional collectives, FSDP, DTensor and what is written in C++. The
dispatcher passes each call through the key BackendSelect, on any device and in
any mode: there it is seen, and passed on once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any

import torch

from ddpcheck import seams
from ddpcheck.probes.recording import missing_seams, patching

__tracebackhide__ = True
"""For pytest: a failure that comes through a probe is told without its frames."""

KEY = "BackendSelect"

Original = Callable[..., Any]
"""Takes the keys that are left, and the operator's arguments."""
Maker = Callable[..., Original]
"""Builds a probe around an operator, with its ``name`` and the ``names`` of its arguments."""

_SEAMS = ("torch.library.Library.impl", "torch._C._after_autograd_keyset", "torch._C._dispatch_get_all_op_names")

_libraries: list[Any] = []
"""What was registered lasts as long as these."""


def watch(
    namespace: str,
    make: Maker,
    wanted: Callable[[Sequence[str]], bool],
    unless: Callable[[], bool] | None = None,
) -> None:
    """Put what ``make`` builds around each operator whose arguments are wanted; ``unless`` as in `patching.around`."""
    needed = [seams.BY_NAME[name] for name in _SEAMS]
    if missing := [one for one in needed if not one.is_there]:
        for one in missing:
            missing_seams.note(one)
        return
    found = {name: names for name, names in _operators(namespace).items() if wanted(names)}
    if namespace == "c10d" and not found:  # they have moved elsewhere
        missing_seams.note(needed[-1])
    library: Any = torch.library.Library(namespace, "IMPL")  # type: ignore[no-untyped-call]
    _libraries.append(library)
    key = getattr(torch._C.DispatchKey, KEY)
    for name, names in found.items():
        overload = getattr(getattr(torch.ops, namespace), name).default
        original = partial(_pass_on, overload, key, torch._C._after_autograd_keyset)
        probe = patching.shielded_around(original, partial(make, name=name, names=names), unless)
        library.impl(name, _trimmed(probe), KEY, with_keyset=True)


def _operators(namespace: str) -> dict[str, list[str]]:
    """The names of the operators that this torch has there, each with the names of its arguments."""
    found = {}
    for full in torch._C._dispatch_get_all_op_names():
        home, _, name = full.partition("::")
        if home == namespace and "." not in name:
            schema = getattr(getattr(torch.ops, namespace), name).default._schema
            found[name] = [one.name for one in schema.arguments]
    return found


def _pass_on(overload: Any, key: Any, after: Any, keys: Any, /, *args: Any, **kwargs: Any) -> Any:
    return overload.redispatch(keys.remove(key) & after, *args, **kwargs)


def _trimmed(probe: Original) -> Original:
    """The same, whose errors look as if they came from where the operator was called."""

    def operator(*args: Any, **kwargs: Any) -> Any:
        try:
            return probe(*args, **kwargs)
        except BaseException as error:
            raise error.with_traceback(_of_others(error.__traceback__))  # noqa: B904

    return operator


def _of_others(trace: TracebackType | None) -> TracebackType | None:
    """What of a traceback follows our frames, and the one in which torch passes an operator on."""
    while trace is not None and _is_between(trace.tb_frame.f_globals.get("__name__")):
        trace = trace.tb_next
    return trace


def _is_between(module: Any) -> bool:
    return module == "torch._ops" or str(module).startswith("ddpcheck.")
