"""What a rank does with files: what it saves, loads, renames, removes, and asks for."""

from __future__ import annotations

import fcntl
import functools
import os
import pathlib
import posixpath
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import torch
import torch.jit
import torch.serialization
import torch.utils.data

from ddpcheck.evidence import NO_SITE, File
from ddpcheck.observe import background, loads, paths, placing, recorder, sites, starting
from ddpcheck.observe.patching import around, defect

_WRITING = os.O_WRONLY | os.O_RDWR
_LOOKED_AT = 2_000
"""The most parts of a checkpoint that are looked at."""

_started: dict[str, bool] = {}
"""Paths that are open for writing, and whether there was a file before: it is emptied by then."""
_locks: dict[int, tuple[int, int]] = {}
"""Descriptors that a lock is held on, and their files."""


def watch() -> None:
    """Record what happens to files from now on."""
    around(torch.serialization, "save", _around_save("torch.save"))
    around(torch.serialization, "load", _around_load("torch.load"))
    _also(torch, ("save", "load"), torch.serialization)
    scripted = getattr(torch.jit, "_serialization", None)
    if scripted is not None:
        around(scripted, "save", _around_save("torch.jit.save"))
        around(scripted, "load", _around_load("torch.jit.load"))
        _also(torch.jit, ("save", "load"), scripted)
    for name in ("exists", "isfile", "isdir"):
        _asked_by(posixpath, name, f"os.path.{name}")
    for name in ("exists", "is_file", "is_dir"):
        _asked_by(pathlib.Path, name, f"Path.{name}")
    background.watch()
    loads.watch()
    placing.watch()
    starting.watch()
    sys.addaudithook(_audit)
    os.register_at_fork(after_in_child=_forked)


def _also(owner: Any, names: Iterable[str], source: Any) -> None:
    for name in names:
        if hasattr(owner, name):
            setattr(owner, name, getattr(source, name))


def _asked_by(owner: Any, name: str, how: str) -> None:
    """Put a look at who asks around a function that libraries call all the time: as thin as can be."""
    original = getattr(owner, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def query(*args: Any, **kwargs: Any) -> Any:
        answer = original(*args, **kwargs)
        frame = sys._getframe(1)
        if sites.is_users(frame.f_code) and args and not isinstance(args[0], int):
            _note_query(how, args[0], bool(answer), frame)
        return answer

    setattr(owner, name, query)
    if isinstance(owner, type):
        return
    for module in list(sys.modules.values()):  # a script may have imported it by its name before torch
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and not paths.is_library(file) and vars(module).get(name) is original:
            setattr(module, name, query)


def _forked() -> None:
    paths.reset()
    _started.clear()


def _writer() -> recorder.Recorder | None:
    """The recorder, where there is room; none in a process that loads samples."""
    # Beside a main thread that is at work silently, another one may still save.
    writer = recorder.always() if background.name() else recorder.current()
    if writer is None or paths.busy() or torch.utils.data.get_worker_info() is not None:
        return None
    return writer


def _record(
    writer: recorder.Recorder,
    op: Literal["write", "read", "rename", "remove", "query"],
    how: str,
    path: str,
    site: int,
    library: bool = False,
    begun: dict[str, Any] | None = None,
    **more: Any,
) -> None:
    if not paths.has_room():
        return
    thread = background.name()
    begun = begun or writer.next()
    ended = begun["n"] if "ended" not in more else more.pop("ended")
    more.setdefault("existed", os.path.lexists(path))
    more.setdefault("target", "")
    writer.write(
        File(
            **begun,
            op=op,
            how=how,
            path=path,
            site=site,
            ended=ended,
            thread=thread,
            locked=_locked(),
            library=library,
            **more,
        )
    )
    if thread:
        background.has_done(thread)


# --- torch.save, torch.load


def _around_save(how: str) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        def save(*args: Any, **kwargs: Any) -> Any:
            writer = _writer()
            path = _path_of(_given(args, kwargs, 1)) if writer is not None else None
            if writer is None or path is None or paths.is_elsewhere(path) or not paths.is_write_due(path):
                return original(*args, **kwargs)
            begun, site = writer.next(), background.line()
            existed = _started.pop(path, None)
            existed = os.path.lexists(path) if existed is None else existed
            try:
                with paths.Busy():
                    return original(*args, **kwargs)
            finally:
                described = _described(args[0] if args else kwargs.get("obj"))
                ended = writer.next()["n"]
                _record(writer, "write", how, path, site, begun=begun, existed=existed, ended=ended,
                        identity=paths.identity(path), **described)  # fmt: skip

        return save

    return make


def _around_load(how: str) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        def load(*args: Any, **kwargs: Any) -> Any:
            writer = _writer()
            path = _path_of(_given(args, kwargs, 0)) if writer is not None else None
            if writer is None or path is None or paths.is_elsewhere(path) or not paths.is_read_due(path):
                return original(*args, **kwargs)
            begun, site = writer.next(), background.line()
            device = _device_text(kwargs.get("map_location", args[1] if len(args) > 1 else None))
            found: dict[str, Any] = {}
            try:
                with paths.Busy():
                    result = original(*args, **kwargs)
                found = _described(result)
                return result
            finally:
                ended = writer.next()["n"]
                _record(writer, "read", how, path, site, begun=begun, ended=ended, device=device,
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
    except (OSError, TypeError, ValueError):
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
    except Exception:  # a class of the user's own may do anything when it is looked at
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


# --- is it there?


def _note_query(how: str, path: Any, answer: bool, frame: Any) -> None:
    writer = _writer()
    if writer is None:
        return
    try:
        with paths.Busy():
            path, site = os.fsdecode(path), sites.here(frame)
            if not paths.is_elsewhere(path) and paths.is_query_due(path, site, answer):
                _record(writer, "query", how, paths.resolved(path), site, existed=answer)
    except Exception as error:  # nothing that goes wrong in here is the script's
        defect(error)


# --- everything else, as the interpreter itself tells of it


def _audit(event: str, args: tuple[Any, ...]) -> None:
    handler = _EVENTS.get(event) if _EVENTS is not None else None  # None when the interpreter ends
    if handler is None or (handler is _opened and not _may_matter(*args)):
        return
    try:
        writer = _writer()
        if writer is not None:
            with paths.Busy():
                handler(writer, *args)
    except Exception as error:  # nothing that goes wrong in here is the script's
        defect(error)


def _may_matter(path: Any, mode: str | None, flags: int) -> bool:
    """A first look at an open, of which there may be thousands in a second."""
    return bool(flags & _WRITING) or (mode is not None and isinstance(path, str) and paths.is_read_due(path))


def _opened(writer: recorder.Recorder, path: Any, mode: str | None, flags: int) -> None:
    if not isinstance(path, (str, bytes, os.PathLike)):
        return
    path = os.fsdecode(path)
    if paths.is_elsewhere(path):
        return
    if flags & _WRITING:
        _opened_to_write(writer, path, mode, flags)
    else:
        site = paths.users_line()
        if site != NO_SITE:
            found = paths.resolved(path)
            _record(writer, "read", "open", found, site, identity=paths.identity(found))


def _opened_to_write(writer: recorder.Recorder, path: str, mode: str | None, flags: int) -> None:
    if flags & os.O_APPEND:
        return  # a log: the ranks may well share it
    if mode is None:
        # A marker, a lock or a temporary file; its content is not written by way of a file object.
        if not flags & os.O_CREAT:
            return
        how = "os.open"
    elif flags & os.O_EXCL:
        how = "open x"
    elif flags & os.O_TRUNC:
        how = "open"
    else:
        return  # r+: a part of a file that ranks may share out
    if not paths.is_write_due(path):
        return
    site = paths.users_line()
    if site == NO_SITE or os.path.isdir(path):
        return
    found = paths.resolved(path)
    existed = os.path.lexists(found)
    if how == "open" and len(_started) < paths.MOST:
        _started[found] = existed
    _record(writer, "write", how, found, site, existed=existed)


def _renamed(writer: recorder.Recorder, source: Any, target: Any, *folders: int) -> None:
    if any(f != -1 for f in folders):
        return
    source, target = os.fsdecode(source), os.fsdecode(target)
    if paths.is_elsewhere(source) or paths.is_elsewhere(target):
        return
    site, library = paths.users_line_through()
    if site != NO_SITE and paths.is_write_due(target):
        source, target = _entry(source), _entry(target)
        _record(writer, "rename", "os.rename", source, site, library, target=target, identity=paths.identity(source))


def _removed(writer: recorder.Recorder, path: Any, folder: int = -1) -> None:
    _gone(writer, "os.remove", path, folder)


def _tree_removed(writer: recorder.Recorder, path: Any, folder: int | None = None) -> None:
    _gone(writer, "shutil.rmtree", path, -1 if folder is None else folder)


def _gone(writer: recorder.Recorder, how: str, path: Any, folder: int) -> None:
    if folder != -1 or not isinstance(path, (str, bytes, os.PathLike)):
        return  # named from within a folder that is removed as a whole
    path = os.fsdecode(path)
    if paths.is_elsewhere(path):
        return
    site = paths.users_line()
    if site != NO_SITE and paths.is_write_due(path):
        _record(writer, "remove", how, _entry(path), site)


def _entry(path: str) -> str:
    """The path of a name itself, where a link may stand: its folder resolved."""
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(paths.resolved(folder), name)


def _listed(writer: recorder.Recorder, path: Any = None, *_: Any) -> None:
    if path is None:
        path = "."
    if not isinstance(path, (str, bytes, os.PathLike)):
        return
    frame = sys._getframe(2)
    if sites.is_users(frame.f_code) or "pathlib" in frame.f_code.co_filename:  # libraries list folders all the time
        _asked_for_many(writer, "os.listdir", os.path.join(os.fsdecode(path), "*"))


def _globbed(writer: recorder.Recorder, pattern: Any, *_: Any) -> None:
    if isinstance(pattern, (str, bytes)):
        _asked_for_many(writer, "glob", os.fsdecode(pattern))


def _path_globbed(writer: recorder.Recorder, folder: Any, pattern: Any) -> None:
    _asked_for_many(writer, "glob", os.path.join(os.fsdecode(folder), os.fsdecode(pattern)))


def _asked_for_many(writer: recorder.Recorder, how: str, pattern: str) -> None:
    if paths.is_elsewhere(pattern):
        return
    site = paths.users_line()
    if site != NO_SITE and paths.is_query_due(pattern, site, True):
        folder, name = os.path.split(os.path.abspath(pattern))
        _record(writer, "query", how, os.path.join(paths.resolved(folder), name), site, existed=True)


def _locking(_: recorder.Recorder, descriptor: int, operation: int, *more: Any) -> None:
    if operation & fcntl.LOCK_UN:
        _locks.pop(descriptor, None)
    elif len(_locks) < 100:
        found = os.fstat(descriptor)
        _locks[descriptor] = (found.st_dev, found.st_ino)


def _locked() -> bool:
    """Whether a lock on some file is held: closing the file gives it back."""
    for descriptor, file in list(_locks.items()):
        try:
            found = os.fstat(descriptor)
        except OSError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != file:
            _locks.pop(descriptor, None)
    return bool(_locks)


_EVENTS: dict[str, Callable[..., None]] = {
    "open": _opened,
    "os.rename": _renamed,
    "os.remove": _removed,
    "shutil.rmtree": _tree_removed,
    "os.listdir": _listed,
    "glob.glob": _globbed,
    "pathlib.Path.glob": _path_globbed,
    "fcntl.flock": _locking,
    "fcntl.lockf": _locking,
}
