"""The function that a thread stands in, by its instruction: at every call of functions that are stopped in midst."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from ddpcheck.probes.processes.awaited_function import awaited, called


class Stopped:
    """Whoever calls something of it is looked at, as another thread would see it."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def look(self, depth: int) -> None:
        frame = sys._getframe(depth)
        self.seen.append(called(frame.f_code, frame.f_lasti))

    def item(self, *args: Any, **kwargs: Any) -> int:
        self.look(2)
        return 1

    def other(self, *args: Any) -> int:
        return 1

    def __float__(self) -> float:
        self.look(2)
        return 1.0


def _method(x: Stopped) -> None:
    x.item()


def _within(x: Stopped) -> None:
    print("loss", 3 + x.item(), x.other(), end="", file=sys.stderr)


def _with_arguments(x: Stopped) -> None:
    x.item(x.other(1, 2), [1, 2, 3], x.other() + 4)


def _with_names(x: Stopped) -> None:
    x.item(1, two=x.other(), three={"a": 1})


def _of_an_attribute(x: Stopped) -> None:
    class Held:
        loss = x

    Held.loss.item()


def _builtin(x: Stopped) -> None:
    float(x)


@pytest.mark.parametrize(
    ("program", "name"),
    [
        (_method, "item"),
        (_within, "item"),
        (_with_arguments, "item"),
        (_with_names, "item"),
        (_of_an_attribute, "item"),
        (_builtin, "float"),
    ],
)
def test_the_function_that_is_called_is_named(program: Callable[[Stopped], None], name: str) -> None:
    """Whatever stands between its name and the call, in each version of Python."""
    stopped = Stopped()
    program(stopped)
    assert stopped.seen == [name]


def _sleeps(x: Stopped) -> None:
    import time

    time.sleep(x.item())


def _asked(x: Any) -> None:
    while x and int(x) and float(x):
        x = bool(x)


def test_what_is_asked_of_anything_is_no_wait_for_a_device() -> None:
    """A number, or a text, has a truth and a value as well; a loop that computes is met there all the time."""
    offsets = range(0, len(_asked.__code__.co_code), 2)
    assert {awaited(_asked.__code__, at) for at in offsets} == {""}


def test_what_else_is_called_does_not_wait_for_a_device() -> None:
    """By the name alone: what is called ``sleep`` waits for something else."""
    offsets = range(0, len(_sleeps.__code__.co_code), 2)
    assert {awaited(_sleeps.__code__, at) for at in offsets} == {"item", ""}
    assert {called(_sleeps.__code__, at) for at in offsets} >= {"sleep", "item"}


def test_an_instruction_that_is_not_there_names_nothing() -> None:
    """A frame that has not begun has none."""
    assert called(_method.__code__, -1) == ""
    assert awaited((lambda: [1]).__code__, 0) == ""


def test_a_function_that_cannot_be_told_is_none() -> None:
    """Where its arguments are chosen on the way, or it has no name."""

    def chosen(x: Stopped) -> None:
        x.item(1 if x.other() else 2)

    def nameless(x: list[Any]) -> None:
        x[0]()

    stopped = Stopped()
    chosen(stopped)
    nameless([lambda: stopped.look(2)])
    assert stopped.seen == ["", ""]
