"""What was judged of evidence that is held no longer: counts and findings, which the final verdict goes on from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from ddpcheck.checks.registry import those
from ddpcheck.judging.world import Judged
from ddpcheck.vocabulary.model import Finding

Key = tuple[Any, ...]


class _Past:
    """One check of one world, up to now."""

    def __init__(self) -> None:
        self.checked = 0
        self.of = 0
        self.findings: dict[Key, Finding] = {}
        self.unfounded: set[Key] = set()
        """What a judge says only because it misses what was let go."""


class Settled:
    """The past of each world, by its token."""

    def __init__(self) -> None:
        self._worlds: dict[str, dict[str, _Past]] = {}

    def take(self, token: str, before: Mapping[str, Judged], after: Mapping[str, Judged]) -> None:
        """Keep what the judges said before some evidence was let go, as far as they do not say it after that.

        Both are of what is held alone. What they say only afterwards, they
        say for want of the rest: that is no finding, now or later.
        """
        past = self._worlds.setdefault(token, {})
        for check, said in before.items():
            one = past.setdefault(check, _Past())
            still = after[check] if check in after else Judged(check=check, checked=0)
            one.checked += max(0, said.checked - still.checked)
            one.of += max(0, max(said.of, said.checked) - max(still.of, still.checked))
            if check in those("of_endings"):  # what has not ended may still go on
                continue
            there = {key_of(f): f for f in (*said.findings, *said.advisories)}
            stays = {key_of(f): f for f in (*still.findings, *still.advisories)}
            one.unfounded |= stays.keys() - there.keys() - one.findings.keys()
            for key, finding in there.items():
                if key in one.unfounded:
                    continue
                gone = finding.count - stays[key].count if key in stays else finding.count
                known = one.findings.get(key)
                if known is not None:
                    one.findings[key] = _together(known, finding, gone)
                elif gone > 0:
                    one.findings[key] = replace(finding, count=gone)

    def with_past(self, token: str, judged: Mapping[str, Judged]) -> dict[str, Judged]:
        """What the judges say of all that a world has done, from what they say of what is held of it."""
        past = self._worlds.get(token)
        if past is None:
            return dict(judged)
        return {check: _with(past[check], said) if check in past else said for check, said in judged.items()}


def key_of(finding: Finding) -> Key:
    """By what the same mistake is known again: not by the steps, values and ranks at which it was seen."""
    place = str(finding.where) if finding.where else finding.subject
    return finding.check, finding.rule, finding.severity, place, finding.links


WANTING = "part of what it rests on was let go of in a long run, and without that it can say nothing"
"""Why a check whose judge says something for want of evidence is not held."""


def _with(past: _Past, said: Judged) -> Judged:
    checked = past.checked + said.checked
    findings = dict(past.findings)
    known = any(one.severity != "advisory" for one in findings.values())
    if not known and all(key_of(finding) in past.unfounded for finding in said.findings) and said.findings:
        return replace(said, checked=0, findings=(), advisories=(), skipped_because=WANTING)
    for finding in (*said.findings, *said.advisories):
        key = key_of(finding)
        if key in findings:
            findings[key] = _together(findings[key], finding, finding.count)
        elif key not in past.unfounded:
            findings[key] = finding
    return replace(
        said,
        checked=checked,
        of=past.of + max(said.of, said.checked),
        findings=tuple(one for one in findings.values() if one.severity != "advisory"),
        advisories=tuple(one for one in findings.values() if one.severity == "advisory"),
        skipped_because="" if checked else said.skipped_because,
    )


def _together(first: Finding, later: Finding, more: int) -> Finding:
    """The same mistake, seen again: told by the first time."""
    ranks = tuple(sorted({*first.ranks, *later.ranks}))
    return replace(first, count=first.count + max(0, more), ranks=ranks)
