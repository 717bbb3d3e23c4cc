"""The process that starts a script's ranks: torchrun's own agent, or the script itself."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from ddpcheck.evidence import ORACLE, Began, ChildEnded, Launched
from ddpcheck.probes import startup
from ddpcheck.probes.follow_program import COLLECTOR, FOLDER, LIMIT
from ddpcheck.probes.recording.recorder import Recorder
from ddpcheck.report.status_line import StatusLine
from ddpcheck.run.options import Options, WrongUsage, read_by_torchrun
from ddpcheck.run.signals import Signals
from ddpcheck.vocabulary import regular_files

_PR_SET_PDEATHSIG = 1

_CLOSING = "torchrun.txt"
"""In the folder of evidence: what torchrun prints last, which ranks failed and how, until our report is shown."""


def start(options: Options, evidence: Path, collector: str | None, signals: Signals, status: StatusLine) -> int:
    """Start the ranks in a child process; its pid."""
    _flush()
    parent = os.getpid()
    if not options.launched:
        signals.report_from_beside()
    pid = signals.fork()
    if pid:
        return pid
    code = 1
    try:
        _die_with(parent)
        _follow(options, evidence, collector)
        if options.launched:
            signals.report_from_here()
            code = _agent(options, evidence)
        else:
            _script(options)
    finally:
        _flush()
        if os.getppid() != parent:
            status.give_back_for_parent()
            print_closing_words(evidence)
            _flush()
        os._exit(code)


def _flush() -> None:
    """Let nothing that was printed be printed twice: there may be no such streams, or nobody who reads them."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()


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
    if options.oracle:
        os.environ[ORACLE] = "1"
    if collector is not None:
        os.environ[COLLECTOR] = collector


def _agent(options: Options, evidence: Path) -> int:
    """torchrun itself, and a record of how each rank's process ended."""
    try:
        torchruns = read_by_torchrun(options)
    except WrongUsage as error:
        print(f"torchrun: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, record

    with _told(evidence):
        try:
            record(run.run)(torchruns)
        except ChildFailedError as error:
            _print_later(str(error), evidence)
            return 1
        except SystemExit as leaving:
            return leaving.code if isinstance(leaving.code, int) else 1
        except KeyboardInterrupt:
            return 130
        except Exception as error:
            print(f"torchrun: {type(error).__name__}: {error}", file=sys.stderr)
            return 1
    return 0


def _print_later(text: str, evidence: Path) -> None:
    """Have torchrun's closing words printed below our report; at once, where they cannot be kept until then."""
    try:
        (evidence / _CLOSING).write_text(text, encoding="utf-8", errors="surrogateescape")
    except (OSError, UnicodeError):
        print(text, file=sys.stderr)


def print_closing_words(evidence: Path) -> None:
    """Print what torchrun has to say at the end of a run that failed, once."""
    with contextlib.suppress(OSError, UnicodeError):
        text = regular_files.read(evidence / _CLOSING).decode("utf-8", "surrogateescape")
        (evidence / _CLOSING).unlink(missing_ok=True)
        print(text, file=sys.stderr)


@contextlib.contextmanager
def _told(evidence: Path) -> Iterator[None]:
    """Write down which processes the agent has started in the meantime, and how they ended; if that is possible."""
    started: list[_Started] = []
    writer = None
    with contextlib.suppress(Exception):  # no room for evidence, or another torch: the ranks run all the same
        writer = Recorder(evidence, 1 << 20)
        _watch(writer, started)
    try:
        yield
    finally:
        if writer is not None:
            for one in started:
                with contextlib.suppress(Exception):
                    code = one.process.wait(timeout=1)
                    writer.write(
                        ChildEnded(
                            **{**writer.next(), "at": one.ended_at},
                            pid=one.process.pid,
                            code=code if code >= 0 else None,
                            signal=-code if code < 0 else None,
                            asked=one.asked,
                        )
                    )
            writer.close()


def _watch(writer: Recorder, started: list[_Started]) -> None:
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
            wall=time.time(),
        )
    )
    handler = subprocess_handler.SubprocessHandler
    start = handler._popen

    def popen(self: Any, args: Any, env: Any, *more: Any, **options: Any) -> Any:
        process = start(self, args, env, *more, **options)
        with contextlib.suppress(Exception):
            started.append(_Started(process))
            rank = str(env.get("RANK", ""))
            writer.write(Launched(**writer.next(), pid=process.pid, rank=int(rank) if rank.isdecimal() else None))
        return process

    handler._popen = popen  # type: ignore[method-assign]
    close = handler.close

    def ask_to_end(self: Any, *args: Any, **kwargs: Any) -> Any:
        for one in started:
            one.asked |= one.process is self.proc and one.ended_at is None
        return close(self, *args, **kwargs)

    handler.close = ask_to_end  # type: ignore[method-assign]


class _Started:
    """A process that the agent has started; when it was first seen to have ended, and whether it was asked to."""

    def __init__(self, process: Any) -> None:
        self.process = process
        self.ended_at: float | None = None
        self.asked = False
        process.poll = self._noting(process.poll)
        process.wait = self._noting(process.wait)

    def _noting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def noting(*args: Any, **kwargs: Any) -> Any:
            code = original(*args, **kwargs)
            if code is not None and self.ended_at is None:
                self.ended_at = time.monotonic()
            return code

        return noting


def _script(options: Options) -> NoReturn:
    """The script in an interpreter of its own, as ``python script.py`` would run it; a command as it is."""
    arguments = [options.script, *options.arguments]
    if options.kind != "command":
        arguments = [sys.executable, *(["-m"] if options.kind == "module" else []), *arguments]
    os.execvp(arguments[0], arguments)
