"""Attributes that are replaced for a while, and put back in the opposite order."""

from __future__ import annotations

from typing import Any

_MISSING = object()


class Patches:
    """Replacements of attributes, all put back by ``undo``."""

    def __init__(self) -> None:
        self._done: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Replace an attribute; one that its owner inherits or lacks is gone again afterwards."""
        self._done.append((owner, name, vars(owner).get(name, _MISSING)))
        setattr(owner, name, value)

    def set_if_there(self, owner: Any, name: str, value: Any) -> None:
        """Replace an attribute that some versions of torch lack."""
        if owner is not None and hasattr(owner, name):
            self.set(owner, name, value)

    def undo(self) -> None:
        """Put everything back."""
        while self._done:
            owner, name, before = self._done.pop()
            if before is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
