"""A command line of ``ddpcheck run``, and what is wrong with it; needs neither torch nor the project's settings."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import NamedTuple

from ddpcheck.report.report_files import reason
from ddpcheck.run import program, torchrun_options
from ddpcheck.run.command_parser import WrongUsage as WrongUsage
from ddpcheck.run.command_parser import explicit_options, parser_with
from ddpcheck.run.torchrun_numbers import least_and_most, see_numbers


class CommandLine(NamedTuple):
    """One that can be followed."""

    values: argparse.Namespace
    """Of all options, and the script with its arguments."""
    arguments: tuple[str, ...]
    """It, as torchrun's own parser is to read it with ours."""
    launched: bool
    """torchrun's agent starts the ranks."""
    kind: program.Kind


def read(arguments: list[str]) -> CommandLine:
    """Read it; raises WrongUsage, with one sentence, for whatever is wrong with it."""
    try:
        line = _read(arguments)
    except torchrun_options.NoTorch:
        raise WrongUsage("there is no torch in this environment: install torch beside ddpcheck") from None
    except program.NotRunnable as error:
        raise WrongUsage(str(error)) from None
    given = line.values
    if given.fail_fast and given.write_baseline:
        raise WrongUsage("--fail-fast ends a run at its first error, and --write-baseline takes all of it: choose one")
    if line.launched:
        see_numbers(given)
    if given.evidence is not None:
        many = given.task or (line.launched and least_and_most(str(given.nnodes))[1] > 1)
        _see_folder(given.evidence, not many)
    return line


def _read(arguments: list[str]) -> CommandLine:
    parser = parser_with(torchrun_options.parser())
    given = parser.parse_args(arguments)
    words = program.is_torchrun(given.training_script, given.training_script_args, given.module)
    if words is not None:
        # torchrun's options stand behind the word, and are the same without it.
        behind = given.training_script_args
        before = arguments[: len(arguments) - len(behind) - 1]
        if given.module:
            before.remove("-m" if "-m" in before else "--module")
        arguments = [*before, *behind[words:]]
        given = parser.parse_args(arguments)
    explicit = explicit_options(parser, arguments, vars(given))
    if explicit & parser.in_part:
        given = parser_with(torchrun_options.torchruns_own()).parse_args(arguments)
    launched = bool(explicit) or words is not None
    if given.task and launched:
        raise WrongUsage(
            "--task is for a command that a launcher such as srun starts once for each rank, and torchrun's options "
            "start ranks: leave one of them out"
        )
    kind: program.Kind = "command"
    if not given.no_python:
        kind = program.kind_of(given.training_script, given.module, for_ranks=launched)
    return CommandLine(given, tuple(arguments), launched, kind)


def _see_folder(path: Path, alone: bool) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
        if alone and any(path.iterdir()):
            raise WrongUsage(f"--evidence {path} is not empty, and two runs would be mixed; name a new folder")
        tempfile.TemporaryFile(dir=path).close()
    except FileExistsError:
        raise WrongUsage(f"--evidence {path} is a file, not a folder") from None
    except OSError as error:
        raise WrongUsage(f"--evidence {path} cannot be written to: {reason(error)}") from None


def named_checks(text: str, option: str) -> list[str]:
    """The checks and rules that an option names."""
    from ddpcheck.checks.registry import check_of, has_part
    from ddpcheck.report.explanations import unknown

    ids = [one.strip() for one in text.split(",") if one.strip()]
    if not ids:
        raise WrongUsage(f"{option} names no check; ddpcheck checks lists them")
    for one in ids:
        check = check_of(one)
        if check is None:
            raise WrongUsage(f"{option}: {unknown(one)}")
        if not has_part(check, "run") and option == "--checks":
            raise WrongUsage(f"{one} takes a second run to compare with, which the run of one script does not have")
    return ids
