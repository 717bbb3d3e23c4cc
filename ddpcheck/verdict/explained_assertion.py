"""Why an assertion is violated: whatever the judges of a script's run can explain, it explains in the same words."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ddpcheck import evidence as ev
from ddpcheck.checks.registry import checks, has_part, judge_of
from ddpcheck.judging.line_evidence import bearing_on
from ddpcheck.judging.model_parts import part_of
from ddpcheck.judging.recorded_section import world_of
from ddpcheck.judging.world import World
from ddpcheck.verdict import library_terms
from ddpcheck.verdict.grouping import grouped
from ddpcheck.verdict.missing_evidence import lost
from ddpcheck.vocabulary.model import Finding


def explained(findings: Sequence[Finding], evidence: Sequence[bytes]) -> tuple[Finding, ...]:
    """The findings of an assertion with the cause and the fix that the ranks' own records show, where they do."""
    if not all(evidence):
        return tuple(findings)
    try:
        world = world_of(evidence)
        failed = next((defect for _, defect in world.of(ev.Defect)), None)
        if failed is None:
            known = (_explained(finding, world) for finding in findings)
            return tuple(replace(finding, module=part_of(world, finding)) for finding in known)
        why = failed.text.strip().rpartition("\n")[2]
    except Exception as error:  # the finding is right without its cause
        why = f"{type(error).__name__}: {error}"
    ours = f"(A fault of ddpcheck's own: the cause could not be looked for, {why}.)"
    return tuple(replace(finding, advice=f"{finding.advice} {ours}") for finding in findings)


def _explained(finding: Finding, known: World) -> Finding:
    """With the first of what a run would report of this check, and of those that it may follow from."""
    world = bearing_on(known, gradients=finding.check == "gradient-sync")
    if world is None:
        return finding
    unseen = lost(rank.process for rank in world)
    follows = checks()[finding.check].follows
    asked = [check for check in (finding.check, *follows) if has_part(check, "run") and check not in unseen]
    judged = [library_terms.in_its_terms(judge_of(check, "run")(world), world) for check in asked]
    found = grouped([finding for one in judged for finding in one.findings])
    first = next((one for one in found if one.severity == "error" and finding.check in (one.check, *one.also)), None)
    if first is None or not first.cause:
        return finding
    lines = [(first.ranks[0] if first.ranks else 0, first.where.alone)] if first.where is not None else []
    return replace(finding, cause=first.cause, advice=first.advice, proof=(*lines, *finding.proof))
