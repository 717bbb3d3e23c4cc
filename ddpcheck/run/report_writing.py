"""The files that a verdict is written to, whichever way it was come to."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from ddpcheck.report import json_report, junit_report, report_files
from ddpcheck.run.options import Options
from ddpcheck.verdict.verdict import Verdict


def write(options: Options, verdict: Verdict) -> list[Path]:
    """Write what was asked for; the files that there are now."""
    written = []
    for path, render in (
        (options.json, json_report.write),
        (options.junit, partial(junit_report.write, strict=options.strict)),
    ):
        if path is not None:
            try:
                render(verdict, path)
                written.append(path)
            except (OSError, report_files.Unwritable) as error:
                print(f"ddpcheck: {path} could not be written: {error}", file=sys.stderr)
    return written
