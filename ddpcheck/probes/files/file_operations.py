"""What a rank does with files: what it saves, loads, renames, removes, and asks for."""

from __future__ import annotations

import os
import pathlib
import posixpath
import sys
from collections.abc import Callable
from typing import Any

import torch

from ddpcheck.evidence import NO_SITE
from ddpcheck.probes.ddp import parameter_placement
from ddpcheck.probes.files import (
    file_polling,
    file_records,
    paths,
    small_files,
    state_dict_loads,
    torch_save_and_load,
    writer_threads,
)
from ddpcheck.probes.processes import started_processes
from ddpcheck.probes.recording import recorder, user_lines
from ddpcheck.probes.recording.patching import looking_like, named, safely

__tracebackhide__ = True
"""For pytest: a failure that comes through a probe is told without its frames."""

_WRITING = os.O_WRONLY | os.O_RDWR


def watch() -> None:
    """Record what happens to files from now on."""
    for name in ("exists", "isfile", "isdir"):
        _asked_by(posixpath, name, f"os.path.{name}")
    for name in ("exists", "is_file", "is_dir"):
        _asked_by(pathlib.Path, name, f"Path.{name}")
    torch_save_and_load.watch()
    small_files.watch()
    writer_threads.watch()
    state_dict_loads.watch()
    parameter_placement.watch()
    started_processes.watch()
    sys.addaudithook(_audit)
    os.register_at_fork(after_in_child=_forked)


def _asked_by(owner: Any, name: str, how: str) -> None:
    """Put a look at who asks around a function that libraries call all the time: as thin as can be."""
    original = getattr(owner, name, None)
    if original is None:
        return

    @looking_like(original)
    def query(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():  # the compiler traces none of what follows
            return original(*args, **kwargs)
        answer = original(*args, **kwargs)
        frame = sys._getframe(1)
        if user_lines.is_users(frame.f_code) and args and not isinstance(args[0], int):
            safely(_note_query, how, args[0], bool(answer), frame)
        return answer

    setattr(owner, name, named(query, owner, name))
    if isinstance(owner, type):
        return
    for module in list(sys.modules.values()):  # a script may have imported it by its name before torch
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and not user_lines.is_library(file) and vars(module).get(name) is original:
            setattr(module, name, query)


def _forked() -> None:
    paths.reset()
    torch_save_and_load.opened.clear()
    small_files.forget()


# --- is it there?


def _note_query(how: str, path: Any, answer: bool, frame: Any) -> None:
    writer = file_records.writer()
    if writer is None:
        return
    with paths.Busy():
        path, site = os.fsdecode(path), user_lines.here(frame)
        if not paths.is_elsewhere(path) and paths.is_query_due(path, user_lines.line_alone(site), answer):
            polled = file_polling.is_wait(frame, how.rpartition(".")[2])
            file_records.record(writer, "query", how, paths.resolved(path), site, existed=answer, polled=polled)


# --- everything else, as the interpreter itself tells of it


def _audit(event: str, args: tuple[Any, ...]) -> None:
    handler = _EVENTS.get(event) if _EVENTS is not None else None  # None when the interpreter ends
    if handler is None:
        return
    safely(_note, handler, args)


def _note(handler: Callable[..., None], args: tuple[Any, ...]) -> None:
    if handler is _opened and not _may_matter(*args):
        return
    writer = file_records.writer()
    if writer is not None:
        with paths.Busy():
            handler(writer, *args)


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
            file_records.record(writer, "read", "open", found, site, identity=paths.identity(found))


def _opened_to_write(writer: recorder.Recorder, path: str, mode: str | None, flags: int) -> None:
    if flags & os.O_APPEND:  # a log: the ranks may well share it
        if paths.resolved(path) in torch_save_and_load.opened and paths.is_write_due(path):
            file_records.record(writer, "append", "open", paths.resolved(path), paths.users_line())
        return
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
    site, library = paths.users_line_through()
    if site == NO_SITE or os.path.isdir(path):
        return
    found = paths.resolved(path)
    existed = os.path.lexists(found)
    if how == "open" and len(torch_save_and_load.opened) < paths.MOST:
        torch_save_and_load.opened[found] = existed
        small_files.opened(found)
    file_records.record(writer, "write", how, found, site, library, existed=existed)


def _renamed(writer: recorder.Recorder, source: Any, target: Any, *folders: int) -> None:
    if any(f != -1 for f in folders):
        return
    source, target = os.fsdecode(source), os.fsdecode(target)
    if paths.is_elsewhere(source) or paths.is_elsewhere(target):
        return
    site, library = paths.users_line_through()
    if site != NO_SITE and paths.is_write_due(target):
        source, target = _entry(source), _entry(target)
        small_files.renamed(writer, source)
        file_records.record(
            writer, "rename", "os.rename", source, site, library, target=target, identity=paths.identity(source)
        )


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
        file_records.record(writer, "remove", how, _entry(path), site)


def _entry(path: str) -> str:
    """The path of a name itself, where a link may stand: its folder resolved."""
    folder, name = os.path.split(paths.absolute(path))
    return os.path.join(paths.resolved(folder), name)


def _listed(writer: recorder.Recorder, path: Any = None, *_: Any) -> None:
    if path is None:
        path = "."
    if not isinstance(path, (str, bytes, os.PathLike)):
        return
    frame = sys._getframe(4)
    if (
        user_lines.is_users(frame.f_code) or "pathlib" in frame.f_code.co_filename
    ):  # libraries list folders all the time
        _asked_for_many(writer, "os.listdir", os.path.join(os.fsdecode(path), "*"))


def _globbed(writer: recorder.Recorder, pattern: Any, *_: Any) -> None:
    if isinstance(pattern, (str, bytes)):
        _asked_for_many(writer, "glob", os.fsdecode(pattern))


def _path_globbed(writer: recorder.Recorder, folder: Any, pattern: Any) -> None:
    if isinstance(pattern, (str, os.PathLike)):
        _asked_for_many(writer, "glob", os.path.join(os.fsdecode(folder), os.fsdecode(pattern)))


def _asked_for_many(writer: recorder.Recorder, how: str, pattern: str) -> None:
    if paths.is_elsewhere(pattern):
        return
    site = paths.users_line()
    if site != NO_SITE and paths.is_query_due(pattern, site, True):
        folder, name = os.path.split(paths.absolute(pattern))
        polled = file_polling.is_wait(user_lines.users_frame(), how.rpartition(".")[2])
        found = os.path.join(paths.resolved(folder), name)
        file_records.record(writer, "query", how, found, site, existed=True, polled=polled)


_EVENTS: dict[str, Callable[..., None]] = {
    "open": _opened,
    "os.rename": _renamed,
    "os.remove": _removed,
    "shutil.rmtree": _tree_removed,
    "os.listdir": _listed,
    "glob.glob": _globbed,
    "pathlib.Path.glob": _path_globbed,
    "fcntl.flock": file_records.locking,
    "fcntl.lockf": file_records.locking,
}
