"""What judges say without the findings of rules that ``--checks`` or ``--skip`` leave out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from ddpcheck.checks.registry import those
from ddpcheck.judging.world import Judged
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import listing


def without_rules(
    judged: Sequence[Mapping[str, Judged]], rules: Collection[str]
) -> tuple[list[dict[str, Judged]], tuple[str, ...]]:
    """The same without these rules' findings, and those of the rules that had any.

    A check that has lost all of its findings is not checked: it did not hold.
    """
    found = [finding for of_world in judged for one in of_world.values() for finding in one.findings]
    gone = [finding for finding in found if _left_out(finding, rules)]
    kept = {finding.check for finding in found if not _left_out(finding, rules)}
    lost = {
        check: list(dict.fromkeys(one.name for one in gone if one.check == check))
        for check in dict.fromkeys(finding.check for finding in gone)
    }
    return [
        {check: _without(one, rules, [] if check in kept else lost.get(check, [])) for check, one in of_world.items()}
        for of_world in judged
    ], tuple(rule for names in lost.values() for rule in names)


def chosen_findings(
    judged: Sequence[Mapping[str, Judged]], chosen: Collection[str] | None
) -> tuple[list[Finding], list[Finding]]:
    """The findings that count, those of the chosen checks and what ended the program; and the advisories of these."""
    said = [one for of_world in judged for one in of_world.values()]
    wanted = [one for judge in said for one in judge.findings if chosen is None or one.check in chosen or _stops(one)]
    return wanted, [one for judge in said for one in judge.advisories if chosen is None or one.check in chosen]


def _without(judged: Judged, rules: Collection[str], lost: Sequence[str]) -> Judged:
    kept = replace(
        judged,
        findings=tuple(one for one in judged.findings if not _left_out(one, rules)),
        advisories=tuple(one for one in judged.advisories if one.rule not in rules),
    )
    if not lost:
        return kept
    names = listing([f"`{name}`" for name in lost])
    were = "was" if len(lost) == 1 else "were"
    return replace(kept, checked=0, skipped_because=f"{names} {were} left out by `checks` or `skip`")


def _left_out(finding: Finding, rules: Collection[str]) -> bool:
    """Whether it does not count; what has stopped the program does, whichever rules were chosen."""
    return (finding.rule or f"{finding.check}/") in rules and not _stops(finding)


def _stops(finding: Finding) -> bool:
    return finding.check in those("stops") and finding.severity == "error"
