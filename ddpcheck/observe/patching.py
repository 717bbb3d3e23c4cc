"""Putting a probe around a function of torch or the standard library, wherever it is reached from."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


def around(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> bool:
    """Replace ``owner.name`` by what ``make`` builds around it; whether there was such a name.

    The same function under this name in other modules of torch (a
    ``from … import``) is replaced as well. torch.compile leaves the
    replacement out of its graphs.
    """
    original = owner.__dict__.get(name) if isinstance(owner, type) else getattr(owner, name, None)
    if original is None:
        return False
    bound = original.__func__ if isinstance(original, (staticmethod, classmethod)) else original
    replacement = functools.wraps(bound)(make(bound))
    if isinstance(original, staticmethod):
        setattr(owner, name, staticmethod(replacement))
    else:
        setattr(owner, name, replacement)
    if isinstance(owner, ModuleType):
        for module_name, module in list(sys.modules.items()):
            if module_name.startswith("torch.") and getattr(module, "__dict__", {}).get(name) is original:
                setattr(module, name, replacement)
    return True
