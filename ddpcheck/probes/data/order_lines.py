"""Where a sampler of the user's own makes its order: what its class says, without running any of it."""

from __future__ import annotations

import inspect
from types import CodeType, FunctionType
from typing import Any

from ddpcheck.evidence import NO_SITE
from ddpcheck.probes.recording import user_lines

MOST = 8
"""Methods that are looked at."""


def order_lines(sampler: Any) -> list[int]:
    """The numbers of its ``__iter__``, and of the methods by which that makes the order; empty for a library's."""
    codes: list[CodeType] = []
    names = ["__iter__"]
    for name in names:
        # Not the attribute itself, which may be made by the user's own code.
        attribute = inspect.getattr_static(type(sampler), name, None)
        if isinstance(attribute, FunctionType) and len(codes) < MOST and attribute.__code__ not in codes:
            codes.append(attribute.__code__)
            names += [other for other in attribute.__code__.co_names if other not in names]
    found = [user_lines.function(code) for code in codes]
    return found if found and NO_SITE not in found[:1] else []
