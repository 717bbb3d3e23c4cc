"""The report as the service whose job this is can show it: folded sections, annotations, a job's summary."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, cast

from ddpcheck.report import job_summary, terminal_report
from ddpcheck.report.folded_sections import folding
from ddpcheck.report.github_annotations import annotation_commands
from ddpcheck.report.repository_paths import Repository, repository, service
from ddpcheck.report.workflow_commands import Harmless
from ddpcheck.run.options import Options
from ddpcheck.verdict.verdict import Verdict


def show(options: Options, verdict: Verdict, written: Sequence[Path]) -> None:
    """Print the report; ``written`` are the files in which it can be found again."""
    on = None if options.format == "text" else options.format
    fold = folding(on, sys.stderr)
    terminal_report.show(verdict, for_texts(options), written, options.strict, fold, options.verbose)
    if on == "github":
        _annotate(options, verdict)


def for_texts(options: Options) -> IO[str]:
    """Standard error, for what holds texts of the user's: in a job of GitHub's none of them is taken for a command."""
    if "github" in (options.format, service(os.environ)):
        return cast("IO[str]", Harmless(sys.stderr))
    return sys.stderr


def repository_of(options: Options, verdict: Verdict) -> Repository:
    """Where the files are that findings name."""
    return repository(verdict.folder, os.environ, _script(options, verdict))


def _annotate(options: Options, verdict: Verdict) -> None:
    here = repository_of(options, verdict)
    encoding = sys.stderr.encoding or "utf-8"
    for line in annotation_commands(verdict, here, options.strict):
        sys.stderr.write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    sys.stderr.flush()
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        try:
            job_summary.append(verdict, Path(summary), here, job_summary.blob_url(os.environ), options.strict)
        except OSError as error:
            print(f"ddpcheck: the job's summary could not be written: {error}", file=sys.stderr)


def _script(options: Options, verdict: Verdict) -> str:
    """The file that was run; empty where nobody can tell. Of evidence that was kept, the command line is known."""
    words = [] if options.script else verdict.command.split()
    module = options.kind == "module" or words[:1] == ["-m"]
    script = options.script or next((word for word in words if word != "-m"), "")
    if not module:
        return script
    path = Path(verdict.folder, *script.split("."))
    tried = (path.with_suffix(".py"), path / "__main__.py")
    return next((str(one) for one in tried if one.is_file()), "")
