"""Which checks have no ground: a rank's torch lacks what they rest on, or a rank has left no evidence.

Held or violated, nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ddpcheck import evidence as ev
from ddpcheck.checks.missing_seams import resting_on
from ddpcheck.checks.registry import those
from ddpcheck.judging.values_by_key import by_key
from ddpcheck.judging.world import Judged, Process, World
from ddpcheck.seams import BY_NAME, reason
from ddpcheck.vocabulary.wording import count, listing, ranks_text


def missing(processes: Iterable[Process]) -> dict[str, str]:
    """By seam that is missing in some process: who should have it."""
    return {one.seam: one.of for process in processes for one in process.of(ev.Missing)}


def lost(processes: Iterable[Process]) -> dict[str, str]:
    """By check that cannot be made: why, as a clause."""
    found: dict[str, str] = {}
    for name, of in missing(processes).items():
        for check in resting_on(BY_NAME[name].sight) if name in BY_NAME else ():
            found.setdefault(check, reason(name, of))
    return found


def only_grounded(found: Mapping[str, Judged], world: World) -> dict[str, Judged]:
    """What the judges have said, without what they cannot know; that ranks failed or stood still shows otherwise."""
    without = lost(process for rank in world for process in (rank.process, *rank.workers))
    grounded = {
        check: judged
        if check not in without or (check in those("stops") and any(f.severity == "error" for f in judged.findings))
        else Judged(check=check, checked=0, skipped_because=without[check])
        for check, judged in found.items()
    }
    if world.complete:
        return grounded
    # What was found of the other ranks is so all the same; that nothing was found says nothing.
    why = absent(world.missing)
    return {
        check: judged if judged.findings else Judged(check=check, checked=0, skipped_because=why)
        for check, judged in grounded.items()
    }


def absent(ranks: Sequence[int]) -> str:
    """The reason for what cannot be checked without the evidence of some ranks, as a clause."""
    return f"the evidence of {ranks_text(ranks)} is missing"


def told(processes: Sequence[Process]) -> Iterator[str]:
    """What a reader has to know of it, as sentences."""
    by_owner = by_key((of, name) for name, of in missing(processes).items())
    for of, names in by_owner.items():
        checks = count(len(lost(processes)), "check")
        yield f"{of} has no {listing(names, 3)}: {checks} could not be made (`ddpcheck doctor` says which)."
