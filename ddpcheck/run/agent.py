"""The process that starts a script's ranks: torchrun's own agent, or the script itself."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from ddpcheck.evidence import Began, ChildEnded, Launched
from ddpcheck.observe import startup
from ddpcheck.observe.following import COLLECTOR, FOLDER, LIMIT
from ddpcheck.observe.recorder import Recorder
from ddpcheck.run.options import Options

_PR_SET_PDEATHSIG = 1


def start(options: Options, evidence: Path, collector: str | None) -> int:
    """Start the ranks in a child process; its pid."""
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        _die_with(parent)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _follow(options, evidence, collector)
        if options.launched:
            code = _agent(options, evidence)
        else:
            _script(options)
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _die_with(parent: int) -> None:
    """End this process when its parent has ended, by whatever signal (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)


def _follow(options: Options, evidence: Path, collector: str | None) -> None:
    """Let every interpreter that is started from here record what it does."""
    folder = str(Path(startup.__file__).parent)
    paths = [folder, *filter(None, [os.environ.get("PYTHONPATH", "")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    os.environ[FOLDER] = str(evidence)
    os.environ[LIMIT] = str(options.limit)
    if collector is not None:
        os.environ[COLLECTOR] = collector


def _agent(options: Options, evidence: Path) -> int:
    """torchrun itself, and a record of how each rank's process ended."""
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, record

    with _told(evidence):
        try:
            record(run.run)(options.torchrun)
        except ChildFailedError as error:
            print(str(error), file=sys.stderr)
            return 1
        except SystemExit as leaving:
            return leaving.code if isinstance(leaving.code, int) else 1
        except KeyboardInterrupt:
            return 130
        except Exception as error:
            print(f"torchrun: {type(error).__name__}: {error}", file=sys.stderr)
            return 1
    return 0


@contextlib.contextmanager
def _told(evidence: Path) -> Iterator[None]:
    """Write down which processes the agent has started in the meantime, and how they ended; if that is possible."""
    started: list[Any] = []
    writer = None
    with contextlib.suppress(Exception):  # no room for evidence, or another torch: the ranks run all the same
        writer = Recorder(evidence, 1 << 20)
        _watch(writer, started)
    try:
        yield
    finally:
        if writer is not None:
            for process in started:
                with contextlib.suppress(Exception):
                    code = process.wait(timeout=1)
                    writer.write(
                        ChildEnded(
                            **writer.next(),
                            pid=process.pid,
                            code=code if code >= 0 else None,
                            signal=-code if code < 0 else None,
                        )
                    )
            writer.close()


def _watch(writer: Recorder, started: list[Any]) -> None:
    from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

    writer.write(
        Began(
            **writer.next(),
            pid=os.getpid(),
            parent=os.getppid(),
            host=os.uname().nodename,
            node=0,
            argv=[],
            folder="",
            wall=0.0,
        )
    )
    original = subprocess_handler.SubprocessHandler._popen

    def popen(self: Any, args: Any, env: Any, *more: Any, **options: Any) -> Any:
        process = original(self, args, env, *more, **options)
        started.append(process)
        with contextlib.suppress(Exception):
            rank = str(env.get("RANK", ""))
            writer.write(Launched(**writer.next(), pid=process.pid, rank=int(rank) if rank.isdecimal() else None))
        return process

    subprocess_handler.SubprocessHandler._popen = popen  # type: ignore[method-assign]


def _script(options: Options) -> NoReturn:
    """The script in an interpreter of its own, as ``python script.py`` would run it."""
    arguments = [sys.executable, *(["-m"] if options.module else []), options.script, *options.arguments]
    if options.torchrun.no_python:
        arguments = [options.script, *options.arguments]
    os.execvp(arguments[0], arguments)
