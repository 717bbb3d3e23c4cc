"""The bodies of tests that do not pass, one function for each kind in scenarios.py."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import random
import re
import signal
import subprocess
import sys
import time
from typing import Any, NoReturn

import pytest
import torch
import torch.distributed as dist
from bodies_common import culprit, daemonise, meet, model_of, train

import ddpcheck

# --- what one rank raises


def fails_on_one_rank(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    if culprit(ddp, number):
        time.sleep(random.Random(number).choice([0, 0.05]))
        assert number == number + 1
    train(ddp, number)
    meet()


def raises_on_both(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    meet()
    raise ValueError(f"both {number}")


def raises_in_backward(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    model = ddp.wrap(model_of(number))

    def raising(gradient: torch.Tensor) -> NoReturn:
        raise ValueError(f"in backward {number}")

    if culprit(ddp, number):
        next(model.parameters()).register_hook(raising)
    model(torch.ones(4, 8)).sum().backward()
    meet()


def raises_keyboard_interrupt(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    if culprit(ddp, number):
        raise KeyboardInterrupt
    meet()


def recurses_for_ever(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    if culprit(ddp, number):
        recurses_for_ever(ddp, number, request)
    meet()


class Unprintable(Exception):
    def __str__(self) -> NoReturn:
        raise RuntimeError("no text")

    __repr__ = __str__


def raises_the_unprintable(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    if culprit(ddp, number):
        raise Unprintable
    meet()


def raises_at_length(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    if culprit(ddp, number):
        raise ValueError("x" * 1_000_000 + "\udc80\x00\x1b[31m")
    meet()


def fails_with_a_daemon(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    daemonise()
    subprocess.Popen(["sleep", "300"])
    if culprit(ddp, number):
        raise ValueError(f"with a daemon {number}")
    meet()


def fails_in_setup(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    meet()


def fails_in_teardown(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    meet()


# --- what ends a rank


def dies_of_segv(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    if culprit(ddp, number):
        ctypes.string_at(0)
    meet()


def dies_of_kill(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    if culprit(ddp, number):
        os.kill(os.getpid(), signal.SIGKILL)
    train(ddp, number)
    meet()


def dies_of_abort(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    if culprit(ddp, number):
        os.abort()
    meet()


def dies_of_term(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    if culprit(ddp, number):
        os.kill(os.getpid(), signal.SIGTERM)
    meet()


def kills_its_peer(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    (ddp.tmp_path / f"pid{ddp.rank}").write_text(str(os.getpid()))
    meet()
    if culprit(ddp, number):
        os.kill(int((ddp.tmp_path / f"pid{1 - ddp.rank}").read_text()), signal.SIGKILL)
    meet()


def both_die(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    meet()
    os.kill(os.getpid(), signal.SIGKILL)


def leaves_with_0(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    train(ddp, number)
    if culprit(ddp, number):
        os._exit(0)
    meet()


def leaves_with_3(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    if culprit(ddp, number):
        os._exit(3)
    train(ddp, number)
    meet()


def leaves_by_system_exit(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    if culprit(ddp, number):
        sys.exit(0)
    meet()


# --- what never ends


def hangs_asleep(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    if culprit(ddp, number):
        time.sleep(300)
    meet()


def hangs_in_native_code(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    if culprit(ddp, number):
        re.match("(a+)+$", "a" * 60 + "b")  # for ages, and never lets go of the GIL
    meet()


def hangs_on_another_collective(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    train(ddp, number)
    if culprit(ddp, number):
        dist.recv(torch.ones(4), src=1 - ddp.rank, tag=7)
    meet()


def hangs_stopped(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    if culprit(ddp, number):
        os.kill(os.getpid(), signal.SIGSTOP)
    meet()


def hangs_in_teardown(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    meet()


def waits_in_an_assertion(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    model = ddp.wrap(model_of(number))
    if culprit(ddp, number):
        ddpcheck.assert_replicas_identical(model)
    meet()


# --- what skips, or is expected to fail


def skips(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    pytest.skip("on all ranks")


def skipped_by_mark(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    os.abort()


def skips_on_one_rank(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    if culprit(ddp, number):
        pytest.skip("on one rank")
    meet()


def expected_to_raise(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    if culprit(ddp, number):
        raise ValueError("as expected")
    meet()


def expected_otherwise(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    if culprit(ddp, number):
        raise TypeError("not as expected")
    meet()


def expected_to_die(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    if culprit(ddp, number):
        faulthandler.disable()
        os.abort()
    meet()


def passes_unexpectedly(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    meet()


# --- what ddpcheck's assertions find


def violates_replicas(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    model = train(ddp, number)
    if culprit(ddp, number):
        with torch.no_grad():
            next(model.parameters())[0, 0] += 1
    ddpcheck.assert_replicas_identical(model)
    meet()


def violates_gradients(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    model = train(ddp, number)
    if culprit(ddp, number):
        gradient = next(model.parameters()).grad
        assert gradient is not None
        gradient *= 2
    ddpcheck.assert_gradients_identical(model)
    meet()


def asserts_on_one_rank(ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    model = train(ddp, number)
    if culprit(ddp, number):
        ddpcheck.assert_replicas_identical(model)
