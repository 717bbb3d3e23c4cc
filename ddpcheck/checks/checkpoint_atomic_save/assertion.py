"""What planted kills have left of a checkpoint: the judge of checkpoint-atomic-save, as an assertion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ddpcheck.evidence.planted_kills import Kill, Killed
from ddpcheck.judging import failed_user_functions
from ddpcheck.judging.values_by_key import by_key
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import NOT_CHECKED, count, listing, ranks_text


def judge(facts: Sequence[Any], rounds: Sequence[Sequence[Any]] = ()) -> tuple[Finding, ...]:
    """One finding for all kills that have lost the checkpoint."""
    said = {rank: msgspec.convert(fact, Killed) for rank, fact in enumerate(facts) if fact is not None}
    raised = failed_user_functions.judge([said[rank].failure if rank in said else None for rank in range(len(facts))])
    if raised:
        return raised
    lost = {rank: [k for k in one.kills if k.left in ("other", "raised")] for rank, one in said.items()}
    lost = {rank: kills for rank, kills in lost.items() if kills}
    if lost:
        return (_lost(lost, sum(len(one.kills) for one in said.values())),)
    torn = _torn(said)
    if torn is not None:
        return (torn,)
    unstopped = {rank: one.unstopped for rank, one in said.items() if one.unstopped}
    if unstopped:
        return (_unstopped(unstopped),)
    if any(one.together for one in said.values()):
        return ()
    reasons = {rank: one.not_tried for rank, one in said.items() if one.not_tried}
    if reasons or not any(one.kills for one in said.values()):
        return (_not_tried(reasons, len(facts)),)
    return ()


def _lost(lost: dict[int, list[Kill]], tried: int) -> Finding:
    rank, kills = next(iter(lost.items()))
    first = next((k for k in kills if k.left == "raised"), kills[0])
    how = {
        "raised": f"the load then fails with {first.detail}",
        "other": f"the load then finds neither the old state nor the new one: {first.detail}",
    }[first.left]
    return Finding(
        rule="lost-checkpoint",
        ranks=tuple(sorted(lost)),
        subject="save()",
        expected="a kill at any moment of a save to leave the checkpoint before it whole, or the new one",
        found=f"{count(sum(map(len, lost.values())), 'kill')} of {tried} to lose both; on {ranks_text([rank])}, killed "
        f"{first.moment}, {how}",
        cause="the save writes over the only good checkpoint, or takes it away before the new one is whole",
        advice="Write beside it and move it into place in one step: torch.save(state, draft); os.replace(draft, path).",
        count=sum(map(len, lost.values())),
    )


def _torn(said: dict[int, Killed]) -> Finding | None:
    """Some of several ranks have saved, and the ranks do not find all the old state, or all the new one."""
    moments: dict[str, dict[int, Kill]] = {}
    for rank, one in said.items():
        for kill in one.together:
            moments.setdefault(kill.moment, {})[rank] = kill
    wrong = {m: found for m, found in moments.items() if {k.left for k in found.values()} not in ({"old"}, {"new"})}
    if not wrong:
        return None
    moment, found = next(iter(wrong.items()))
    words = {"old": "the old state", "new": "the new one", "other": "neither", "raised": "an error"}
    ranks = by_key((words[kill.left], rank) for rank, kill in sorted(found.items()))
    first = next((k.detail for k in found.values() if k.detail), "")
    return Finding(
        rule="mixed-checkpoint",
        ranks=tuple(sorted(found)),
        subject="save()",
        expected="all ranks to find the old checkpoint, or all the new one, whichever of them had saved by then",
        found=f"{moment}: "
        + ", ".join(f"{what} on {ranks_text(who)}" for what, who in ranks.items())
        + (f" ({first})" if first else ""),
        cause="several ranks write a part each, in the place of the part before",
        advice="Write the parts to a new folder, let all ranks meet, and then let one rank point to it in one step.",
        count=len(wrong),
    )


def _unstopped(unstopped: dict[int, tuple[str, ...]]) -> Finding:
    rank, files = next(iter(unstopped.items()))
    return Finding(
        rule="interruption-not-tested",
        severity="warning",
        ranks=tuple(sorted(unstopped)),
        subject=f"file {files[0]}",
        expected="kills in the midst of everything that save() writes",
        found=f"none in the midst of {listing(files)} on rank {rank}, which no limit on the size of files has stopped: "
        "a memory map, perhaps",
        advice="Nothing is known of a save that is interrupted there: see that it writes beside the old file and "
        "renames.",
        links=(NOT_CHECKED,),
    )


def _not_tried(reasons: dict[int, str], world_size: int) -> Finding:
    rank = min(reasons, default=0)
    return Finding(
        rule="interruption-not-tested",
        severity="warning",
        ranks=tuple(sorted(reasons)) or tuple(range(world_size)),
        subject="save()",
        expected="kills to be planted in the save",
        found=f"none: {reasons[rank]}" if reasons else "none: no rank that writes a file",
        advice="Nothing is known of a save that is interrupted; see that it writes beside the old file and renames.",
        links=(NOT_CHECKED,),
    )
