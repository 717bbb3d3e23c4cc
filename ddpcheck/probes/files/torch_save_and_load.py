"""Checkpoints that are saved and loaded: where, what is in them, and on which devices."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.jit
import torch.serialization

from ddpcheck.probes.files import file_records, paths, writer_threads
from ddpcheck.probes.recording import signal_exceptions
from ddpcheck.probes.recording.patching import around

__tracebackhide__ = True
"""For pytest: a failure that comes through a probe is told without its frames."""

_LOOKED_AT = 2_000
"""The most parts of a checkpoint that are looked at."""

opened: dict[str, bool] = {}
"""Paths that were opened to be written anew, and whether there was a file before: it is emptied by then."""

Listener = Callable[[Any, str, int], "Callable[[], None] | None"]
save_listeners: list[Listener] = []
"""Asked with what is saved, the path and the line: what to do once that is written."""

load_listeners: list[Callable[[Any, str, int, bool], None]] = []
"""Given what a file held, its path, the line, and whether it is mapped and not read yet."""


def watch() -> None:
    """Record every torch.save and every load from now on."""
    around(torch.serialization, "save", _around_save("torch.save"))
    around(torch.serialization, "load", _around_load("torch.load"))
    _also(torch, ("save", "load"), torch.serialization)
    # What torch.save opens files with: seen also where somebody holds the function from before there were probes.
    opener = getattr(torch.serialization, "_open_zipfile_writer_file", None)
    if opener is not None:
        around(opener, "__init__", _around_open)
        around(opener, "__exit__", _around_close)
    module = getattr(getattr(torch.jit, "_script", None), "RecursiveScriptModule", None)
    if module is not None:
        around(module, "save", _around_save("torch.jit.save"))
    scripted = getattr(torch.jit, "_serialization", None)
    if scripted is not None:
        around(scripted, "save", _around_save("torch.jit.save"))
        around(scripted, "load", _around_load("torch.jit.load"))
        _also(torch.jit, ("save", "load"), scripted)


def _also(owner: Any, names: Iterable[str], source: Any) -> None:
    for name in names:
        if hasattr(owner, name) and hasattr(source, name):
            setattr(owner, name, getattr(source, name))


def _around_save(how: str) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        def save(*args: Any, **kwargs: Any) -> Any:
            writer = file_records.writer()
            path = _path_of(_given(args, kwargs, 1)) if writer is not None else None
            if writer is None or path is None or paths.is_elsewhere(path) or not paths.is_write_due(path):
                return original(*args, **kwargs)
            begun, site = file_records.begin(writer), writer_threads.line()
            existed = opened.pop(path, None)
            existed = os.path.lexists(path) if existed is None else existed
            saved = args[0] if args else kwargs.get("obj")
            tasks = [task for listen in save_listeners if (task := listen(saved, path, site)) is not None]
            try:
                with paths.Busy():
                    return original(*args, **kwargs)
            finally:
                for task in tasks:
                    task()
                described = _described(saved)
                ended = writer.next()["n"]
                file_records.record(writer, "write", how, path, site, begun=begun, existed=existed, ended=ended,
                        identity=paths.identity(path), **described)  # fmt: skip

        return save

    return make


def _around_open(original: Any) -> Any:
    def __init__(self: Any, name: Any, *args: Any, **kwargs: Any) -> None:
        writer = file_records.writer()
        path = _path_of(name) if writer is not None else None
        if writer is not None and path is not None and not paths.is_elsewhere(path) and paths.is_write_due(path):
            self._ddpcheck_opened = path, file_records.begin(writer), writer_threads.line(), os.path.lexists(path)
        original(self, name, *args, **kwargs)

    return __init__


def _around_close(original: Any) -> Any:
    def __exit__(self: Any, *error: Any) -> Any:
        try:
            return original(self, *error)
        finally:
            opened_here = getattr(self, "_ddpcheck_opened", None)
            writer = file_records.writer()
            if opened_here is not None and writer is not None:
                path, begun, site, existed = opened_here
                file_records.record(writer, "write", "open", path, site, begun=begun, existed=existed,
                        ended=writer.next()["n"], identity=paths.identity(path))  # fmt: skip

    return __exit__


def _around_load(how: str) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        def load(*args: Any, **kwargs: Any) -> Any:
            writer = file_records.writer()
            path = _path_of(_given(args, kwargs, 0)) if writer is not None else None
            if writer is None or path is None or paths.is_elsewhere(path) or not paths.is_read_due(path):
                return original(*args, **kwargs)
            begun, site = file_records.begin(writer), writer_threads.line()
            device = _device_text(kwargs.get("map_location", args[1] if len(args) > 1 else None))
            found: dict[str, Any] = {}
            try:
                with paths.Busy():
                    result = original(*args, **kwargs)
                found = _described(result)
                if how == "torch.load":
                    for listen in load_listeners:
                        listen(result, path, site, bool(kwargs.get("mmap")))
                return result
            finally:
                ended = writer.next()["n"]
                file_records.record(writer, "read", how, path, site, begun=begun, ended=ended, device=device,
                        identity=paths.identity(path), **found)  # fmt: skip

        return load

    return make


def _given(args: tuple[Any, ...], kwargs: dict[str, Any], place: int) -> Any:
    return args[place] if len(args) > place else kwargs.get("f")


def _path_of(file: Any) -> str | None:
    """The file that a path, or an open file, stands for; None for what is in memory."""
    try:
        if not isinstance(file, (str, bytes, os.PathLike)):
            file = getattr(file, "name", None)
            if not isinstance(file, str) or not os.path.isfile(file):
                return None
        return paths.resolved(os.fsdecode(file))
    except (OSError, TypeError, ValueError) as error:
        signal_exceptions.let_through(error)
        return None


def _device_text(location: Any) -> str:
    if location is None:
        return ""
    if isinstance(location, (str, torch.device)):
        return str(location)
    return "a dict" if isinstance(location, Mapping) else "a function" if callable(location) else str(location)[:80]


def _described(saved: Any) -> dict[str, Any]:
    """The keys of what is saved, where its tensors lie, and which keys hold the state of an optimizer."""
    try:
        keys: list[str] = []
        if isinstance(saved, torch.nn.Module):
            keys = [name for name, _ in saved.named_parameters()]
        elif isinstance(saved, Mapping):
            keys = [str(key)[:80] for key in saved]
        devices: set[str] = set()
        optimizers: list[str] = []
        _look(saved, "", devices, optimizers, [_LOOKED_AT])
        return {"keys": keys[:50], "devices": sorted(devices), "optimizers": optimizers[:20]}
    except Exception as error:  # a class of the user's own may do anything when it is looked at
        signal_exceptions.let_through(error)
        return {}


def _look(value: Any, key: str, devices: set[str], optimizers: list[str], left: list[int]) -> None:
    left[0] -= 1
    if left[0] < 0:
        return
    if isinstance(value, torch.Tensor):
        devices.add(str(value.device))
    elif isinstance(value, torch.nn.Module):
        devices.update(str(p.device) for p in value.parameters())
    elif isinstance(value, Mapping):
        if "param_groups" in value and value.get("state"):
            optimizers.append(key)
        for name, one in value.items():
            _look(one, f"{key}.{name}" if key else str(name)[:80], devices, optimizers, left)
    elif isinstance(value, (list, tuple)) and not (value and isinstance(value[0], (int, float, str))):
        for one in value:
            _look(one, key, devices, optimizers, left)
