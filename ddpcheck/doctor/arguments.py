"""The options of ``ddpcheck doctor``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

PATIENCE = 240.0
"""Seconds for all of it. A healthy machine needs five; a cold one may read torch from a slow disk, and a GPU's first
start may take a minute."""

_WRONG_USAGE = 2


def read(arguments: Sequence[str]) -> argparse.Namespace:
    """Read a command line; help and what is wrong are printed, and end the process."""
    return _parser().parse_args(list(arguments))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Say what was wrong in one line."""
        if message.startswith("unrecognized arguments: "):
            first = message.removeprefix("unrecognized arguments: ").split()[0]
            what = "there is no option" if first.startswith("-") else "it takes options alone, and not"
            message = f"{what} {first}; ddpcheck doctor --help lists the options"
        self.exit(_WRONG_USAGE, f"{self.prog}: {message}\n")


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
