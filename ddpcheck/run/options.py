"""What was asked for: torchrun's own options and ours among them; a command line that is wrong imports no torch."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ddpcheck.acceptance import baseline as baselines
from ddpcheck.acceptance.rules import Rules
from ddpcheck.checks.registry import check_of, every_check
from ddpcheck.report.report_files import Unwritable, check_writable
from ddpcheck.report.repository_paths import service
from ddpcheck.run import command_line, program, settings_file, torchrun_options
from ddpcheck.run.command_line import named_checks
from ddpcheck.run.command_parser import WrongUsage as WrongUsage
from ddpcheck.run.command_parser import parser_with
from ddpcheck.run.own_options import EVIDENCE_LIMIT, STALL_TIMEOUT
from ddpcheck.run.settings_file import Settings, WrongSettings
from ddpcheck.run.tasks import meeting_place
from ddpcheck.run.torchrun_numbers import least_and_most
from ddpcheck.vocabulary.model import Struct

if TYPE_CHECKING:  # it brings what prints
    from ddpcheck.report.status_line import Kind

T = TypeVar("T")

REPORTS = ("json", "junit", "sarif", "codequality", "page", "trace")
"""The options that name a file each."""


class Options(Struct, frozen=True, kw_only=True):
    """One call of ``ddpcheck run``."""

    torchrun: Any
    """The values of torchrun's options."""
    given: tuple[str, ...] = ()
    """The command line, as torchrun's own parser is to read it with ours."""
    launched: bool
    """torchrun's agent starts the ranks; without any of its options the program starts them itself."""
    script: str
    arguments: tuple[str, ...]
    kind: program.Kind = "script"
    """What the script is; a command is run as it is."""
    task: bool = False
    """A launcher has started this command once for each rank, and others beside it."""
    json: Path | None = None
    junit: Path | None = None
    sarif: Path | None = None
    codequality: Path | None = None
    page: Path | None = None
    trace: Path | None = None
    format: Literal["text", "github", "gitlab"] = "text"
    """How the report is shown."""
    verbose: bool = False
    """Print all that is known of each check, and more code."""
    chosen: frozenset[str] | None = None
    """The checks that count; None for all."""
    left_out: frozenset[str] = frozenset()
    """Rules whose findings are left out; ``check/`` stands for findings that name no rule."""
    advise: bool = False
    """Show advisories."""
    strict: bool = False
    fail_fast: bool = False
    """End the run at the first error."""
    status: Kind = "auto"
    oracle: bool = False
    """Weigh what the elements of a loss count."""
    stall_timeout: float = STALL_TIMEOUT
    evidence: Path | None = None
    """Where the evidence is to be kept, node by node if there are several; None for a folder that goes at the end."""
    limit: int = EVIDENCE_LIMIT * 1024 * 1024
    rules: Rules = Rules()
    """What is accepted."""
    write_baseline: bool = False

    @property
    def command(self) -> str:
        """The script and its arguments, as one line, with bytes that are no text as escapes: reports are UTF-8."""
        line = " ".join([*(["-m"] if self.kind == "module" else []), self.script, *self.arguments])
        return line.encode("utf-8", "backslashreplace").decode()

    @property
    def endpoint(self) -> str:
        """Where the nodes meet: ``host:port``, or a host."""
        if self.task:
            return meeting_place(os.environ)
        return str(self.torchrun.rdzv_endpoint or self.torchrun.master_addr or "localhost")

    @property
    def nodes(self) -> int:
        """The most nodes that may take part."""
        return least_and_most(str(self.torchrun.nnodes))[1] if self.launched else 1

    @property
    def among_others(self) -> bool:
        """Other ddpchecks may take part, with which evidence is put together."""
        return self.task or self.nodes > 1


def parse(arguments: list[str]) -> Options:
    """Read a command line.

    Raises WrongUsage, with one sentence, for whatever is wrong with it.
    """
    return options_of(command_line.read(arguments))


def read_by_torchrun(options: Options) -> argparse.Namespace:
    """What torchrun's own parser makes of the command line; imports torch."""
    return parser_with(torchrun_options.torchruns_own()).parse_args(list(options.given))


def options_of(line: command_line.CommandLine) -> Options:
    """A command line that is good, with the project's settings; raises WrongUsage for what is wrong with these."""
    given = line.values
    settings = settings_of(given)
    report = reporting(given, settings)
    named = given.checks is not None or settings.checks is not None  # who names a check wants what it takes
    return Options(
        torchrun=given,
        given=line.arguments,
        launched=line.launched,
        script=given.training_script,
        arguments=tuple(given.training_script_args),
        kind=line.kind,
        task=given.task,
        **report,
        fail_fast=given.fail_fast,
        oracle=given.oracle or (named and "token-weight" in (report["chosen"] or ())),
        status=given.status,
        stall_timeout=_first(given.stall_timeout, settings.stall_timeout, STALL_TIMEOUT),
        evidence=given.evidence,
        limit=_first(given.evidence_limit, settings.evidence_limit, EVIDENCE_LIMIT) * 1024 * 1024,
    )


def reporting(given: argparse.Namespace, settings: Settings) -> dict[str, Any]:
    """The values of the options that say what is judged, what of it counts, and where the report goes.

    Raises WrongUsage for checks that there are not, and files that cannot be read or written.
    """
    rules = _rules(given, settings)
    chosen, left_out = _chosen(given.checks, given.skip, settings)
    baseline = {"baseline": Path(rules.baseline.path)} if rules.baseline is not None and given.write_baseline else {}
    _see_files({name: getattr(given, name) for name in REPORTS} | baseline)
    return {
        **{name: getattr(given, name) for name in REPORTS},
        "format": given.format or service(os.environ) or "text",
        "verbose": given.verbose,
        "chosen": chosen,
        "left_out": left_out,
        "advise": _first(given.advise, settings.advise, False),
        "strict": _first(given.strict, settings.strict, False),
        "rules": rules,
        "write_baseline": given.write_baseline,
    }


def _see_files(named: Mapping[str, Path | None]) -> None:
    """See that each of these options names a file that can be written, and no two of them the same one."""
    taken: dict[str, str] = {}
    for option, path in named.items():
        if path is None:
            continue
        try:
            check_writable(path)
        except Unwritable as error:
            raise WrongUsage(str(error)) from None
        place = os.path.realpath(path)
        other = taken.setdefault(place, option)
        if other != option and (os.path.isfile(place) or not os.path.exists(place)):
            raise WrongUsage(f"--{other} and --{option} name one file, {path}: give each its own")


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


def _chosen(checks: str | None, skip: str | None, settings: Settings) -> tuple[frozenset[str] | None, frozenset[str]]:
    """The checks that count, and rules that do not: ``--checks`` replaces both settings, ``--skip`` its own."""
    wanted = named_checks(checks, "--checks") if checks is not None else settings.checks
    skipped = named_checks(skip, "--skip") if skip is not None else settings.skip if checks is None else None
    known = every_check()
    rules = {check: {f"{check}/{rule.name}" for rule in its.rules} for check, its in known.items()}
    left_out = set[str]()
    for check in {check_of(name) or "" for name in wanted or ()} - {*(wanted or ())}:
        left_out |= {f"{check}/", *rules[check]} - {*(wanted or ())}
    left_out |= {name for name in skipped or () if name not in known}
    ruleless = {check for check, names in rules.items() if names and names <= left_out}
    unwanted = ruleless | (known.keys() & {*(skipped or ())})
    if wanted is None and not unwanted:
        return None, frozenset(left_out)
    of_wanted = known.keys() if wanted is None else {check_of(name) or "" for name in wanted}
    return frozenset(of_wanted - unwanted), frozenset(left_out)
