"""Kills that are planted in a save: before each thing it does to a file, and in the midst of each write.

The moments do not depend on a clock. The interpreter tells, by its audit
events, what is about to be opened, renamed or removed; there the process kills
itself. Between two events, a limit on the size of files has the kernel end the
process at one byte of the write.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch.serialization

from ddpcheck.checkpoints import folders
from ddpcheck.checkpoints.alone import listen
from ddpcheck.checkpoints.copies import in_copy
from ddpcheck.checks.kills import Kill
from ddpcheck.observe import paths

_WRITING = os.O_WRONLY | os.O_RDWR
_DOING = {
    "open": "opening {0}",
    "os.rename": "renaming {0} to {1}",
    "os.remove": "removing {0}",
    "os.mkdir": "making the folder {0}",
    "os.rmdir": "removing the folder {0}",
    "os.link": "linking {0} to {1}",
    "os.symlink": "linking {0} to {1}",
    "os.truncate": "cutting {0} off",
    "subprocess.Popen": "starting {0}",
    "os.system": "running {0}",
    "os.posix_spawn": "starting {0}",
    "shutil.rmtree": "removing the folder {0} and what is in it",
}
"""The audit events at which a save may be killed, in words."""
_MAKES = ("os.rename", "os.link", "os.symlink")
"""Those that put something at their second path."""


class Event(NamedTuple):
    """Something that a save does to a file."""

    doing: str
    opens: str
    """The path, where it opens a file to be written."""
    makes: str
    """The path, where it puts there what lay elsewhere."""
    size: int
    """How large the file that it opens has become."""


FROM_THE_BEGINNING = -1
"""In the place of an event: what is written at no event that we are told of."""


class Moment(NamedTuple):
    """When a save is killed: before an event, or once so many bytes of the file that it opens are written.

    From the beginning on it is killed once any file has so many bytes.
    """

    event: int
    bytes: int | None
    words: str


class _Watch:
    """Told of every event in a copy; kills it at its moment, if it has one."""

    def __init__(self, moment: Moment | None = None) -> None:
        self.moment = moment
        self.seen: list[tuple[str, str, str]] = []
        self.sizes: dict[int, int] = {}
        self._busy = False

    def begin(self) -> None:
        sys.addaudithook(self._hear)  # a copy ends soon: that it cannot be taken away does no harm
        self._around_torch()
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it, and a write would only fail
        self._at(FROM_THE_BEGINNING)

    def _around_torch(self) -> None:
        """torch.save opens files in C++, and Python is not told."""
        writer = getattr(torch.serialization, "_open_zipfile_writer_file", None)
        if writer is None:
            return
        original = writer.__init__

        def __init__(this: Any, name: Any, *args: Any, **kwargs: Any) -> None:
            self._event("open", (name,), os.fsdecode(name) if isinstance(name, (str, bytes, os.PathLike)) else "")
            original(this, name, *args, **kwargs)

        writer.__init__ = __init__

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if event not in _DOING or self._busy or not args or not isinstance(args[0], (str, bytes, os.PathLike)):
            return
        self._busy = True
        try:
            path = os.path.abspath(os.fsdecode(args[0]))
            if event == "open":
                if not args[2] & _WRITING or paths.is_elsewhere(path):
                    return
                self._event(event, args, path)
            elif not paths.is_elsewhere(path):
                self._event(event, args, "")
        finally:
            self._busy = False

    def _event(self, event: str, args: tuple[Any, ...], opens: str) -> None:
        number = len(self.seen)
        self.note_sizes()
        names = [os.path.basename(os.fsdecode(a)) if isinstance(a, (str, bytes, os.PathLike)) else "" for a in args]
        makes = os.path.abspath(os.fsdecode(args[1])) if event in _MAKES else ""
        self.seen.append((_DOING[event].format(*names, ""), opens, makes))
        self._at(number)

    def _at(self, number: int) -> None:
        """Here is an event: what is to be done at it."""
        if self.moment is not None and self.moment.event == number:
            if self.moment.bytes is None:
                os.kill(os.getpid(), signal.SIGKILL)
            else:
                resource.setrlimit(resource.RLIMIT_FSIZE, (self.moment.bytes, resource.RLIM_INFINITY))

    def unseen(self, function: Callable[[], object]) -> None:
        """Call this, whose doings are none of the save's."""
        self._busy = True
        try:
            function()
        finally:
            self._busy = False

    def note_sizes(self) -> None:
        """How large the files are that were opened so far: one that is renamed next is not found later."""
        for number, (_, path, _) in enumerate(self.seen):
            if path and os.path.isfile(path):
                self.sizes[number] = max(self.sizes.get(number, 0), os.path.getsize(path))


def events_of(save: Callable[[], object], told: Callable[[], object] = lambda: None) -> tuple[list[Event], str]:
    """What a save does to files, one after the other, found out in a copy; and the error that it ended with.

    ``told`` is called in the copy before each collective, and at the end.
    """

    def rehearse() -> list[tuple[str, str, str, int]]:
        watch = _Watch()
        watch.begin()
        listen(lambda: watch.unseen(told))
        save()
        _wait_for_threads()
        watch.unseen(told)
        watch.note_sizes()
        return [(*seen, watch.sizes.get(n, 0)) for n, seen in enumerate(watch.seen)]

    ending = in_copy(rehearse)
    if ending.said is None:
        return [], ending.error or f"a copy of the rank was ended by signal {ending.signal}"
    return [Event(*event) for event in ending.said], ""


def _wait_for_threads() -> None:
    """A save may go on in a thread of its own."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()


def unseen(folder: Path, before: Path, events: list[Event]) -> dict[str, int]:
    """The files that a save has written without an event that tells of it, and their sizes."""
    there = folders.contents(before)
    told = [one for event in events for one in (event.opens, event.makes) if one]
    return {
        name: len(data)
        for name, data in folders.contents(folder).items()
        if there.get(name) != data and not any(_is_at_or_below(str(folder / name), one) for one in told)
    }


def _is_at_or_below(path: str, other: str) -> bool:
    return path == other or path.startswith(other + os.sep)


def moments(events: list[Event], unseen: dict[str, int], wanted: int) -> list[Moment]:
    """Before each event, right after the last, and at bytes of each file that are spread over its length."""
    found = [Moment(n, None, f"just before {event.doing}") for n, event in enumerate(events)]
    found.append(Moment(len(events), None, "as soon as save() had returned"))
    writes = [(n, event.opens, event.size) for n, event in enumerate(events) if event.opens and event.size > 0]
    writes += [(FROM_THE_BEGINNING, name, size) for name, size in unseen.items() if size > 0]
    left = max(wanted - len(found), len(writes))
    for place, (number, path, size) in enumerate(writes):
        share = left // len(writes) + (place < left % len(writes))
        spread = {size * step // share for step in range(share)} if share else set()
        name = os.path.basename(path)
        found += [Moment(number, b, f"after {b:,} of {size:,} bytes of {name}") for b in sorted(spread)]
    return found


def plant(save: Callable[[Path], object], path: Path, before: Path, moment: Moment) -> bool:
    """Have a copy save over the checkpoint in ``before`` and be killed then; whether it was.

    ``path`` is the checkpoint's, in a folder that this makes anew from ``before``.
    """
    folders.restore(path.parent, before)

    def doomed() -> None:
        watch = _Watch(moment)
        watch.begin()
        save(path)
        if moment.event >= len(watch.seen):
            os.kill(os.getpid(), signal.SIGKILL)
        _wait_for_threads()

    return in_copy(doomed).signal in (signal.SIGKILL, signal.SIGXFSZ)


def verdict(words: str, found: Any, error: str, old: Any, new: Any) -> Kill:
    """What a load made of what a kill has left."""
    if error:
        return Kill(moment=words, left="raised", detail=error[:300])
    if found == old:
        return Kill(moment=words, left="old")
    if found == new:
        return Kill(moment=words, left="new")
    differing = [name for name in found if found[name] != old.get(name)]
    partly = sum(1 for name in differing if found[name] == new.get(name))
    neither = [name for name in differing if found[name] != new.get(name)]
    detail = f"{len(differing)} of {len(found)} values are not the old ones, {partly} of these are the new ones"
    if neither:
        detail += f"; {neither[0]} is neither"
    return Kill(moment=words, left="other", detail=detail)
