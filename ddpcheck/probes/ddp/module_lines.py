"""Of what modules a wrapped one is made: their classes, and the lines that have set their parameters."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterable, Mapping
from types import CodeType, FunctionType
from typing import Any

import torch

from ddpcheck.evidence import NO_SITE, Modules, PartClass
from ddpcheck.probes.ddp import parameter_names
from ddpcheck.probes.recording import recorder, user_lines

MOST = 20_000
"""Modules, or parameters, of a model that is described; of a larger one nothing is."""
_LOADED = time.time()
"""What was written to a file later is not what the program runs."""
_WRAPPED = 5
"""Decorators that are looked through for the function inside."""


def describe(
    writer: recorder.Recorder, module: Any, wrapper: int, parameters: Mapping[str, torch.Tensor], buffers: Iterable[str]
) -> Modules | None:
    """The record of a wrapper's module; None of one that is too large."""
    parts = dict(module.named_modules())
    if max(len(parts), len(parameters)) > MOST:
        return None
    paths = _with_those_around({name.rpartition(".")[0] for name in (*parameters, *buffers)})
    kinds = {id(type(parts[path])): type(parts[path]) for path in paths if path in parts}  # a class may have no hash
    numbers = {kind: number for number, kind in enumerate(kinds)}
    places = {path: numbers[id(type(parts[path]))] for path in paths if path in parts}
    lines = [
        parameter_names.line_of(parameter, parts.get(path), own)
        for (path, _, own), parameter in ((name.rpartition("."), p) for name, p in parameters.items())
    ]
    classes = [_class(kind) for kind in kinds.values()]
    return Modules(**writer.next(), wrapper=wrapper, classes=classes, parts=places, lines=lines)


def _with_those_around(paths: Iterable[str]) -> list[str]:
    found = {""}
    for path in paths:
        while path not in found:
            found.add(path)
            path = path.rpartition(".")[0]
    return sorted(found)


def _class(kind: type) -> PartClass:
    own = [value for value in vars(kind).values() if isinstance(value, FunctionType)]
    constructor = _inside(vars(kind).get("__init__"))
    if own:
        users = any(user_lines.is_users(_inside(one).__code__) for one in own)
    else:
        file = getattr(sys.modules.get(kind.__module__), "__file__", None)
        users = isinstance(file, str) and user_lines.is_users_file(file)
    site = NO_SITE
    if users and isinstance(constructor, FunctionType) and user_lines.is_users(constructor.__code__):
        site = _site(constructor.__code__)
    return PartClass(name=kind.__name__, users=users, site=site)


def _site(code: CodeType) -> int:
    """The first line of a constructor: with its text, if that is what the program runs."""
    first = code.co_firstlineno
    with contextlib.suppress(OSError, ValueError):
        if os.stat(code.co_filename).st_mtime <= _LOADED:
            return user_lines.chained([(code, first)])
    return user_lines.number(code.co_filename, first, code.co_name)


def _inside(function: Any) -> Any:
    """What decorators stand around."""
    for _ in range(_WRAPPED):
        inside = vars(function).get("__wrapped__") if isinstance(function, FunctionType) else None
        if not isinstance(inside, FunctionType):
            break
        function = inside
    return function
