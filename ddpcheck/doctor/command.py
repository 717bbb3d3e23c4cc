"""``ddpcheck doctor``, from the command line to the exit code."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ddpcheck.doctor import doctor_report, machine, self_test, torch_build
from ddpcheck.doctor.facts import Examination
from ddpcheck.report.console import console_on
from ddpcheck.verdict.verdict import Exit

PATIENCE = 120.0
"""Seconds for all of it. A healthy machine needs five; a cold one may read torch from a slow disk."""


def doctor(arguments: Sequence[str]) -> int:
    """Examine the machine, test the stack, show what was found, and return the exit code."""
    try:
        options = _parser().parse_args(list(arguments))
    except SystemExit as leaving:  # argparse has printed the help, or what was wrong
        return leaving.code if isinstance(leaving.code, int) else Exit.USAGE
    came: list[int] = []
    try:
        with _as_interrupts(came, signal.SIGTERM, signal.SIGHUP):
            examination = examine(options.timeout)
    except KeyboardInterrupt:
        print("ddpcheck doctor: interrupted", file=sys.stderr)
        return 128 + (came[0] if came else signal.SIGINT)
    try:
        doctor_report.show(examination, sys.stdout, options.seams)
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):  # a reader that has seen enough; rich makes an exit with 1 of it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if options.json is not None:
        try:
            doctor_report.write(examination, options.json)
        except OSError as error:
            print(f"ddpcheck doctor: {options.json} could not be written: {error}", file=sys.stderr)
    return Exit.HELD if examination.stack.healthy else Exit.BROKEN


@contextmanager
def _as_interrupts(came: list[int], *signals: signal.Signals) -> Iterator[None]:
    """Let these do what Ctrl-C does, which waits for a good moment, and ends everything that was started."""

    def end(number: int, frame: object) -> None:
        came.append(number)
        signal.raise_signal(signal.SIGINT)

    before = {number: signal.signal(number, end) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def examine(timeout: float = PATIENCE) -> Examination:
    """Everything, within ``timeout`` seconds; what does not answer by then is reported as such."""
    deadline = time.monotonic() + timeout
    # Beside the self-test, which has its own torch to import.
    with torch_build.asked_aside() as answer, _progress() as tell:
        stack = self_test.Session(self_test.BODIES, deadline, tell).run()
        tell("asking torch and the GPUs", len(stack.tests))
        torch = answer(max(deadline, time.monotonic() + 1))
    return Examination(machine=machine.examine(), torch=torch, stack=stack)


@contextmanager
def _progress() -> Iterator[Any]:
    """A line that says what the self-test is at, on a terminal; elsewhere nothing."""
    console = console_on(sys.stderr)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(16), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("self-test: starting pytest", total=len(self_test.TESTS))
        yield lambda at, ended: progress.update(task, description=f"self-test: {at}", completed=ended)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Say what was wrong in one line."""
        self.exit(Exit.USAGE, f"{self.prog}: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="ddpcheck doctor",
        description="Says what this machine can test, and tests the stack: one step of DDP in two ranks under each "
        "backend, compared with one process. Ends with 0 where all works that can be tested here, with 1 where a "
        "self-test failed.",
        allow_abbrev=False,
    )
    parser.add_argument("--json", type=_file, metavar="FILE", help="write what was found to this file, too")
    parser.add_argument(
        "--seams", action="store_true", help="list every place of torch and of Python that the checks rest on, too"
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=PATIENCE,
        metavar="SECONDS",
        help=f"end after so many seconds, and say where it stood (default: {PATIENCE:.0f})",
    )
    return parser


def _file(text: str) -> Path:
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text} cannot be written: name a file in a folder that there is")
    return path


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds above 0")
    return seconds
