"""What ``--strict`` makes of a verdict."""

from __future__ import annotations

from msgspec.structs import replace

from ddpcheck.verdict.verdict import Verdict


def warnings_as_errors(verdict: Verdict) -> Verdict:
    """The verdict of a run with warnings alone in the word of one with errors: the exit code says the same."""
    without_errors = verdict.verdict in ("held", "nothing-checked")
    return replace(verdict, verdict="violated") if verdict.warnings and without_errors else verdict
