"""The judges of a script's run, one after the other, over the evidence of one world."""

from __future__ import annotations

import traceback

from ddpcheck import evidence as ev
from ddpcheck.checks.registry import checks, every_check, has_part, judge_of, named
from ddpcheck.judging import model_parts
from ddpcheck.judging.world import Judged, World
from ddpcheck.verdict import interruption, library_terms, missing_evidence

_NOTHING = "ddpcheck saw no wrapped or sharded module, and no optimizer step"


def judge_world(world: World, defects: list[str] | None = None, ends: bool = False) -> dict[str, Judged]:
    """What each check has to say; one that nothing has checked is among them.

    A judge of ours that fails is a defect of ours: its traceback goes to
    ``defects``, and the others are heard all the same. One of another package
    takes nothing but its own check with it. Of a world that has not ended,
    what is said of its end is left out, unless ``ends`` asks for it.
    """
    found = {}
    for check in every_check():
        judged = Judged(check=check, checked=0)
        if check not in checks():
            judged = _of_another_package(check, world)
        elif has_part(check, "run"):
            try:
                judged = library_terms.in_its_terms(judge_of(check, "run")(world), world)
                judged = model_parts.with_parts(judged, world)
            except Exception:
                if defects is None:
                    raise
                defects.append(traceback.format_exc())
        found[check] = judged
    if not any(rank.of(ev.Wrapped) or rank.of(ev.Step) or rank.of(ev.Parallelised) for rank in world):
        found = {check: _nothing(judged) for check, judged in found.items()}
    found = missing_evidence.only_grounded(found, world)
    return found if world.now is None or ends else interruption.without_ends(found)


def _of_another_package(check: str, world: World) -> Judged:
    """What the judge of another package says, under the check's own id whatever it calls itself."""
    try:
        said = judge_of(check, "run")(world)
        found = (*said.findings, *getattr(said, "advisories", ()))
        judged = Judged(checked=int(said.checked), findings=found, skipped_because=str(said.skipped_because))
        return named(judged, check)
    except (Exception, SystemExit) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        told = f"its judge failed: {type(error).__name__}: {error} ({last.filename}:{last.lineno})"
        return Judged(check=check, checked=0, skipped_because=" ".join(told.split()))


def _nothing(judged: Judged) -> Judged:
    """A program that neither wraps or shards a model nor steps an optimizer trains nothing that could be checked."""
    if judged.findings:
        return judged
    reason = judged.skipped_because if not judged.checked else ""
    return Judged(check=judged.check, checked=0, skipped_because=reason or _NOTHING)
