"""Being told when a module has been imported by the program: one that never is costs nothing."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


def after_import(name: str, task: Callable[[], None]) -> None:
    """Have this done as soon as there is a module of this name: now, or when its import is done."""
    if name in sys.modules:
        task()
        return
    waiting = [one for one in sys.meta_path if isinstance(one, Finder) and one.name == name]
    if waiting:
        waiting[0].tasks.append(task)
    else:
        sys.meta_path.insert(0, Finder(name, task))


class Finder(importlib.abc.MetaPathFinder):
    """Finds a module as the others do, to be told when its import is done.

    It stays until the module has been imported: many a program asks whether
    there is a torch, or where, before it imports it.
    """

    def __init__(self, name: str, task: Callable[[], None]) -> None:
        self.name = name
        self.tasks = [task]

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self.name or self not in sys.meta_path:
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
        """Do the task after the module's own code; whoever only looks at the loader sees its own class."""
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
        for task in self.tasks:
            task()


class _Loader(importlib.abc.Loader):
    """The module's own loader, and then the task."""

    def __init__(self, own: Any, finder: Finder) -> None:
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
