"""Verdicts on files that ranks write and read, of worlds written by hand."""

from __future__ import annotations

from ddpcheck.checks.checkpoints import judge
from ddpcheck.vocabulary.model import CallSite
from tests.unit.written import call, rename, save, world

BARRIER = [call(1, 12)]


def ask(check, *ranks, **more):
    """The verdict of one check on a world of these ranks."""
    return verdict(check, world(*ranks, **more))


def verdict(check, over):
    (found,) = [judged for judged in judge(over) if judged.check == check]
    return found


def at(line):
    return CallSite(file="train.py", line=line, function="main")


def saved(path="/job/last.pt", line=10):
    """A save to a temporary name, put in its place."""
    return [save(f"{path}.tmp", line), rename(f"{path}.tmp", path, line + 1)]
