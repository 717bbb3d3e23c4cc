"""Watching an unmodified program: every process of it, from the moment that it imports torch."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ddpcheck.probes.recording import signal_exceptions

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
    try:
        from ddpcheck.probes import all_probes

        all_probes.start(Path(os.environ[FOLDER]), int(os.environ.get(LIMIT, DEFAULT_LIMIT)))
    except Exception as error:
        signal_exceptions.let_through(error)


class _TorchFinder(importlib.abc.MetaPathFinder):
    """Finds torch as the others do, to be told when its import is done.

    It stays until torch has been imported: many a program asks whether there
    is a torch, or where, before it imports it.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "torch" or self not in sys.meta_path:
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            find = getattr(finder, "find_spec", None)
            spec: importlib.machinery.ModuleSpec | None = find(name, path, target) if find is not None else None
            if spec is not None:
                if spec.loader is not None:
                    self._be_told_by(spec)
                return spec
        return None

    def _be_told_by(self, spec: importlib.machinery.ModuleSpec) -> None:
        """Have the probes follow torch's own code; whoever only looks at the loader sees its own class."""
        loader: Any = spec.loader

        def exec_module(module: ModuleType) -> None:
            # Another hook may have put its own there in the same way, before ours or after it.
            if vars(loader).get("exec_module") is exec_module:
                del loader.exec_module
                vars(loader).update(before)
            self._execute(module, execute)

        try:
            execute = loader.exec_module
            before = {name: own for name, own in vars(loader).items() if name == "exec_module"}
            loader.exec_module = exec_module
        except (AttributeError, TypeError):  # one that takes no attributes
            spec.loader = _Loader(loader, self)

    def _execute(self, module: ModuleType, execute: Callable[[ModuleType], None]) -> None:
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self)
        try:
            execute(module)
        except BaseException:
            if self not in sys.meta_path:
                sys.meta_path.insert(0, self)  # the program may try it once more
            raise
        _start()


class _Loader(importlib.abc.Loader):
    """torch's own loader, and then the probes."""

    def __init__(self, own: Any, finder: _TorchFinder) -> None:
        self._own = own
        self._finder = finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._own.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._own
        module.__loader__ = self._own
        self._finder._execute(module, self._own.exec_module)
