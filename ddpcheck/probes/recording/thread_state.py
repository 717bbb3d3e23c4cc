"""What the probes of a thread are in the midst of, so that it can be put back where an exception comes out of one."""

from __future__ import annotations

import threading
from typing import Any

from ddpcheck.evidence import Call


class _Here(threading.local):
    module = False
    """Whether a module's call is under way: what it calls in turn is its own affair."""
    silent = 0
    """How deep it is in what a probe itself does; the other threads go on being heard."""
    busy = 0
    """How deep in what opens files and is recorded as a whole."""
    inside = 0
    """Calls that it is in: what a call calls itself is part of it."""
    current: Call | None = None
    """The record of that call."""
    batch: list[Any] | None = None
    """The calls so far of a batch that it is in."""


here = _Here()
