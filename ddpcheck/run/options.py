"""What was asked for: torchrun's own options, read by torchrun's own parser, and ours among them."""

from __future__ import annotations

import argparse
import ast
import contextlib
import difflib
import os
import sys
import tempfile
import tokenize
import warnings
import zipfile
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar

from ddpcheck.acceptance import baseline as baselines
from ddpcheck.acceptance.rules import Rules
from ddpcheck.checks.registry import every_check, has_part
from ddpcheck.report.report_files import Unwritable, check_writable, reason
from ddpcheck.report.repository_paths import service
from ddpcheck.report.status_line import Kind
from ddpcheck.run import own_options, settings_file
from ddpcheck.run.own_options import EVIDENCE_LIMIT, STALL_TIMEOUT
from ddpcheck.run.settings_file import Settings, WrongSettings
from ddpcheck.vocabulary.model import Struct

T = TypeVar("T")

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
    sarif: Path | None = None
    codequality: Path | None = None
    page: Path | None = None
    trace: Path | None = None
    format: Literal["text", "github", "gitlab"] = "text"
    """How the report is shown."""
    chosen: frozenset[str] | None = None
    """The checks that count; None for all."""
    strict: bool = False
    fail_fast: bool = False
    """End the run at the first error."""
    status: Kind = "auto"
    stall_timeout: float = STALL_TIMEOUT
    evidence: Path | None = None
    """Where the evidence is to be kept, node by node if there are several; None for a folder that goes at the end."""
    limit: int = EVIDENCE_LIMIT * 1024 * 1024
    rules: Rules = Rules()
    """What is accepted."""
    write_baseline: bool = False

    @property
    def command(self) -> str:
        """The script and its arguments, as one line."""
        return " ".join([*(["-m"] if self.module else []), self.script, *self.arguments])

    @property
    def endpoint(self) -> str:
        """Where the nodes meet: ``host:port``, or a host."""
        return str(self.torchrun.rdzv_endpoint or self.torchrun.master_addr or "localhost")

    @property
    def nodes(self) -> int:
        """The most nodes that may take part."""
        from torch.distributed.run import parse_min_max_nnodes

        return int(parse_min_max_nnodes(str(self.torchrun.nnodes))[1]) if self.launched else 1


def parse(arguments: list[str]) -> Options:
    """Read a command line.

    Raises WrongUsage, with one sentence, for whatever is wrong with it.
    """
    parser = _parser()
    given = parser.parse_args(arguments)
    if not given.no_python:
        _see_script(given.training_script, given.module)
    if given.fail_fast and given.write_baseline:
        raise WrongUsage("--fail-fast ends a run at its first error, and --write-baseline takes all of it: choose one")
    settings = settings_of(given)
    reported = reporting(given, settings)
    explicit = _explicit(arguments, vars(given))
    if explicit:
        _see_numbers(given)
    options = Options(
        torchrun=given,
        launched=bool(explicit),
        script=given.training_script,
        arguments=tuple(given.training_script_args),
        module=given.module,
        **reported,
        fail_fast=given.fail_fast,
        status=given.status,
        stall_timeout=_first(given.stall_timeout, settings.stall_timeout, STALL_TIMEOUT),
        evidence=given.evidence,
        limit=_first(given.evidence_limit, settings.evidence_limit, EVIDENCE_LIMIT) * 1024 * 1024,
    )
    if options.evidence is not None:
        _see_folder(options.evidence, options.nodes == 1)
    return options


def reporting(given: argparse.Namespace, settings: Settings) -> dict[str, Any]:
    """The values of the options that say what is judged, what of it counts, and where the report goes.

    Raises WrongUsage for checks that there are not, and files that cannot be read or written.
    """
    rules = _rules(given, settings)
    baseline = rules.baseline.path if rules.baseline is not None and given.write_baseline else None
    for path in (given.json, given.junit, given.sarif, given.codequality, given.page, given.trace, baseline):
        if path is not None:
            try:
                check_writable(Path(path))
            except Unwritable as error:
                raise WrongUsage(str(error)) from None
    return {
        "json": given.json,
        "junit": given.junit,
        "sarif": given.sarif,
        "codequality": given.codequality,
        "format": given.format or service(os.environ) or "text",
        "page": given.page,
        "trace": given.trace,
        "chosen": _chosen(given.checks, given.skip, settings),
        "strict": _first(given.strict, settings.strict, False),
        "rules": rules,
        "write_baseline": given.write_baseline,
    }


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
        parents=[torchruns],
        conflict_handler="resolve",  # both have --help
        allow_abbrev=torchruns.allow_abbrev,
    )
    own_options.add(parser)
    return parser


def _see_numbers(torchruns: argparse.Namespace) -> None:
    """Ask torchrun itself what it makes of the numbers of nodes and ranks, before it starts anything."""
    from torch.distributed.run import determine_local_world_size, parse_min_max_nnodes

    try:
        least, most = parse_min_max_nnodes(str(torchruns.nnodes))
    except (ValueError, RuntimeError):
        least, most = 0, 0
    if not 1 <= least <= most:
        raise WrongUsage(
            f"--nnodes {torchruns.nnodes} is neither a number of nodes nor MIN:MAX, with MAX not below MIN"
        )
    try:
        ranks = determine_local_world_size(str(torchruns.nproc_per_node))
    except ValueError as error:
        why = str(error).rstrip(".")
        raise WrongUsage(f"--nproc-per-node {torchruns.nproc_per_node} does not work here: {why}") from None
    if ranks < 1:
        raise WrongUsage(f"--nproc-per-node {torchruns.nproc_per_node} starts no rank; give 1 or more")


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


def _explicit(arguments: list[str], options: Iterable[str]) -> set[str]:
    """Which of torchrun's options for starting ranks were given, on the command line or in PET_ variables."""
    absent = object()
    read = _parser().parse_args(arguments, argparse.Namespace(**dict.fromkeys(options, absent)))
    given = {one for one, value in vars(read).items() if value is not absent}
    given |= {one for one in options if f"PET_{one.upper()}" in os.environ}
    return given - own_options.destinations() - set(_ABOUT_THE_SCRIPT)


def settings_of(given: argparse.Namespace) -> Settings:
    """The project's settings; raises WrongUsage for what is wrong with them."""
    if given.config is not None and given.no_config:
        raise WrongUsage("--config names a file of settings, and --no-config asks for none; leave one of them out")
    script = getattr(given, "training_script", "")  # `ddpcheck judge` has none
    of_python = script and not given.module and (script.endswith(".py") or os.path.isdir(script))
    try:
        if given.config is not None:
            return settings_file.read(given.config)
        return Settings() if given.no_config else settings_file.found_for(Path(script) if of_python else None)
    except WrongSettings as error:
        raise WrongUsage(str(error)) from None


def _first(given: T | None, set_in_file: T | None, default: T) -> T:
    """The command line outranks the project's settings."""
    return next((one for one in (given, set_in_file) if one is not None), default)


def _rules(given: argparse.Namespace, settings: Settings) -> Rules:
    """What is accepted; a baseline that is about to be written need not be there."""
    path = _first(given.baseline, settings.baseline, None)
    if path is None and given.write_baseline:
        raise WrongUsage("--write-baseline writes into the file that --baseline names; add --baseline FILE")
    baseline = None
    if path is not None:
        try:
            missing = given.write_baseline and not path.exists()
            baseline = baselines.Baseline(path=str(path)) if missing else baselines.read(path)
        except baselines.Unreadable as error:
            raise WrongUsage(str(error)) from None
    return Rules(
        source=settings.path,
        base=settings.folder,
        ignores=settings.ignore,
        severities=settings.severity,
        baseline=baseline,
    )


def _chosen(checks: str | None, skip: str | None, settings: Settings) -> frozenset[str] | None:
    """The checks that count: ``--checks`` takes the place of both settings, ``--skip`` of its own."""
    wanted = _ids(checks, "--checks") if checks is not None else settings.checks
    left_out = _ids(skip, "--skip") if skip is not None else settings.skip if checks is None else None
    if wanted is None and left_out is None:
        return None
    return frozenset(wanted if wanted is not None else every_check()) - frozenset(left_out or ())


def _ids(text: str, option: str) -> list[str]:
    ids = [one.strip() for one in text.split(",") if one.strip()]
    if not ids:
        raise WrongUsage(f"{option} names no check; ddpcheck checks lists them")
    for one in ids:
        if one not in every_check():
            near = difflib.get_close_matches(one, every_check(), n=1, cutoff=0.0)[0]
            raise WrongUsage(f"there is no check {one!r}; the nearest is {near} (ddpcheck checks lists them)")
        if not has_part(one, "run") and option == "--checks":
            raise WrongUsage(f"{one} takes a second run to compare with, which the run of one script does not have")
    return ids


def _see_module(name: str) -> None:
    """Look for a module without importing anything: its packages are for the ranks to import."""
    path: Sequence[str] | None = None
    known = ""
    for part in name.split("."):
        known += part
        found = _find(known, path)
        if found is None:
            raise WrongUsage(f"there is no module {known}" + (f", and so no {name}" if known != name else ""))
        path = found.submodule_search_locations if found.submodule_search_locations is not None else ()
        known += "."
    if path and _find(f"{name}.__main__", path) is None:
        raise WrongUsage(f"{name} is a package without a __main__, which cannot be run; name a module in it")


def _find(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """The first finder's answer, with the working directory among the places to look, as in a rank."""
    for finder in sys.meta_path:
        with contextlib.suppress(ImportError, ValueError, AttributeError):
            if (found := finder.find_spec(name, path)) is not None:
                return found
    return PathFinder.find_spec(name, [os.getcwd()]) if path is None else None


def _see_script(script: str, module: bool) -> None:
    """Refuse what no interpreter can run; what only it can tell, or what can be read only once, is left to it."""
    if module:
        _see_module(script)
        return
    path = Path(script)
    if script == "-" or (path.is_dir() and any((path / f"__main__.{kind}").exists() for kind in ("py", "pyc"))):
        return
    if not path.exists():
        raise WrongUsage(f"there is no script {script}")
    if path.is_dir():
        raise WrongUsage(f"{script} is a folder, not a script")
    if path.suffix in (".zip", ".pyz", ".pyc") or not path.is_file():  # a pipe, say
        return
    try:
        with open(path, "rb") as opened:
            if zipfile.is_zipfile(path) or opened.read(len(MAGIC_NUMBER)) == MAGIC_NUMBER:
                return
        with tokenize.open(path) as source:
            text = source.read()
        with warnings.catch_warnings():  # the script's own interpreter gives them
            warnings.simplefilter("ignore")
            ast.parse(text, str(path))
    except SyntaxError as error:
        raise WrongUsage(
            f"{script} is no Python that {sys.executable} can run: line {error.lineno}: {error.msg}"
        ) from None
    except (UnicodeDecodeError, ValueError) as error:
        raise WrongUsage(f"{script} is no Python: {error}") from None
    except OSError as error:
        raise WrongUsage(f"{script} cannot be read: {error.strerror}") from None
