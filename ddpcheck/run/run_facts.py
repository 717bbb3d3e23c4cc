"""What a folder of evidence says of its run as a whole: written at its beginning and end, for who comes later."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import msgspec
import psutil

from ddpcheck.report import report_files
from ddpcheck.run.conclusion import Run
from ddpcheck.vocabulary import regular_files
from ddpcheck.vocabulary.bounded_numbers import ProcessNumber, Seconds
from ddpcheck.vocabulary.model import Struct

NAME = "run.json"


class Facts(Struct, frozen=True, kw_only=True):
    """One run of the command."""

    command: str
    launched: bool
    host: str
    pid: ProcessNumber
    """Of ddpcheck."""
    began: Seconds
    """Seconds since the epoch."""
    run: Run | None = None
    """How it ended; None while it goes on, and of one that was killed."""
    defects: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def goes_on(self) -> bool:
        """Whether the command still runs, as far as this host can tell."""
        if self.run is not None or self.host != os.uname().nodename:
            return False
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(self.pid)
            return process.status() != psutil.STATUS_ZOMBIE and process.create_time() < self.began + 1
        return False


def begin(folder: Path, command: str, launched: bool) -> Facts:
    """Put down that a run begins; where nothing can be written, nobody will read it."""
    facts = Facts(command=command, launched=launched, host=os.uname().nodename, pid=os.getpid(), began=time.time())
    write(folder, facts)
    return facts


def read(folder: Path) -> Facts | None:
    """What a folder says of its run; None where it says nothing that can be read."""
    try:
        return msgspec.json.decode(regular_files.read(folder / NAME), type=Facts)
    except (OSError, msgspec.MsgspecError, RecursionError):
        return None


def write(folder: Path, facts: Facts) -> None:
    """Put down what is known of it now."""
    with contextlib.suppress(OSError, report_files.Unwritable):
        report_files.write(folder / NAME, msgspec.json.encode(facts).decode())
