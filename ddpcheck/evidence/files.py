"""Files that are written, read, renamed and removed, and state that is loaded."""

from __future__ import annotations

from typing import Literal

import msgspec

from ddpcheck.evidence.record import Record


class File(Record, frozen=True, kw_only=True):
    """A file was written, read, renamed, removed or asked for."""

    op: Literal["write", "read", "rename", "remove", "query", "join", "content", "append"]
    """``join``: the main thread has waited for ``thread``, or (``*``) for one that is not known. ``content``: what a
    small file holds that was opened to be written. ``append``: to such a file something is added."""
    how: str
    """``torch.save``, ``open``, ``os.replace``, ``os.path.exists`` …"""
    path: str
    """Absolute and resolved."""
    target: str
    """Where it was renamed to."""
    site: int
    ended: int
    """The ``n`` when it was done."""
    existed: bool
    """Before a write: the path was there; of a query: its answer."""
    thread: str
    """The thread, where it was not the main one."""
    device: str = ""
    """Of a load: ``map_location`` as given, empty for none."""
    devices: list[str] = msgspec.field(default_factory=list)
    """Where the loaded tensors lie (saved tensors, of a save)."""
    keys: list[str] = msgspec.field(default_factory=list)
    """Top-level keys of what was saved or loaded."""
    identity: str = ""
    """Device and inode, to know a file under two names; of ``content`` a digest."""
    locks: list[int] = msgspec.field(default_factory=list)
    """The inodes of files that the process held a lock on (flock, lockf)."""
    library: bool = False
    """An installed library did it, on behalf of the user's line."""
    optimizers: list[str] = msgspec.field(default_factory=list)
    """Of what was saved or loaded: the keys under which there is the state of an optimizer, and not an empty one."""
    polled: bool = False
    """Of a query: its line asks again and again, until the answer ends a loop."""


class StateLoaded(Record, frozen=True, kw_only=True):
    """load_state_dict of a module, an optimizer or a scheduler."""

    owner: Literal["module", "optimizer", "scheduler", "scaler"]
    kind: str
    missing: list[str]
    unexpected: list[str]
    total: int
    strict: bool
    site: int
    digest: bytes = b""
    wrapped: bool = False
    """It went into a module that a DDP wrapper holds already."""
    wrapper: int | None = None
    """That wrapper."""
    fitting: int = 0
    """Keys of what was given that it has."""
    thrown_away: bool = False
    """Nobody could look at what it returned: the keys that do not fit."""
    assigned: bool = False
    """The tensors that were given took the place of the module's own, as for one that was made on the meta device."""
    optimizer: int = -1
    """The number of the optimizer that it went into."""
    itself: list[str] = msgspec.field(default_factory=list)
    """Parameters for which it was given their own memory, so that nothing was written."""
    outdated: bool = False
    """These lie in a state dict that was taken from it before some optimizer's step."""
    model: int = -1
    """The number of the module that it went into."""
    missing_kinds: list[str] = msgspec.field(default_factory=list)
    """``float32[3, 4]`` of each that is missing, where something is unexpected as well."""
    unexpected_kinds: list[str] = msgspec.field(default_factory=list)
    """Of each that is unexpected, where something is missing as well."""
