"""Events and tensors of devices, which no process destroys that was forked from the one that has made them.

CUDA does not outlive a fork. The destructor of an event calls it all the same,
and that of a tensor may: the process would be ended by that, whether it lets
go of them after the fork or at its own end.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def forever(thing: T, keep: Any = ctypes.pythonapi.Py_IncRef, to: Any = ctypes.py_object) -> T:
    """The same, which outlives all that refers to it, the modules of the interpreter too."""
    keep(to(thing))
    return thing


class Held(Generic[T]):
    """One thing of a device: destroyed with this object, but in a fork never."""

    __slots__ = ("_process", "thing")

    def __init__(self, thing: T) -> None:
        self._process = os.getpid()
        self.thing = thing

    @property
    def is_of_parent(self) -> bool:
        """Whether this process was forked from the one that has made it."""
        return os.getpid() != self._process

    # By name: at the end of the interpreter, modules are empty.
    def __del__(
        self, here: Any = os.getpid, keep: Any = ctypes.pythonapi.Py_IncRef, to: Any = ctypes.py_object
    ) -> None:
        if here() != self._process:
            keep(to(self.thing))
