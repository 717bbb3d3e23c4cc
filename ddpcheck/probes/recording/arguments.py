"""The arguments of a call by their names, however they were given."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


class Arguments:
    """The arguments of a call by their names."""

    __slots__ = ("_args", "_kwargs", "_places")

    def __init__(self, places: dict[str, int], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._places, self._args, self._kwargs = places, args, kwargs

    def get(self, name: str) -> Any:
        place = self._places.get(name, -1)
        return self._args[place] if 0 <= place < len(self._args) else self._kwargs.get(name)


def places(function: Callable[..., Any]) -> dict[str, int]:
    """The places of a function's parameters."""
    code = inspect.unwrap(function).__code__
    return {name: place for place, name in enumerate(code.co_varnames[: code.co_argcount])}
