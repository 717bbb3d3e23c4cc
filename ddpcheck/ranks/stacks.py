"""The Python stack of a rank, taken from outside, also when native code holds the GIL; and what a crash has written."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import signal
import time
from pathlib import Path

from ddpcheck.ranks.descriptors import holds, out_of_reach
from ddpcheck.vocabulary.clock import clock

FATAL = "Fatal Python error: "
"""Begins what faulthandler writes for a process that crashes; the stacks of all threads follow, and all modules."""

MOST_WRITTEN = 4000
"""Characters of what a zygote has written that are told."""


# The last real-time signals are the ones that programs, launchers and
# schedulers leave alone; SIGUSR1 and SIGUSR2 are spoken for.
DUMP_SIGNAL = getattr(signal, "SIGRTMAX", signal.SIGUSR2) - (1 if hasattr(signal, "SIGRTMAX") else 0)


def stack_file(run_dir: str, rank: int) -> Path:
    return Path(run_dir) / f"rank{rank}.stack"


def arm(run_dir: str, rank: int) -> None:
    """Let this rank write its stack to a file of its own, on request and when it crashes.

    The handler runs in C, on whatever thread gets the signal, and needs no GIL.
    """
    file = out_of_reach(os.open(stack_file(run_dir, rank), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
    faulthandler.enable(file, all_threads=True)
    faulthandler.register(DUMP_SIGNAL, file, all_threads=True)


def take(run_dir: str, ranks: dict[int, int], patience: float = 1.0) -> dict[int, str]:
    """Ask the processes in ``ranks`` (rank to pid) for their stacks, all at once.

    Returns what each wrote within ``patience`` seconds; an empty text for one
    that could not write (stopped, not yet armed, or its file was closed).
    """
    before = {rank: size for rank in ranks if (size := _size(stack_file(run_dir, rank))) is not None}
    for rank, pid in ranks.items():
        # A file of the test that has this one's number now is not to be written into.
        if rank in before and holds(pid, os.fspath(stack_file(run_dir, rank))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, DUMP_SIGNAL)
    end = clock.now() + patience
    pending = set(ranks)
    seen: dict[int, int] = {}
    while pending and clock.now() < end:
        time.sleep(0.03)
        for rank in list(pending):
            now = (_size(stack_file(run_dir, rank)) or 0) - before.get(rank, 0)
            # faulthandler marks no end: it has ended when it has stopped growing.
            if now > 0 and now == seen.get(rank):
                pending.discard(rank)
            seen[rank] = now
    return {rank: read(run_dir, rank, before.get(rank, 0)) for rank in ranks}


def read(run_dir: str, rank: int, since: int = 0) -> str:
    """The stack that a rank has written, without the frames below the test itself; from a place in its file on."""
    try:
        written = stack_file(run_dir, rank).read_bytes()
    except OSError:  # it has written none, or the folder was removed
        return ""
    return tidy(written[since:].decode(errors="replace"))


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


_FRAME = re.compile(r'  File "(?P<file>[^"]*)", line (?P<line>\d+) in (?P<function>.*)')
_BELOW_THE_TEST = (
    os.sep + "_pytest" + os.sep,
    os.sep + "pluggy" + os.sep,
    *(os.sep + os.path.join("ddpcheck", folder) + os.sep for folder in ("ranks", "zygote", "examples")),
    os.sep + os.path.join("ddpcheck", "pytest_plugin.py"),
)


def tidy(text: str) -> str:
    """Keep each thread's frames down to the test, most recent call first, as faulthandler has them."""
    kept: list[str] = []
    below = False
    for line in text.splitlines():
        frame = _FRAME.match(line)
        if frame is None:
            below = False
            if line.startswith("Extension modules"):
                continue
            kept.append(line)
            continue
        # "<string>" is the command line that started the interpreter.
        own = frame["file"] == "<string>" or any(part in frame["file"] for part in _BELOW_THE_TEST)
        # Our own frames above the test (an assertion that waits) stay out as well.
        # A property's body is called by hypothesis, and that by us.
        if own and frame["function"] in ("pytest_pyfunc_call", "body_of_a_property"):
            below = True
        if not below and not own:
            kept.append(line)
    return "\n".join(kept).strip()


def last_words(log: str) -> str:
    """The end of what a process has written; where it crashed, what it said before and its innermost calls.

    faulthandler writes more after these than would be kept of a log's end.
    """
    said, fatal, dump = log.rpartition(FATAL)
    if not fatal:
        return log[-MOST_WRITTEN:]
    error, _, below = dump.partition("\n")
    own = below[max(0, below.find("Current thread 0x")) :]  # other threads may stand before it
    before = "\n".join(said[-MOST_WRITTEN // 4 :].splitlines()[-10:])
    after = tidy(f"{fatal}{error}\n\n{own}")
    if len(after) > MOST_WRITTEN:
        after = f"{after[: MOST_WRITTEN * 3 // 4]}\n…\n{after[-MOST_WRITTEN // 4 :]}"
    return f"{before}\n{after}".strip()
