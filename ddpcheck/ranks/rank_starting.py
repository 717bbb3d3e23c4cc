"""How the processes of a test's ranks are started: forked from here, or as interpreters of their own."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import NoReturn

from msgspec.structs import replace

from ddpcheck.ranks import messages, process_group
from ddpcheck.ranks.channel import Channel
from ddpcheck.ranks.process_ties import ExitWatch
from ddpcheck.ranks.rank_record import StartedRank
from ddpcheck.vocabulary.model import Plan


class CannotStart(Exception):
    """Ranks could not be started, and those that were are gone again; says why."""


def fork_ranks(plan: Plan, control: Channel, enter: Callable[[int, Channel, int], NoReturn]) -> list[StartedRank]:
    """Fork all ranks; in each, ``enter(rank, channel, parent)`` takes over for good."""
    parent = os.getpid()

    def start(rank: int, ours: socket.socket, theirs: socket.socket) -> int:
        pid = os.fork()
        if pid == 0:
            try:
                # A rank holds nothing of its siblings: a held end would hide a death.
                ours.close()
                control.close()
                for other in started:
                    other.channel.close()
                    other.watch.close()
                enter(rank, Channel(theirs), parent)
            finally:
                os._exit(1)  # what comes after this is its parent's
        return pid

    started: list[StartedRank] = []
    _start_all(plan, started, start)
    return started


def start_interpreters(plan: Plan, hello: messages.Hello, run_dir: str) -> list[StartedRank]:
    """Start an interpreter for each rank; each imports torch and collects the test by itself."""

    def start(rank: int, ours: socket.socket, theirs: socket.socket) -> int:
        # Before anything is imported: a module may ask CUDA for its devices, which it then keeps to.
        environment = dict(os.environ) | process_group.environment(plan, rank, run_dir)
        process = launch("ddpcheck.zygote.rank_without_fork", [theirs.fileno()], hello.sys_path, environment)
        process.returncode = 0  # the exit is watched elsewhere; this object must not wait for it
        return process.pid

    started: list[StartedRank] = []
    _start_all(plan, started, start)
    for one in started:
        one.channel.send(replace(hello, plan=plan, rank=one.rank, runtime_dir=run_dir))
    return started


def _start_all(
    plan: Plan, started: list[StartedRank], start: Callable[[int, socket.socket, socket.socket], int]
) -> None:
    """Add all ranks to ``started``, or, where one cannot be, none, and raise CannotStart."""
    try:
        for rank in range(plan.world_size):
            with contextlib.ExitStack() as undo:
                ours, theirs = (undo.enter_context(end) for end in socket.socketpair())
                pid = start(rank, ours, theirs)
                theirs.close()
                undo.pop_all()
                started.append(StartedRank(rank, ExitWatch(pid), Channel(ours)))
    except OSError as error:
        text = f"rank {len(started)} of {plan.world_size} could not be started: {why(error)}"
        for one in started:
            one.discard()
        raise CannotStart(text) from error


def why(error: OSError) -> str:
    """What this machine would not give, and which limit that is."""
    if error.errno == errno.EMFILE:
        return f"{error}; a process may have {resource.getrlimit(resource.RLIMIT_NOFILE)[0]} (ulimit -n)"
    if error.errno == errno.EAGAIN:
        return f"{error}; there are as many processes as there may be (ulimit -u, or the container's limit)"
    return str(error)


def launch(
    module: str, descriptors: list[int], sys_path: list[str], environment: dict[str, str], *texts: str, **popen: object
) -> subprocess.Popen[bytes]:
    """Start ``module.main(*descriptors, *texts)`` in an interpreter with this one's import path and flags."""
    # Garbage is collected again once torch is imported (zygote/imports.py): that is a tenth of the time, for nothing.
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
