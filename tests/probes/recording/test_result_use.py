"""Whether a caller uses what it gets."""

from __future__ import annotations

import sys

import pytest

from ddpcheck.probes.recording.result_use import is_thrown_away

told = []


def asked(*_, **more):
    told.append(is_thrown_away(sys._getframe(1)))
    return more


def handed_on(*given):
    return asked(*given, strict=False)


def thrown_away():
    asked(1, strict=False)


def in_the_end():
    asked()
    handed_on(1)
    for _ in range(2):
        asked(strict=False)
    if told:
        asked(*told, **dict.fromkeys(["strict"]))


def looked_at():
    result = asked(1, strict=False)
    print(asked())
    assert asked(strict=False)["strict"] is False
    assert handed_on()
    [asked() for _ in range(2)]
    return result


@pytest.mark.parametrize(("caller", "expected"), [
    (thrown_away, [True]), (in_the_end, [True] * 5), (looked_at, [False] * 6),
])  # fmt: skip
def test_a_result(caller, expected):
    """Thrown away by an expression that stands alone, here or where it was handed on to."""
    told.clear()
    caller()
    assert told == expected
