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

from ddpcheck.checkpoint_trials import folder_snapshots
from ddpcheck.checkpoint_trials.collectives_alone import listen
from ddpcheck.checkpoint_trials.forked_copies import Ending, in_copy
from ddpcheck.evidence.planted_kills import Kill
from ddpcheck.probes.files import paths

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
_STARTING = ("starting ", "running ")
"""How the words begin of those that start another program."""
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
    file: str = ""
    """The name of the file that has so many bytes."""


class _Watch:
    """Told of every event in a copy; kills it at its moment, if it has one."""

    def __init__(self, moment: Moment | None = None, folder: Path | None = None) -> None:
        self.moment = moment
        self.folder = folder
        self.hidden: set[str] = set()
        """The names of files that were in that folder at some time, and that no event tells of."""
        self._told: list[str] = []
        self.seen: list[tuple[str, str, str]] = []
        self.sizes: dict[int, int] = {}
        self._busy = threading.local()

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
        if event not in _DOING or getattr(self._busy, "on", False):
            return
        if not args or not isinstance(args[0], (str, bytes, os.PathLike)):
            return
        self._busy.on = True
        try:
            path = os.path.abspath(os.fsdecode(args[0]))
            if event == "open":
                if not args[2] & _WRITING or paths.is_elsewhere(path):
                    return
                # By its descriptor a file is written out of sight, unless it is a marker that one alone can make.
                self._event(event, args, path, told=args[1] is not None or bool(args[2] & os.O_EXCL))
            elif not paths.is_elsewhere(path):
                self._event(event, args, "")
        finally:
            self._busy.on = False

    def _event(self, event: str, args: tuple[Any, ...], opens: str, told: bool = True) -> None:
        number = len(self.seen)
        self.look()
        names = [os.path.basename(os.fsdecode(a)) if isinstance(a, (str, bytes, os.PathLike)) else "" for a in args]
        makes = os.path.abspath(os.fsdecode(args[1])) if event in _MAKES else ""
        self.seen.append((_DOING[event].format(*names, ""), opens, makes))
        self._told += [one for one in (opens if told else "", makes) if one]
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
        self._busy.on = True
        try:
            function()
        finally:
            self._busy.on = False

    def look(self) -> None:
        """See what is there now: a file that is renamed or removed next is not found later."""
        if self.folder is not None:
            here = {name: str(self.folder / name) for name in folder_snapshots.names(self.folder)}
            self.hidden |= {n for n, path in here.items() if not any(_is_at_or_below(path, one) for one in self._told)}
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
        watch.look()
        return [(*seen, watch.sizes.get(n, 0)) for n, seen in enumerate(watch.seen)]

    ending = in_copy(rehearse)
    if ending.said is None:
        return [], ending.error or f"a copy of the rank was ended by signal {ending.signal}"
    return [Event(*event) for event in ending.said], ""


def hidden_by(save: Callable[[], object], folder: Path) -> tuple[list[str], str]:
    """What a save writes into an empty folder out of sight, found out in a copy; and why that is not known."""

    def rehearse() -> list[str]:
        watch = _Watch(folder=folder)
        watch.begin()
        listen(lambda: watch.unseen(watch.look))
        save()
        _wait_for_threads()
        watch.unseen(watch.look)
        return sorted(watch.hidden)

    ending = in_copy(rehearse)
    return ending.said or [], "" if ending.said is not None else ending.why


def _wait_for_threads() -> None:
    """A save may go on in a thread of its own."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()


def unseen(folder: Path, before: Path, events: list[Event]) -> dict[str, int]:
    """The files that a save has written without an event that tells of it, and their sizes."""
    there = folder_snapshots.contents(before)
    told = [one for event in events for one in (event.opens, event.makes) if one]
    return {
        name: len(data)
        for name, data in folder_snapshots.contents(folder).items()
        if there.get(name) != data and not any(_is_at_or_below(str(folder / name), one) for one in told)
    }


def _is_at_or_below(path: str, other: str) -> bool:
    return path == other or path.startswith(other + os.sep)


def moments(events: list[Event], unseen: dict[str, int], wanted: int) -> list[Moment]:
    """Before each event, right after the last, and at bytes of each file that are spread over its length."""
    found = [Moment(n, None, f"just before {event.doing}") for n, event in enumerate(events)]
    found.append(Moment(len(events), None, "as soon as save() had returned"))
    writes = [(n, event.opens, event.size) for n, event in enumerate(events) if event.opens and event.size > 0]
    # By this process itself, or by another that it starts and that has its limits.
    from_where = [FROM_THE_BEGINNING, *(n for n, event in enumerate(events) if event.doing.startswith(_STARTING))]
    writes += [(number, name, size) for name, size in unseen.items() if size > 0 for number in from_where]
    left = max(wanted - len(found), len(writes))
    for place, (number, path, size) in enumerate(writes):
        share = left // len(writes) + (place < left % len(writes))
        spread = {size * step // share for step in range(share)} if share else set()
        name = os.path.basename(path)
        found += [Moment(number, b, f"after {b:,} of {size:,} bytes of {name}", name) for b in sorted(spread)]
    return found


def plant(save: Callable[[Path], object], path: Path, before: Path, moment: Moment) -> Ending:
    """Have a copy save over the checkpoint in ``before`` and be killed then; how it ended.

    ``path`` is the checkpoint's, in a folder that this makes anew from ``before``.
    """
    folder_snapshots.restore(path.parent, before)

    def doomed() -> None:
        watch = _Watch(moment)
        watch.begin()
        save(path)
        if moment.event >= len(watch.seen):
            os.kill(os.getpid(), signal.SIGKILL)
        _wait_for_threads()

    return in_copy(doomed)


def was_killed(ending: Ending) -> bool:
    """Whether a copy was killed at its moment."""
    return ending.signal in (signal.SIGKILL, signal.SIGXFSZ)


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
