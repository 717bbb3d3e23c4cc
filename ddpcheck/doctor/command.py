"""``ddpcheck doctor``, from what was asked for to the exit code."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ddpcheck.doctor import doctor_report, machine, self_test, torch_build
from ddpcheck.doctor.arguments import PATIENCE
from ddpcheck.doctor.facts import Examination
from ddpcheck.report.console import console_on
from ddpcheck.verdict.verdict import Exit


def doctor(options: argparse.Namespace) -> int:
    """Examine the machine, test the stack, show what was found, and return the exit code."""
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
