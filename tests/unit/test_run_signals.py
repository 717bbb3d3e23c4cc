"""Signals that ask a run to end, and those that this command was started to ignore."""

from __future__ import annotations

import signal

import pytest

from ddpcheck.run.signals import Signals


@pytest.fixture
def in_the_background():
    """Ignore SIGINT, as a shell has it in what it starts in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("launched", [True, False])
def test_what_is_ignored(in_the_background, launched):
    """torchrun's agent takes SIGINT all the same; a script that is run as it is does not, and it is nobody's wish."""
    with Signals(launched) as signals:
        signal.raise_signal(signal.SIGINT)
        assert (signals.first is not None) == launched
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_what_is_not_ignored(in_the_background):
    """SIGTERM asks for an end, whatever becomes of SIGINT."""
    with Signals(launched=False) as signals:
        signal.raise_signal(signal.SIGTERM)
        assert signals.first is not None
        assert signals.first.signal == signal.SIGTERM
