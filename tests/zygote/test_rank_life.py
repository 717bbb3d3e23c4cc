"""What a rank finds left by its test, in a process that is forked from one with children."""

from __future__ import annotations

import multiprocessing
import os
import time

import pytest

from ddpcheck.zygote.rank_life import _leftovers


@pytest.fixture
def server():
    """A daemon of this process."""
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,), daemon=True)
    process.start()
    yield process
    process.terminate()
    process.join()


def in_a_fork(function):
    """The exit code of a fork that calls ``function``: 0 where it returns True, 1 otherwise, 2 if it raises."""
    pid = os.fork()
    if pid == 0:
        code = 2
        try:
            code = 0 if function() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_the_daemons_of_the_parent_are_left_alone(server):
    """What a conftest has started before the ranks were forked is neither ended nor a leftover."""
    assert in_a_fork(lambda: _leftovers(0) == ()) == 0
    assert server.is_alive()


def test_a_daemon_of_the_rank_is_ended(server):
    """An ordinary exit would have ended it."""

    def ended():
        own = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,), daemon=True)
        own.start()
        return _leftovers(0) == () and not own.is_alive()

    assert in_a_fork(ended) == 0
    assert server.is_alive()
