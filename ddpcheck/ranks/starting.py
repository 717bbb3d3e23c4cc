"""How the processes of a test's ranks are started: forked from here, or as interpreters of their own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import NoReturn

from msgspec.structs import replace

from ddpcheck.model import Plan
from ddpcheck.ranks import group, wire
from ddpcheck.ranks.channel import Channel
from ddpcheck.ranks.processes import ExitWatch
from ddpcheck.ranks.watched import StartedRank


def fork_ranks(plan: Plan, control: Channel, enter: Callable[[int, Channel, int], NoReturn]) -> list[StartedRank]:
    """Fork all ranks; in each, ``enter(rank, channel, parent)`` takes over for good."""
    parent = os.getpid()
    started: list[StartedRank] = []
    for rank in range(plan.world_size):
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            # A rank holds nothing of its siblings: a held end would hide a death.
            ours.close()
            control.close()
            for other in started:
                other.channel.close()
                other.watch.close()
            enter(rank, Channel(theirs), parent)
        theirs.close()
        started.append(StartedRank(rank, ExitWatch(pid), Channel(ours)))
    return started


def start_interpreters(plan: Plan, hello: wire.Hello, run_dir: str) -> list[StartedRank]:
    """Start an interpreter for each rank; each imports torch and collects the test by itself."""
    started: list[StartedRank] = []
    for rank in range(plan.world_size):
        ours, theirs = socket.socketpair()
        with theirs:
            # Before anything is imported: a module may ask CUDA for its devices, which it then keeps to.
            environment = dict(os.environ) | group.environment(plan, rank, run_dir)
            process = launch("ddpcheck.ranks.fresh", [theirs.fileno()], hello.sys_path, environment)
        channel = Channel(ours)
        channel.send(replace(hello, plan=plan, rank=rank, runtime_dir=run_dir))
        started.append(StartedRank(rank, ExitWatch(process.pid), channel))
        process.returncode = 0  # the exit is watched elsewhere; this object must not wait for it
    return started


def launch(
    module: str, descriptors: list[int], sys_path: list[str], environment: dict[str, str], *texts: str, **popen: object
) -> subprocess.Popen[bytes]:
    """Start ``module.main(*descriptors, *texts)`` in an interpreter with this one's import path and flags."""
    # Garbage is collected again once torch is imported (preload.py): that is a tenth of the time, for nothing.
    code = (
        "import gc, json, sys; gc.disable(); sys.path[:] = json.loads(sys.argv[2]); "
        f"from {module} import main; main(*json.loads(sys.argv[1]))"
    )
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    process: subprocess.Popen[bytes] = subprocess.Popen(
        [sys.executable, *flags, "-c", code, json.dumps([*descriptors, *texts]), json.dumps(sys_path)],
        pass_fds=descriptors,
        env=environment,
        stdin=subprocess.DEVNULL,
        **popen,  # type: ignore[call-overload]
    )
    return process
