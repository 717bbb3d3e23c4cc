"""The options of ``ddpcheck run`` that are not torchrun's; nothing here imports torch."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

STALL_TIMEOUT = 300.0
EVIDENCE_LIMIT = 256
FORMATS = ("text", "github", "gitlab")


def add(parser: argparse.ArgumentParser) -> None:
    """Let a parser know them, in groups of their own."""
    add_reports(parser)
    add_what_counts(parser)
    _add_running(parser)
    _add_evidence(parser)


def add_reports(parser: argparse.ArgumentParser) -> None:
    """What a report is written to."""
    reports = parser.add_argument_group("reports")
    reports.add_argument("--json", type=Path, metavar="FILE", help="write the verdict as JSON")
    reports.add_argument("--junit", type=Path, metavar="FILE", help="write the verdict as JUnit XML")
    reports.add_argument("--sarif", type=Path, metavar="FILE", help="write the findings as SARIF, for code scanning")
    reports.add_argument(
        "--codequality", type=Path, metavar="FILE", help="write the findings as GitLab's Code Quality report"
    )
    reports.add_argument(
        "--format",
        choices=FORMATS,
        help="how the report is shown: as text, with annotations and a summary for GitHub Actions, or with folded "
        "sections for GitLab; in a job of one of these it is theirs by itself, and text turns that off",
    )
    reports.add_argument(
        "--verbose",
        action="store_true",
        help="print the checks as a table, with the reason of each that was not checked, and more code",
    )
    reports.add_argument(
        "--page", type=Path, metavar="FILE", help="write one HTML file: the findings, and a timeline of all ranks"
    )
    reports.add_argument(
        "--trace", type=Path, metavar="FILE", help="write the timeline as a trace for Perfetto (.json.gz)"
    )


def add_what_counts(parser: argparse.ArgumentParser) -> None:
    """Which checks are judged, and how strictly."""
    counted = parser.add_argument_group("what counts")
    counted.add_argument("--checks", metavar="ID,ID", help="judge these checks or rules only")
    counted.add_argument("--skip", metavar="ID,ID", help="leave these checks or rules out")
    counted.add_argument(
        "--strict", action=argparse.BooleanOptionalAction, default=None, help="count warnings as errors, or do not"
    )
    counted.add_argument(
        "--advise", action=argparse.BooleanOptionalAction, default=None, help="show advisories, which count for nothing"
    )
    _add_accepting(parser)


def _add_running(parser: argparse.ArgumentParser) -> None:
    running = parser.add_argument_group("the run")
    running.add_argument("--fail-fast", action="store_true", help="end the run at the first error that is found")
    running.add_argument(
        "--oracle",
        action="store_true",
        help="look at every step, and not at the first and ever fewer alone: what each sample counts (token-weight), "
        "and where a number comes up that is not finite (finite-values)",
    )
    running.add_argument(
        "--status",
        choices=("auto", "line", "log", "off"),
        default="auto",
        help="how far the run is: in the last line of a terminal, or in the log each minute (%(default)s: whichever "
        "fits)",
    )
    running.add_argument(
        "--stall-timeout",
        type=_number("seconds", float),
        metavar="SECONDS",
        help=f"end a run in which ranks wait, and none has made progress for so long ({STALL_TIMEOUT:g}); a certain "
        "deadlock is ended at once",
    )

    running.add_argument(
        "--task",
        action="store_true",
        help="this is one of several tasks that srun or mpirun has started, each of them a rank; the task of rank 0 "
        "reports on all of them",
    )


def _add_evidence(parser: argparse.ArgumentParser) -> None:
    evidence = parser.add_argument_group("evidence")
    evidence.add_argument("--evidence", type=Path, metavar="FOLDER", help="keep what the ranks have recorded here")
    evidence.add_argument(
        "--evidence-limit",
        type=_number("megabytes", int),
        metavar="MB",
        help=f"the most that each rank writes down ({EVIDENCE_LIMIT})",
    )


def _add_accepting(parser: argparse.ArgumentParser) -> None:
    """What findings are accepted, beside the comments on their lines."""
    accepted = parser.add_argument_group("what is accepted")
    accepted.add_argument(
        "--config", type=Path, metavar="FILE", help="take the settings [tool.ddpcheck] from this file of TOML"
    )
    accepted.add_argument("--no-config", action="store_true", help="look for no settings in pyproject.toml")
    accepted.add_argument(
        "--baseline", type=Path, metavar="FILE", help="accept the findings that this file has: what is new counts"
    )
    accepted.add_argument(
        "--write-baseline", action="store_true", help="write the findings of this run into the baseline"
    )


def destinations() -> set[str]:
    """The names under which a parser keeps their values."""
    parser = argparse.ArgumentParser(add_help=False)
    add(parser)
    return {action.dest for action in parser._actions}


def _number(unit: str, kind: type[float]) -> Callable[[str], float]:
    """A reader of numbers above 0."""

    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = kind(0)
        if not 0 < value <= sys.float_info.max:
            whole = "whole " if kind is int else ""
            raise argparse.ArgumentTypeError(f"{text} is no {whole}number of {unit} above 0")
        return value

    return read
