"""Calling the user's functions within an assertion: what they raise is a fact of this rank, for the judge to tell."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from typing import TypeVar

from ddpcheck import evidence as ev
from ddpcheck.checkpoint_trials.load_failures import state_of
from ddpcheck.evidence.training_state import Failure
from ddpcheck.probes.recording import numbered_lines, user_lines
from ddpcheck.ranks.current_rank import Violation
from ddpcheck.vocabulary.lost_peers import is_reaction
from ddpcheck.vocabulary.model import CallSite

T = TypeVar("T")


class Failed(Exception):
    """A function of the user's has raised; told to the judge, and no further."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def told(failed: Failed | None) -> Failure | None:
    """The fact to hand in."""
    return failed.failure if failed is not None else None


def attempt(doing: str, function: Callable[[], T], evidence: Callable[[], bytes] | None = None) -> T:
    """Call ``function``; raises Failed with what it has raised.

    ``evidence`` is what this rank has on record, to know which file was being loaded.
    """
    try:
        return function()
    except Violation:
        raise  # it has been judged, and all ranks have it
    except Exception as error:
        raise Failed(_fact(doing, error, evidence() if evidence is not None else b"")) from error


def _fact(doing: str, error: Exception, evidence: bytes) -> Failure:
    message = str(error)
    path = _being_loaded(evidence, error) if doing == "load" else ""
    state = state_of(path, f"{type(error).__name__}: {message}") if path else ""
    return Failure(
        doing=doing,
        kind=type(error).__name__,
        message=message[:4000],
        where=_users_line(error),
        reaction=is_reaction(error),
        file=numbered_lines.short(path) if path else "",
        state=state,
    )


def _being_loaded(evidence: bytes, error: Exception) -> str:
    """The file that an error is about: the one that it names, or the last that was read."""
    named = getattr(error, "filename", None)
    if isinstance(named, (str, bytes)):
        return os.path.abspath(os.fsdecode(named))
    reads = [r for r in ev.Reader().feed(evidence) if isinstance(r, ev.File) and r.op == "read"]
    return reads[-1].path if reads else ""


def _users_line(error: Exception) -> CallSite | None:
    """The innermost line of the user's that the error came by."""
    found = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        if user_lines.is_users(frame.f_code):
            found = CallSite(file=frame.f_code.co_filename, line=line, function=frame.f_code.co_name)
    return found
