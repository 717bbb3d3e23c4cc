"""The command in a fork of one process that has imported torch, and its ranks in forks of the command.

``ddpcheck run`` and torchrun's agent are what they are; only the interpreters
are saved, which would take seconds each to import torch. Scripts that are
about interpreters (how they start, and how they end) are run by ``running.run``
without it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from tests.progress import wait_for

ROOT = Path(__file__).parents[2]
PERIOD = "TESTS_PERIOD"
"""In a command's environment: the seconds between two of its looks at the evidence."""


STATUS = "TESTS_STATUS"
"""The same between two lines on how far it is; in interpreters there is one each minute."""


class Forks:
    """The process's other end."""

    def __init__(self, process: subprocess.Popen[str], outputs: Path) -> None:
        self._process, self._outputs = process, outputs
        self._number = 0

    def ask(self, **request: Any) -> Any:
        """Send a request, and return its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def start(
        self, arguments: list[str], folder: Path, environment: dict[str, str], errors: Path | None = None
    ) -> Command:
        """Start the command, as subprocess.Popen would with the same arguments; ``errors`` takes its stderr."""
        self._number += 1
        out, err = (self._outputs / f"{name}{self._number}" for name in ("out", "err"))
        err = errors or err
        pid = self.ask(arguments=arguments, folder=str(folder), environment=environment, out=str(out), err=str(err))
        return Command(self, pid, out, err)


class Command:
    """A command that runs, with the part of subprocess.Popen that the tests use."""

    def __init__(self, forks: Forks, pid: int, out: Path, err: Path) -> None:
        self._forks, self._out, self._err = forks, out, err
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._forks.ask(ended=self.pid)
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, 9)

    def communicate(self, input: str | None = None, timeout: float | None = None) -> tuple[str, str]:
        assert input is None, "it reads nothing"
        end = time.monotonic() + timeout if timeout is not None else None
        while self.poll() is None:
            if timeout is not None and end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired("ddpcheck run", timeout)
            time.sleep(0.03)
        return self._out.read_text(), self._err.read_text()


@contextlib.contextmanager
def forking(**environment: str) -> Iterator[Forks]:
    """Have such a process for a while, with these variables in its environment from its start."""
    with tempfile.TemporaryDirectory(prefix="ddpcheck-forks-") as outputs:
        process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment},
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()  # it is ready; the seconds of its start are no command's
        yield Forks(process, Path(outputs))
        process.stdin.close()
        process.stdout.close()
        wait_for(lambda: process.poll() is not None, process)


# --- the process itself


def serve() -> None:
    """Answer each request on standard input with a line of JSON."""
    from ddpcheck.zygote.imports import import_torch

    import_torch()
    from ddpcheck.probes.all_probes import PROBES

    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where this suite's is ignored
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    for name in ("ddpcheck.run.command", "torch.distributed.run", "tests.forking"):
        importlib.import_module(name)
    for name in PROBES:
        importlib.import_module(f"ddpcheck.probes.{name}")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    answers.write("\n")
    answers.flush()
    for line in sys.stdin:
        request = json.loads(line)
        if "ended" in request:
            pid, status = os.waitpid(request["ended"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        else:
            answer = _forked(lambda request=request: _be_command(**request))
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _forked(body: Callable[[], int]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        code = body()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _be_command(arguments: list[str], folder: str, environment: dict[str, str], out: str, err: str) -> int:
    from ddpcheck import cli
    from ddpcheck.report import status_line
    from ddpcheck.run import agent, supervisor
    from tests.forking import write_to

    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    write_to(*(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) for path in (out, err)))
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # as the environment says, and not as it was when somebody first asked
    agent._agent = _with_ranks_at_hand(agent._agent)
    agent._script = _with_scripts_at_hand(agent._script)
    status_line.EVERY = float(environment.get(STATUS, status_line.EVERY))
    supervisor.PERIOD = float(environment.get(PERIOD, supervisor.PERIOD))
    return cli.main(arguments)


def _with_scripts_at_hand(start: Callable[..., NoReturn]) -> Callable[[Any], None]:
    """Have a script that starts its ranks itself without an interpreter; commands are what they are."""

    def run_script(options: Any) -> None:
        if options.kind == "command":
            start(options)
        _run_and_leave(options.script, list(options.arguments))

    return run_script


def _run_and_leave(script: str, arguments: list[str]) -> None:
    import torch

    from ddpcheck.probes import follow_program
    from tests.forking import run_and_leave

    torch.default_generator.seed()  # as in an interpreter of its own
    follow_program.begin()
    run_and_leave(script, arguments)


def _with_ranks_at_hand(agent: Callable[..., int]) -> Callable[..., int]:
    """Let torchrun's agent have ranks that were forked before it has threads, which no fork would have."""
    from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

    def with_ranks(options: Any, *given: Any) -> int:
        waiting: list[_Waiting] = []
        for _ in range(int(options.torchrun.nproc_per_node)):
            waiting.append(_Waiting(waiting))

        def popen(self: Any, args: Any, env: dict[str, str]) -> subprocess.Popen[bytes]:
            return _Rank(waiting.pop(), args, env)

        subprocess_handler.SubprocessHandler._popen = popen  # type: ignore[method-assign]
        return agent(options, *given)

    return with_ranks


class _Waiting:
    """A fork that waits for what to run."""

    def __init__(self, others: list[_Waiting]) -> None:
        read, self.write = os.pipe()
        self.pid = _forked(lambda: self._wait(read, [self.write, *(other.write for other in others)]))
        os.close(read)

    def _wait(self, read: int, writing: list[int]) -> int:
        for end in writing:
            os.close(end)
        with open(read) as told:
            text = told.read()
        if text:
            self._become_rank(**json.loads(text))
        return 1

    def _become_rank(self, script: str, arguments: list[str], environment: dict[str, str]) -> None:
        os.setsid()
        os.environ.clear()
        os.environ.update(environment)
        signal.set_wakeup_fd(-1)  # it was the agent that told of signals
        _run_and_leave(script, arguments)


class _Rank(subprocess.Popen[bytes]):
    """What subprocess has to know of a rank that was forked already."""

    def __init__(self, waiting: _Waiting, args: tuple[str, ...], env: dict[str, str]) -> None:
        self._waiting = waiting
        super().__init__(args, env=env)

    def _execute_child(self, args: tuple[str, ...], *given: Any) -> None:
        env = given[5]
        interpreter, unbuffered, script, *arguments = args
        assert (interpreter, unbuffered) == (sys.executable, "-u"), args
        self.pid = self._waiting.pid
        self._child_created = True
        with open(self._waiting.write, "w") as ask:
            json.dump({"script": script, "arguments": arguments, "environment": env}, ask)


if __name__ == "__main__":
    serve()
