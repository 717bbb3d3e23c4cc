"""The parts of a bundle: each is what one program prints, gathered on its own, with a limit of its own.

Where one cannot be had, the others can. A part goes to the disk line by line, so that a machine that dies leaves what
it has said.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from tests.gpu import scripts

INDEX = "parts.txt"
"""In a bundle: what became of each part."""


def gather(
    folder: Path,
    name: str,
    command: Sequence[str],
    limit: float,
    cwd: Path,
    environment: Mapping[str, str] | None = None,
    show: bool = False,
    silence: float | None = None,
) -> int | None:
    """Write what a program prints to a file of the folder, and how it ended to the index; its exit code, if it had one.

    ``show`` prints it as well, as it comes.
    """
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    try:
        with path.open("a", errors="replace") as file:

            def tell(line: str) -> None:
                keep(file, line)
                if show:
                    print(line, end="", flush=True)

            ended = scripts.run(command, cwd, limit, environment, tell, silence)
    except OSError as error:
        say(folder, name, time.monotonic() - begun, f"could not be started: {error.strerror or error}")
        return None
    how = f"exit code {ended.code}" if ended.code >= 0 else f"signal {-ended.code}"
    if ended.timed_out:
        how = f"was ended at a limit of {silence if silence and ended.seconds < limit else limit:.0f} s"
    if ended.left:
        how += f"; left behind and ended: {'; '.join(ended.left)}"
    say(folder, name, ended.seconds, how)
    return None if ended.timed_out else ended.code


def say(folder: Path, name: str, seconds: float, how: str) -> None:
    """Write down what became of a part."""
    with (folder / INDEX).open("a") as file:
        keep(file, f"{name:<28} {seconds:8.1f} s  {how}\n")


def keep(file: IO[str], text: str) -> None:
    """Write a text so that the disk has it."""
    file.write(text)
    file.flush()
    os.fsync(file.fileno())
