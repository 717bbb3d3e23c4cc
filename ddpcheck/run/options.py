"""What was asked for: torchrun's own options, read by torchrun's own parser, and ours among them."""

from __future__ import annotations

import argparse
import ast
import difflib
import importlib.util
import math
import os
import sys
import tokenize
from pathlib import Path
from typing import Any, NoReturn

from ddpcheck.catalogue import CHECKS, ORACLES
from ddpcheck.model import Struct
from ddpcheck.report.places import Unwritable, check_writable

STALL_TIMEOUT = 300.0
EVIDENCE_LIMIT = 256
_ABOUT_THE_SCRIPT = ("module", "no_python", "training_script", "training_script_args", "help")


class WrongUsage(Exception):
    """The command line cannot be followed; the text is one sentence that says why, and what to do."""


class Options(Struct, frozen=True, kw_only=True):
    """One call of ``ddpcheck run``."""

    torchrun: Any
    """What torchrun's parser made of its options."""
    launched: bool
    """torchrun's agent starts the ranks; without any of its options the script starts them itself."""
    script: str
    arguments: tuple[str, ...]
    module: bool
    json: Path | None = None
    junit: Path | None = None
    chosen: frozenset[str] | None = None
    """The checks that count; None for all."""
    strict: bool = False
    stall_timeout: float = STALL_TIMEOUT
    evidence: Path | None = None
    """Where the evidence is to be kept; None for a folder that goes when the report is written."""
    limit: int = EVIDENCE_LIMIT * 1024 * 1024

    @property
    def command(self) -> str:
        """The script and its arguments, as one line."""
        return " ".join([*(["-m"] if self.module else []), self.script, *self.arguments])

    @property
    def nodes(self) -> int:
        """The most nodes that may take part."""
        return int(str(self.torchrun.nnodes).partition(":")[2] or str(self.torchrun.nnodes)) if self.launched else 1


def parse(arguments: list[str]) -> Options:
    """Read a command line.

    Raises WrongUsage, with one sentence, for whatever is wrong with it.
    """
    parser = _parser()
    given = parser.parse_args(arguments)
    if not given.no_python:
        _see_script(given.training_script, given.module)
    for path in (given.json, given.junit):
        if path is not None:
            try:
                check_writable(path)
            except Unwritable as error:
                raise WrongUsage(str(error)) from None
    explicit = _explicit(arguments)
    return Options(
        torchrun=given,
        launched=bool(explicit),
        script=given.training_script,
        arguments=tuple(given.training_script_args),
        module=given.module,
        json=given.json,
        junit=given.junit,
        chosen=_chosen(given.checks, given.skip),
        strict=given.strict,
        stall_timeout=given.stall_timeout,
        evidence=given.evidence,
        limit=given.evidence_limit * 1024 * 1024,
    )


class _OneSentence(argparse.ArgumentParser):
    """A parser whose complaint is one sentence."""

    def error(self, message: str) -> NoReturn:
        known = [name for action in self._actions for name in action.option_strings]
        if message.startswith("unrecognized arguments: "):
            message = _unknown(message.removeprefix("unrecognized arguments: ").split()[0], known)
        elif "the following arguments are required" in message:
            message = "no script was given: ddpcheck run [torchrun's options] train.py [the script's arguments]"
        raise WrongUsage(message)


def _unknown(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name.partition("=")[0], known, n=1)
    hint = f"; did you mean {near[0]}?" if near else "; see torchrun --help for what it has"
    return f"there is no option {name}, neither of torchrun nor of ddpcheck run{hint}"


def _parser() -> argparse.ArgumentParser:
    from torch.distributed.run import get_args_parser

    torchruns = get_args_parser()
    parser = _OneSentence(
        prog="ddpcheck run",
        description="Run a training script as torchrun would, and say which invariants of distributed training held.",
        epilog="Without any of torchrun's options, the script starts its ranks itself (mp.spawn, multiprocessing).",
        parents=[],
        allow_abbrev=torchruns.allow_abbrev,
    )
    ours = parser.add_argument_group("ddpcheck")
    ours.add_argument("--json", type=Path, metavar="FILE", help="write the verdict as JSON")
    ours.add_argument("--junit", type=Path, metavar="FILE", help="write the verdict as JUnit XML")
    ours.add_argument("--checks", metavar="ID,ID", help="judge these checks only")
    ours.add_argument("--skip", metavar="ID,ID", help="leave these checks out")
    ours.add_argument("--strict", action="store_true", help="count warnings as errors")
    ours.add_argument(
        "--stall-timeout",
        type=_seconds,
        default=STALL_TIMEOUT,
        metavar="SECONDS",
        help="end a run in which a rank has waited so long for the others (%(default)s); a certain deadlock is ended "
        "at once",
    )
    ours.add_argument("--evidence", type=Path, metavar="FOLDER", help="keep what the ranks have recorded here")
    ours.add_argument(
        "--evidence-limit",
        type=_megabytes,
        default=EVIDENCE_LIMIT,
        metavar="MB",
        help="the most that each rank writes down (%(default)s)",
    )
    own = parser.add_argument_group("torchrun")
    for action in torchruns._actions:
        if not isinstance(action, argparse._HelpAction):
            own._add_action(action)
    return parser


def _seconds(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or value <= 0:
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds above 0")
    return value


def _megabytes(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is no number of megabytes above 0")
    return value


def _explicit(arguments: list[str]) -> set[str]:
    """Which of torchrun's options for starting ranks were given, on the command line or in PET_ variables."""
    parser = _parser()
    names = set()
    for action in parser._actions:
        env = f"PET_{action.dest.upper()}"
        if env in os.environ:
            names.add(action.dest)
        action.default = argparse.SUPPRESS
        action.required = False
    ours = {"json", "junit", "checks", "skip", "strict", "stall_timeout", "evidence", "evidence_limit"}
    given = vars(parser.parse_args(arguments))
    return (names | set(given)) - ours - set(_ABOUT_THE_SCRIPT)


def _chosen(checks: str | None, skip: str | None) -> frozenset[str] | None:
    if checks is None and skip is None:
        return None
    wanted = set(_ids(checks, "--checks")) if checks is not None else set(CHECKS)
    return frozenset(wanted - set(_ids(skip, "--skip") if skip is not None else ()))


def _ids(text: str, option: str) -> list[str]:
    ids = [one.strip() for one in text.split(",") if one.strip()]
    if not ids:
        raise WrongUsage(f"{option} names no check; ddpcheck checks lists them")
    for one in ids:
        if one not in CHECKS:
            near = difflib.get_close_matches(one, CHECKS, n=1, cutoff=0.0)[0]
            raise WrongUsage(f"there is no check {one!r}; the nearest is {near} (ddpcheck checks lists them)")
        if one in ORACLES and option == "--checks":
            raise WrongUsage(f"{one} takes a second run to compare with, which the run of one script does not have")
    return ids


def _see_script(script: str, module: bool) -> None:
    if module:
        try:
            found = importlib.util.find_spec(script) if script in sys.modules or "." not in script else True
        except (ImportError, ValueError):
            found = None
        local = Path(*script.split("."))
        if not found and not local.with_suffix(".py").exists() and not local.is_dir():
            raise WrongUsage(f"there is no module {script}")
        return
    path = Path(script)
    if path.is_dir() and (path / "__main__.py").exists():
        return
    if not path.exists():
        raise WrongUsage(f"there is no script {script}")
    if path.is_dir():
        raise WrongUsage(f"{script} is a folder, not a script")
    if path.suffix in (".zip", ".pyz", ".pyc"):
        return
    try:
        with tokenize.open(path) as opened:
            text = opened.read()
        ast.parse(text, str(path))
    except SyntaxError as error:
        raise WrongUsage(
            f"{script} is no Python that {sys.executable} can run: line {error.lineno}: {error.msg}"
        ) from None
    except (UnicodeDecodeError, ValueError) as error:
        raise WrongUsage(f"{script} is no Python: {error}") from None
    except OSError as error:
        raise WrongUsage(f"{script} cannot be read: {error.strerror}") from None
