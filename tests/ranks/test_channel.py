"""Connections, and what becomes of them where a test takes their descriptor."""

from __future__ import annotations

import os
import socket

import pytest

from ddpcheck.ranks import descriptors, messages, stacks
from ddpcheck.ranks.channel import Channel, Closed, Taken


@pytest.fixture
def ends():
    """The two ends of a connection."""
    one, other = (Channel(end) for end in socket.socketpair())
    yield one, other
    one.close()
    other.close()


def test_what_is_sent_arrives(ends):
    """As the message that it was."""
    one, other = ends
    one.send(messages.Collect(path="x"))
    assert other.receive() == messages.Collect(path="x")
    assert other.next() is None


def test_out_of_reach(ends):
    """A connection that was moved has a high descriptor, that programs do not inherit, and is the same connection."""
    one, other = ends
    moved = one.moved_out_of_reach()
    assert moved.fileno() >= 256
    assert not os.get_inheritable(moved.fileno())
    moved.send(messages.Stop())
    assert other.receive() == messages.Stop()
    moved.close()
    with pytest.raises(Closed):
        other.receive()


@pytest.mark.parametrize("use", ["send", "receive", "close"])
def test_a_descriptor_that_is_a_file_now_is_left_alone(ends, tmp_path, use):
    """The file that has the connection's number gets not a byte of it, and stays open."""
    one, _ = ends
    number = one.fileno()
    os.close(number)
    held = os.open(tmp_path / "users", os.O_RDWR | os.O_CREAT)
    os.dup2(held, number)
    if use == "close":
        one.close()
    else:
        with pytest.raises(Taken, match=f"descriptor {number}, .* was closed by the test"):
            one.send(messages.Stop()) if use == "send" else one.receive()
        one.close()
    assert os.fstat(number).st_size == 0
    for left in {number, held}:
        os.close(left)


def test_a_descriptor_that_is_closed_is_told(ends):
    """It is no lost peer."""
    one, _ = ends
    os.close(one.fileno())
    with pytest.raises(Taken):
        one.send(messages.Stop())


def test_no_stack_is_asked_for_where_its_file_is_closed(tmp_path):
    """The handler would write into whatever has its number: a process that has closed the file gets no signal."""
    path = stacks.stack_file(str(tmp_path), 0)
    path.touch()
    assert not descriptors.holds(os.getpid(), os.fspath(path))
    assert stacks.take(str(tmp_path), {0: os.getpid()}, patience=0.1) == {0: ""}  # the signal would have ended this
    with path.open():
        assert descriptors.holds(os.getpid(), os.fspath(path))
