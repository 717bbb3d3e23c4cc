"""Signals that ask a run to end, and those that this command was started to ignore."""

from __future__ import annotations

import os
import signal

import pytest

from ddpcheck.run.signals import ASKING, Signals, listed


@pytest.fixture(autouse=True)
def none_ignored():
    """Signals end a process, whatever this suite was started under."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


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


def handed_on(monkeypatch, *told):
    """What a script by itself gets of three SIGHUPs, one of which its process group had as well."""
    now = [100.0]
    sent = []
    monkeypatch.setattr("ddpcheck.run.signals.time.monotonic", lambda: now[0])
    with Signals(launched=False) as signals:
        monkeypatch.setattr("ddpcheck.run.signals.os.kill", lambda pid, number: sent.append((number, round(now[0]))))
        for at in (100.0, 110.0, 120.0):
            now[0] = at
            if at in told:
                os.write(signals._tell, bytes([signal.SIGHUP]))
            signal.raise_signal(signal.SIGHUP)
            signals.listen()
            for later in (0.1, 0.3, 0.4):
                now[0] = at + later
                signals.hand_on(1 << 30)
        assert not signals.again
    return sent


@pytest.mark.parametrize(("told", "gets"), [((), [100, 110, 120]), ((110.0,), [100, 120]), ((100.0, 120.0), [110])])
def test_a_script_by_itself_gets_each_signal(monkeypatch, told, gets):
    """It may live through any number, as one that opens its log anew; those of its process group it has had."""
    assert handed_on(monkeypatch, *told) == [(signal.SIGHUP, at) for at in gets]


def test_two_signals_one_after_the_other(monkeypatch):
    """Another signal is not taken for the first one again."""
    sent = []
    with Signals(launched=False) as signals:
        monkeypatch.setattr("ddpcheck.run.signals.BY_ITSELF", 0.0)
        monkeypatch.setattr("ddpcheck.run.signals.os.kill", lambda pid, number: sent.append(number))
        for number in (signal.SIGHUP, signal.SIGHUP, signal.SIGTERM):
            signal.raise_signal(number)
            signals.hand_on(1 << 30)
    assert sent == [signal.SIGHUP, signal.SIGTERM]


def test_no_process_beside_the_script(monkeypatch):
    """Where the machine refuses the one that tells of signals, the script runs, and gets them from here."""

    def refused():
        raise OSError("no process")

    with Signals(launched=False) as signals:
        with monkeypatch.context() as patched:
            patched.setattr(os, "fork", refused)
            signals.report_from_beside()
        signal.raise_signal(signal.SIGTERM)
        assert signals.first is not None


@pytest.mark.parametrize(
    ("names", "more"),
    [
        ("SIGTERM, SIGUSR1,SIGUSR2", {signal.SIGUSR1, signal.SIGUSR2}),
        ("SIGTERM,SIGKILL,SIGCHLD,getsignal,SIGNONE,", set()),
        (None, set()),
    ],
)
def test_what_torchrun_is_told_to_hand_on(names, more):
    """It is taken here as well, and those that no process can take are left to torchrun; older ones have no option."""
    before = signal.getsignal(signal.SIGUSR1)
    with Signals(True, listed(names)) as signals:
        assert set(signals.asking) == {*ASKING, *more}
        if more:
            signal.raise_signal(signal.SIGUSR1)
            assert signals.first is not None
            assert signals.first.signal == signal.SIGUSR1
            os.write(signals._tell, bytes([signal.SIGUSR1]))
            signals.listen()
            assert signals._settled, "the agent has told of it"
    assert signal.getsignal(signal.SIGUSR1) is before
