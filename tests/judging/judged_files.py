"""Verdicts on files that ranks write and read, of worlds written by hand."""

from __future__ import annotations

from ddpcheck.vocabulary.model import CallSite
from tests.judging.judged import run_judged
from tests.judging.written import call, rename, save, world

FILES = (
    "checkpoint-single-writer",
    "checkpoint-atomic-save",
    "checkpoint-read-after-write",
    "checkpoint-map-location",
    "checkpoint-load-complete",
)
"""The checks of files that a run writes and reads."""

BARRIER = [call(1, 12)]


def ask(check, *ranks, **more):
    """The verdict of one check on a world of these ranks."""
    return verdict(check, world(*ranks, **more))


def verdict(check, over):
    (found,) = run_judged(over, check)
    return found


def at(line):
    return CallSite(file="train.py", line=line, function="main")


def saved(path="/job/last.pt", line=10):
    """A save to a temporary name, put in its place."""
    return [save(f"{path}.tmp", line), rename(f"{path}.tmp", path, line + 1)]
