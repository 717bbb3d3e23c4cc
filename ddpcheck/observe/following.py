"""Watching an unmodified program: every process of it, from the moment that it imports torch."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER, LIMIT = "DDPCHECK_EVIDENCE", "DDPCHECK_EVIDENCE_LIMIT"
"""The environment in which a process learns that it is watched: the folder for its evidence, and the most of it."""

COLLECTOR = "DDPCHECK_COLLECTOR"
"""In the environment: the port and the key at which this node's ddpcheck takes evidence of other nodes."""

DEFAULT_LIMIT = 256 * 1024 * 1024


def begin() -> None:
    """Watch this process once it imports torch; one that never does pays nothing."""
    if "torch" in sys.modules:
        _start()
    else:
        sys.meta_path.insert(0, _TorchFinder())


def _start() -> None:
    """Watch from now on, or not at all: whatever comes in between, the program has imported torch."""
    with contextlib.suppress(Exception):
        from ddpcheck.observe import watching

        watching.start(Path(os.environ[FOLDER]), int(os.environ.get(LIMIT, DEFAULT_LIMIT)))


class _TorchFinder(importlib.abc.MetaPathFinder):
    """Finds torch as the others do, to be told when its import is done."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "torch":
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    """torch's own loader, and then the probes."""

    def __init__(self, own: Any) -> None:
        self._own = own

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._own.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._own
        module.__loader__ = self._own
        self._own.exec_module(module)
        _start()
