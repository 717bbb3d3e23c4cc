"""The line of a constructor that registers a buffer is told where its text names it once, and itself."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.judging.registered_buffers import registering_line
from ddpcheck.judging.world import Process

BEGIN = "    def __init__(self, other):\n        super().__init__()\n"


def asked(body, function="__init__", text=BEGIN):
    process = Process()
    process.add([ev.Site(n=0, at=0.0, id=3, file="net.py", line=10, function=function, text="", first=10,
                         body=f"{text}        {body}\n" if body else "")])  # fmt: skip
    found = registering_line(process, 3, "mask")
    return found and (found.file, found.line)


@pytest.mark.parametrize("body", [
    'self.register_buffer("mask", ones(3))',
    'self.register_buffer(tensor=ones(3), name="mask")',
    'if other: self.register_buffer("mask", None)',
])  # fmt: skip
def test_the_line(body):
    assert asked(body) == ("net.py", 12)


@pytest.mark.parametrize("body", [
    'self.register_buffer("other", ones(3))',
    'self.register_buffer(other, ones(3))',
    'other.register_buffer("mask", ones(3))',
    'self.register_parameter("mask", None)',
    'self.register_buffer("mask", a); self.register_buffer("mask", b)',
    "self.register_buffer(",
])  # fmt: skip
def test_where_it_is_not_said(body):
    assert asked(body) is None


def test_another_text():
    """What is on record is another function's, or nothing, or no line at all."""
    good = 'self.register_buffer("mask", ones(3))'
    assert asked(good, function="build") is None
    assert asked("", text="") is None
    assert registering_line(Process(), 3, "mask") is None
