"""What an interpreter does with a script, in a fork of a process that has imported torch: hundredths of a second."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import math
import os
import random
import runpy
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any, NoReturn

import torch.distributed

from ddpcheck.probes.data import loader_pass
from ddpcheck.probes.processes import endings
from ddpcheck.probes.recording import pace, recorder


def write_to(out: int, err: int) -> None:
    """Make these the standard streams of a process that was forked."""
    os.dup2(out, 1)
    os.dup2(err, 2)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115


STEADY = "TESTS_STEADY"
"""Set in the environment of a program whose evidence is to be the same each time."""

ON_DEVICES = "TESTS_ON_DEVICES"
"""Set in the environment of a program whose tensors are to lie on simulated devices."""


M_PERTURB = -6
"""Of mallopt: fill memory with this byte, or its complement, when it is handed out or taken back."""


def be_steady() -> None:
    """Fix how often probes look, streams that a program does not seed, and memory that it does not write to."""
    pace.BUDGET = loader_pass.GRACE = math.inf
    rank = int(os.environ.get("RANK", 0))
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):  # glibc's: memory that nothing was written to
        mallopt(M_PERTURB, 0x55 + rank)
    random.seed(rank)
    torch.manual_seed(rank)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(rank)


def run_and_leave(script: str, arguments: list[str]) -> NoReturn:
    """Run a script that is watched already, and end this process as its interpreter would, but for C++ destructors.

    The groups are kept, or a script that lets go of the last one might wait
    for ever: torch 2.13 joins gloo's threads with the interpreter locked, and
    they may need it.
    """
    code = 1
    try:
        # What the process that was forked wants done at its own end: folders that are not ours to remove, and hundreds
        # of torch's libraries, a quarter of what a short script costs.
        weakref.finalize._registry.clear()  # type: ignore[attr-defined]
        torch.set_num_threads(1)
        if STEADY in os.environ:
            be_steady()
        if ON_DEVICES in os.environ:
            from tests import on_devices

            on_devices.begin()
        sys.argv = [script, *arguments]
        sys.path.insert(0, os.path.dirname(script))
        endings.GLOO_REST = 0.0
        torch.distributed.destroy_process_group = _keeping(torch.distributed.destroy_process_group)
        code = _interpreted(script)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        getattr(os._exit, "__wrapped__", os._exit)(code)


def _keeping(destroy: Callable[..., Any]) -> Callable[..., Any]:
    kept: list[Any] = []

    def destroy_process_group(*args: Any, **kwargs: Any) -> Any:
        kept.extend(torch.distributed.distributed_c10d._world.pg_map)
        return destroy(*args, **kwargs)

    return destroy_process_group


def _interpreted(script: str) -> int:
    """What an interpreter does with a script: run it, show what it raised, wait for its threads, say that it ends."""
    code = 0
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__.tb_next if error.__traceback__ else None)
        code = 1
    with contextlib.suppress(Exception):
        threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    recorder.stop()
    return code
