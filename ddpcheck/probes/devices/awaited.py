"""Values that a device is still computing, and what is made of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any


class Awaited(ABC):
    """A value that a device is computing."""

    @abstractmethod
    def is_there(self) -> bool:
        """Whether it has arrived, or never will; any thread may ask."""

    @abstractmethod
    def told(self) -> Any:
        """The value itself; waits for it where it has not arrived."""

    @abstractmethod
    def give_up(self) -> None:
        """Wait no more: where it has not arrived, it is the value that stands for what nobody has seen."""


class Derived(Awaited):
    """A value that is made of others, once these are there."""

    def __init__(self, make: Callable[..., Any], *parts: Any) -> None:
        self._make, self._parts = make, parts

    def is_there(self) -> bool:
        """Whether it can be made; any thread may ask."""
        return all(map(is_there, self._parts))

    def told(self) -> Any:
        """The value; waits for its parts where they have not arrived."""
        return self._make(*map(told, self._parts))

    def give_up(self) -> None:
        """Wait for its parts no more."""
        give_up(list(self._parts))


def is_there(value: Any) -> bool:
    """Whether a value, or all of a container's, has arrived; what no device computes always has."""
    if isinstance(value, dict):
        return all(map(is_there, value.values()))
    if isinstance(value, list):
        return all(map(is_there, value))
    return not isinstance(value, Awaited) or value.is_there()


def told(value: Any) -> Any:
    """The value itself, or that of a container with all of its own."""
    if isinstance(value, dict):
        return {key: told(one) for key, one in value.items()}
    if isinstance(value, list):
        return [told(one) for one in value]
    return value.told() if isinstance(value, Awaited) else value


def give_up(value: Any) -> None:
    """Wait no more for a value, or for those of a container."""
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else (value,):
        if isinstance(one, Awaited):
            one.give_up()
        elif isinstance(one, (dict, list)):
            give_up(one)
