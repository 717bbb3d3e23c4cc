"""The parser of ``ddpcheck run``: options of torchrun and ours; a sentence for what is wrong, and help in two parts."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from typing import Any, NoReturn

from ddpcheck.run import own_options, torchrun_options

_ABOUT_THE_SCRIPT = ("module", "no_python", "training_script", "training_script_args", "help", "help_torchrun")
_NEAR = 0.75
"""How alike an option must be that is named for one that does not exist."""


class WrongUsage(Exception):
    """The command line cannot be followed; the text is one sentence that says why, and what to do."""


class OneSentence(argparse.ArgumentParser):
    """A parser whose complaint is one sentence; its help is of ddpcheck's own options, and torchrun's apart."""

    in_part: frozenset[str] = frozenset()
    """The names of the values that only torchrun's own parser can judge."""

    def format_help(self) -> str:
        from ddpcheck.run import help_text

        return help_text.of_ours()

    def error(self, message: str) -> NoReturn:
        known = [name for action in self._actions for name in action.option_strings]
        if message.startswith("unrecognized arguments: "):
            message = _unknown(message.removeprefix("unrecognized arguments: ").split()[0], known)
        elif "the following arguments are required" in message:
            message = "no script was given: ddpcheck run [torchrun's options] train.py [the script's arguments]"
        raise WrongUsage(message)


def _unknown(name: str, known: list[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name.partition("=")[0], known, n=1, cutoff=_NEAR)
    hint = f"; did you mean {near[0]}?" if near else "; ddpcheck run --help and --help-torchrun list them"
    return f"there is no option {name}, neither of torchrun nor of ddpcheck run{hint}"


def parser_with(torchruns: argparse.ArgumentParser) -> OneSentence:
    """A parser of torchrun's options and ours; what it raises is WrongUsage."""
    parser = OneSentence(
        prog="ddpcheck run",
        parents=[torchruns],
        conflict_handler="resolve",  # both have --help
        allow_abbrev=torchruns.allow_abbrev,
    )
    if isinstance(torchruns, torchrun_options.Read):
        parser.in_part = frozenset(torchruns.in_part)
    own_options.add(parser)
    parser.add_argument("--help-torchrun", action=_HelpOfTorchrun, nargs=0)
    return parser


class _HelpOfTorchrun(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *given: Any) -> NoReturn:
        from ddpcheck.run import help_text

        print(help_text.of_torchruns(torchrun_options.parser()), end="")
        parser.exit()


def explicit_options(parser: argparse.ArgumentParser, arguments: list[str], options: Iterable[str]) -> set[str]:
    """Which of torchrun's options for starting ranks were given, on the command line or in PET_ variables."""
    absent = object()
    read = parser.parse_args(arguments, argparse.Namespace(**dict.fromkeys(options, absent)))
    given = {one for one, value in vars(read).items() if value is not absent}
    given |= {one for one in options if f"PET_{one.upper()}" in os.environ}
    return given - own_options.destinations() - set(_ABOUT_THE_SCRIPT)
