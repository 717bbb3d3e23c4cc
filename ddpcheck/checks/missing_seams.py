"""Which checks rest on what: a seam that is missing takes those with it that need what it shows."""

from __future__ import annotations

from ddpcheck.checks.registry import checks, every_check, has_part
from ddpcheck.seams import SEAMS, reason

RANKS = "ranks"
"""Every judgement of a run rests on them."""


def resting_on(sight: str) -> tuple[str, ...]:
    """The checks that cannot be judged of a script's run without this."""
    return tuple(
        check
        for check, its in every_check().items()
        if sight in its.rests_on or (sight == RANKS and has_part(check, "run"))
    )


def asserted_on(sight: str) -> tuple[str, ...]:
    """The checks whose assertions cannot be judged without this."""
    return tuple(check for check, its in checks().items() if sight in its.asserted_on)


def unjudgeable(check: str) -> str:
    """Why an assertion of a check cannot be judged here, as a clause; empty where all that it rests on is there."""
    sights = checks()[check].asserted_on
    return next((reason(seam.name, seam.of) for seam in SEAMS if seam.sight in sights and seam.is_missing), "")
