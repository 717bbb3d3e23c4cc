"""What modules are called: each name tells it from the others of its folder, and none is a drawer."""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests.package.sources import FILES

DRAWERS = {"utils", "util", "helpers", "helper", "common", "misc", "base", "core", "types"}
ENDINGS = ("ings", "ing", "ers", "er", "ies", "ed", "es", "s", "e", "y")


def without_ending(name: str) -> str:
    """A name of which each word is as short as it is alike: ``wait`` for ``waiting``, ``plan`` for ``planned``."""
    return "_".join(_stem(word) for word in name.split("_"))


def _stem(word: str) -> str:
    for ending in ENDINGS:
        stem = word.removesuffix(ending)
        if stem != word and len(stem) >= 3:
            return stem[:-1] if ending not in ("s", "e", "y") and stem[-1] == stem[-2] else stem
    return word


@pytest.mark.parametrize(
    "names",
    [
        ("order", "orders"),
        ("wait", "waits", "waiting"),
        ("load", "loads", "loading", "loader"),
        ("share", "shares", "sharing", "shared"),
        ("plan", "plans", "planned", "planning"),
        ("copy", "copies"),
        ("call_log", "calls_log"),
    ],
)
def test_an_ending_is_known(names):
    """Words with and without one come to the same."""
    assert len({without_ending(name) for name in names}) == 1


@pytest.mark.parametrize("names", [("call_log", "every_call"), ("step", "stop"), ("model_state", "model_and_data")])
def test_other_words_are_told_apart(names):
    """What is more than another ending is another name."""
    assert len({without_ending(name) for name in names}) == len(names)


def test_no_two_modules_of_a_folder_differ_by_an_ending():
    """Nobody can keep ``order`` and ``orders``, or ``load``, ``loads`` and ``loading``, apart."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name in FILES:
        folder, _, last = name.rpartition(".")
        found[folder, without_ending(last)].append(name)
    assert [names for names in found.values() if len(names) > 1] == []


def test_no_module_is_a_drawer():
    """Everything has a home with a name of its own."""
    assert [name for name in FILES if DRAWERS & set(name.rpartition(".")[2].split("_"))] == []
