"""What starts the ranks needs no standard streams."""

from __future__ import annotations

import io
import sys

import pytest

from ddpcheck.run import agent


class Unread(io.StringIO):
    """A pipe that nobody reads from any more."""

    def flush(self) -> None:
        raise BrokenPipeError


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("stream", [None, Unread(), closed()], ids=["none", "unread", "closed"])
@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_streams_that_are_not_there(name, stream, monkeypatch):
    """They were closed before the command was started, or since; the other one is flushed all the same."""
    flushed = []
    other = io.StringIO()
    other.flush = lambda: flushed.append(True)  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdout", other)
    monkeypatch.setattr(sys, "stderr", other)
    monkeypatch.setattr(sys, name, stream)
    agent._flush()
    assert flushed == [True]
