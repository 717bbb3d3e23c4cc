"""The options of ``ddpcheck judge``, and what is wrong with them."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from ddpcheck.run import own_options
from ddpcheck.run.command_parser import WrongUsage as WrongUsage


def read(arguments: Sequence[str]) -> argparse.Namespace:
    """Read a command line; raises WrongUsage, with one sentence, for whatever is wrong with it."""
    given = _parser().parse_args(list(arguments))
    if given.folder is not None and not os.path.isdir(given.folder):
        raise WrongUsage(f"there is no folder {given.folder}")
    return given


class _OneSentence(argparse.ArgumentParser):
    """A parser whose complaint is one sentence."""

    def error(self, message: str) -> NoReturn:
        raise WrongUsage(f"{message}; ddpcheck judge --help lists what there is")


def _parser() -> argparse.ArgumentParser:
    parser = _OneSentence(
        prog="ddpcheck judge",
        description="Judge the evidence that a run has left: one that was killed together with ddpcheck, or one that "
        "was run with --evidence FOLDER, as often as you like.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "folder",
        type=Path,
        nargs="?",
        metavar="FOLDER",
        help="the folder of evidence; by default the last one that a killed command of yours has left in "
        f"{tempfile.gettempdir()}",
    )
    own_options.add_reports(parser)
    own_options.add_what_counts(parser)
    return parser
