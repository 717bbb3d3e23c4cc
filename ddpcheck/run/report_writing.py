"""A verdict, shown and written to the files that were asked for, whichever way it was come to."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ddpcheck.report import (
    code_quality_report,
    json_report,
    junit_report,
    report_files,
    sarif_report,
    terminal_report,
)
from ddpcheck.run import service_pages
from ddpcheck.run.options import Options
from ddpcheck.run.page_and_trace import PageAndTrace
from ddpcheck.verdict.verdict import Exit, Verdict
from ddpcheck.verdict.warnings_as_errors import warnings_as_errors


def show(
    options: Options,
    verdict: Verdict,
    pages: PageAndTrace,
    elsewhere: str = "",
    between: Callable[[], None] = lambda: None,
) -> int:
    """Write and print everything; the exit code.

    ``elsewhere``: who else prints the report, as a noun; ``between`` prints what stands between report and end.
    """
    verdict = warnings_as_errors(verdict) if options.strict else verdict
    code = verdict.exit_code(options.strict)
    try:
        written, unwritten = write(options, verdict, pages)
        lost = [*verdict.lost, *unwritten]
        if lost and code in (Exit.HELD, Exit.NOTHING_CHECKED):
            code = Exit.INTERNAL
        if elsewhere:
            print(f"ddpcheck: {verdict.verdict}; {elsewhere} shows the report", file=sys.stderr)
        else:
            service_pages.show(options, verdict, written)
        for line in lost:
            print(f"ddpcheck: {line}", file=sys.stderr)
        if not elsewhere:
            between()
            terminal_report.close(verdict, service_pages.for_texts(options), code, options.strict)
    except (OSError, SystemExit):  # nobody reads it any more; rich makes an exit with 1 of that
        return code
    except Exception:
        if code != Exit.BROKEN:
            raise
        traceback.print_exc()
    return code


def write(options: Options, verdict: Verdict, pages: PageAndTrace) -> tuple[list[Path], list[str]]:
    """Write what was asked for; the files that there are now, and lines that say which there are not, and why."""
    written, lost = [], []
    here = service_pages.repository_of(options, verdict)
    for path, render in (
        (options.json, json_report.write),
        (options.junit, partial(junit_report.write, strict=options.strict)),
        (options.sarif, partial(sarif_report.write, repository=here, strict=options.strict)),
        (options.codequality, partial(code_quality_report.write, repository=here, strict=options.strict)),
    ):
        if path is not None:
            why = report_files.failure_in_place(path, partial(render, verdict, path))
            lost += [f"{path} {why}"] if why else []
            written += [] if why else [path]
    return [*written, *pages.write(verdict)], [*lost, *pages.lost]
