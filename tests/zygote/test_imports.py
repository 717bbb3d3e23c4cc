"""Why a process is not forked from, asked of one in each such state."""

from __future__ import annotations

import json
import sys

import pytest

from tests import progress

ASKED = """
import json, os, sys
from ddpcheck.zygote import imports as preload
preload.import_torch()
import torch
for name, state in json.loads(sys.argv[1]).items():
    if os.fork() == 0:
        safety = preload.ForkSafety()
        exec(state)
        print(json.dumps([name, safety.lost()]), flush=True)
        os.kill(os.getpid(), 9)
    os.wait()
"""

FORBIDDING = """
def backward(self):
    raise RuntimeError("Unable to handle autograd's threading in combination with fork-based multiprocessing.")
torch.Tensor.backward = backward
"""
"""What torch does in a fork, once it has a thread for each device: on a machine without devices it never does."""
GPUS = "safety.has_gpus = True; preload.children_lack_cuda = lambda: {answer}\n"
ABORT = "os.register_at_fork(after_in_child=os.abort)"
EXIT = "os.register_at_fork(after_in_child=lambda: os._exit({code}))"
TRIED = "a child that was forked to try it"

STATES = {
    "clean": ("", ""),
    "autograd": (FORBIDDING, "it ran autograd (a backward pass)"),
    "counted": (GPUS.format(answer=True), "it had CUDA count the devices, as torch.cuda.is_available() does"),
    "not counted": (GPUS.format(answer=False), ""),
    "abort": (ABORT, f"{TRIED} was killed by SIGABRT"),
    "abort with GPUs": (GPUS.format(answer=False) + ABORT, f"{TRIED} was killed by SIGABRT"),
    "exit 3": (EXIT.format(code=3), f"{TRIED} left with exit code 3"),
    "exit 0": (EXIT.format(code=0), f"{TRIED} left with exit code 0"),
    "broken": ("torch.ones = None", f"{TRIED} could not use torch"),
}
"""Code that brings about a state, and the reason that is to be given."""


@pytest.fixture(scope="module")
def reasons() -> dict[str, str]:
    """All of them, from one interpreter that has imported torch."""
    states = json.dumps({name: code for name, (code, _) in STATES.items()})
    run = progress.run([sys.executable, "-c", ASKED, states], text=True)
    assert run.returncode == 0, run.stderr
    return dict(json.loads(line) for line in run.stdout.splitlines())


@pytest.mark.parametrize("name", STATES)
@pytest.mark.few(3)
def test_why_a_process_is_not_forked_from(reasons, name):
    """Autograd and CUDA are named where they are the reason, and only there: a child may end for another one."""
    _, reason = STATES[name]
    assert reasons[name] == reason
