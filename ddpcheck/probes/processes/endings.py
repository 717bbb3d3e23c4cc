"""How a watched process ends: what it raised, what it leaves behind, and how its children ended."""

from __future__ import annotations

import atexit
import linecache
import multiprocessing.popen_fork
import multiprocessing.process
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch.multiprocessing  # noqa: F401  # it imports the module that spawns
from torch.distributed import distributed_c10d as c10d

from ddpcheck.evidence import NO_SITE, ChildEnded, Ended, Raised
from ddpcheck.probes.processes import started_processes
from ddpcheck.probes.recording import recorder, signal_exceptions, user_lines
from ddpcheck.probes.recording.patching import around, shielded
from ddpcheck.vocabulary.frame_lines import line_of_traceback
from ddpcheck.vocabulary.lost_peers import is_reaction
from ddpcheck.vocabulary.own_code import PROBES

GLOO_REST = 0.3
"""Seconds that gloo's threads get to end in, after the group: torch 2.13 aborts the process, in a few of ten correct
programs, if the interpreter's teardown is over before that, and the launcher would then end the other ranks."""

gloo_joined = False
"""This process has been in a group of gloo's."""

_raised = False
_before: list[Callable[[], None]] = []


def before_end(task: Callable[[], None]) -> None:
    """Have this done before the end is written down."""
    _before.append(shielded(task))


def watch() -> None:
    """Record the end of this process, whichever way it comes."""
    atexit.register(_at_exit)
    before = sys.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        _note_raised(error)
        before(kind, error, trace)

    sys.excepthook = excepthook
    around(os, "_exit", _around_exit)
    around(multiprocessing.process.BaseProcess, "_bootstrap", _around_bootstrap)
    around(multiprocessing.process.BaseProcess, "run", _around_run)
    # By its name: torch.multiprocessing.spawn is a function, too.
    around(sys.modules.get("torch.multiprocessing.spawn"), "_wrap", _around_spawned)
    around(multiprocessing.popen_fork.Popen, "poll", _around_poll)
    around(subprocess.Popen, "_handle_exitstatus", _around_status)


# --- exceptions


@shielded
def _note_raised(error: BaseException) -> None:
    global _raised
    writer = recorder.current()
    if writer is None or _raised or isinstance(error, (SystemExit, KeyboardInterrupt, GeneratorExit)):
        return
    _raised = True
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    writer.write(
        Raised(
            **writer.next(),
            kind=type(error).__name__,
            message=_message(error)[:4000],
            text=text[-20000:],
            site=_innermost(error),
            lost_peer=is_reaction(error),
            ours=_is_ours(error),
        )
    )


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as error:  # it is the program's own method that fails
        signal_exceptions.let_through(error)
        return "<exception str() failed>"


def _is_ours(error: BaseException) -> bool:
    """Whether it was raised in a probe itself: neither beneath it, nor in a call of what it stands around."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or not trace.tb_frame.f_code.co_filename.startswith(PROBES):
        return False
    line = linecache.getline(os.path.realpath(trace.tb_frame.f_code.co_filename), line_of_traceback(trace))
    return "original(" not in line and "raise" not in line


def _innermost(error: BaseException) -> int:
    """The last line of the user's in a traceback."""
    trace = error.__traceback__
    if trace is None:
        return NO_SITE
    lines = user_lines.lines_of(trace.tb_frame.f_back)
    while trace is not None:
        lines.insert(0, (trace.tb_frame.f_code, line_of_traceback(trace)))
        trace = trace.tb_next
    return user_lines.chained(lines) if any(user_lines.is_users(code) for code, _ in lines) else NO_SITE


def _around_run(original: Any) -> Any:
    def run(self: Any) -> Any:
        try:
            return original(self)
        except BaseException as error:
            _note_raised(error)
            raise

    return run


def _around_spawned(original: Any) -> Any:
    def _wrap(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except SystemExit as leaving:  # what the function has raised is written down for the parent by then
            if leaving.__context__ is not None:
                _note_raised(leaving.__context__)
            raise

    return _wrap


# --- the end


@shielded
def _at_exit() -> None:
    last = getattr(sys, "last_value", None)
    if last is not None:
        _note_raised(last)
    ended("exception" if _raised else "exit", None)
    if gloo_joined and recorder.always() is not None:
        time.sleep(GLOO_REST)


@shielded
def ended(how: Any, code: int | None) -> None:
    """Write down the end; once."""
    writer = recorder.current()
    for task in _before:
        task()
    if writer is None or not writer.open:
        return
    writer.write(
        Ended(
            **writer.next(),
            how=how,
            code=code,
            site=user_lines.here() if how == "os._exit" else NO_SITE,
            groups=len(getattr(getattr(c10d, "_world", None), "pg_map", ())),
        )
    )
    writer.close()


def _around_exit(original: Any) -> Any:
    def _exit(status: int) -> Any:
        try:
            started_processes.note_left()
            ended("os._exit", status)
        finally:  # also where a signal handler of the program's raises in there
            original(status)

    return _exit


def _around_bootstrap(original: Any) -> Any:
    def _bootstrap(self: Any, *args: Any, **kwargs: Any) -> Any:
        code = original(self, *args, **kwargs)
        ended("exception" if _raised else "exit", code)
        return code

    return _bootstrap


# --- children


def _child_ended(pid: int, returned: int | None) -> None:
    writer = recorder.current()
    if writer is not None and returned is not None:
        code, signal = (None, -returned) if returned < 0 else (returned, None)
        writer.write(ChildEnded(**writer.next(), pid=pid, code=code, signal=signal))


def _around_poll(original: Any) -> Any:
    def poll(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = self.returncode
        after = original(self, *args, **kwargs)
        if before is None and after is not None:
            _child_ended(self.pid, after)
        return after

    return poll


def _around_status(original: Any) -> Any:
    def _handle_exitstatus(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        _child_ended(self.pid, self.returncode)
        return result

    return _handle_exitstatus
