"""A verdict without the findings that are accepted: these stand beside the others, and do not count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from ddpcheck.acceptance import baseline as baselines
from ddpcheck.acceptance.baseline import Baseline, Key
from ddpcheck.acceptance.line_comments import LineComments
from ddpcheck.acceptance.rules import Match, Rules, matches, stopped_the_program
from ddpcheck.acceptance.unmatched import Seen, stale_keys, unmatched
from ddpcheck.evidence import Site
from ddpcheck.verdict.verdict import Accepted, CheckResult, Verdict, without_errors
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count


def with_accepted(verdict: Verdict, rules: Rules, sites: Iterable[Site] = (), cut_short: bool = False) -> Verdict:
    """The verdict as it is by these rules and the comments on its lines.

    ``sites`` are the lines that were met; a run that was ``cut_short`` has
    not met all that it would have.
    """
    comments = LineComments(verdict.folder, verdict.lines)
    seen = Seen.of(verdict, sites, cut_short)
    found = [[*matches(finding, rules, comments, verdict.folder)] for finding in verdict.findings]
    within = _within_counts(found, rules.baseline)
    kept: list[Finding] = []
    taken: list[Accepted] = []
    notes: list[str] = []
    for finding, all_of_it in zip(verdict.findings, found, strict=True):
        first = next(
            (match for match in all_of_it if match.by not in within or _place(match) in within[match.by]), None
        )
        if first is None or stopped_the_program(finding):
            kept.append(rules.at_severity(finding))
            notes += _refused(first) if first is not None else []
        else:
            taken.append(replace(first.accepted, finding=rules.at_severity(finding)))
    notes += _changed(verdict.findings, rules)
    used: set[object] = {match.by for one in found for match in one}
    advisories = verdict.advisories
    if advisories:
        others = replace(rules, baseline=None)
        known = [(one, [*matches(one, others, comments, verdict.folder)]) for one in advisories]
        used |= {match.by for _, found in known for match in found}
        advisories = tuple(one for one, found in known if not found)
    if rules.baseline is not None:  # also where a finding is worse than the one that was accepted
        keys_of = rules.baseline.keys_of
        used |= {key for finding in verdict.findings for key in keys_of(finding, verdict.folder, comments)}
    notes += unmatched(verdict, rules, used, seen, comments)
    kept.sort(key=lambda one: one.severity != "error")
    checks = {check: _result(check, result, kept, taken) for check, result in verdict.checks.items()}
    word = verdict.verdict
    if word in ("held", "violated", "nothing-checked"):
        word = (
            "violated" if any(one.severity == "error" for one in kept) else without_errors(checks, verdict.understood)
        )
    return replace(
        verdict,
        verdict=word,
        checks=checks,
        findings=tuple(kept),
        accepted=tuple(taken),
        advisories=advisories,
        notes=(*verdict.notes, *dict.fromkeys(notes)),
    )


def new_baseline(verdict: Verdict, rules: Rules, sites: Iterable[Site] = (), cut_short: bool = False) -> Baseline:
    """The baseline as ``--write-baseline`` leaves it, by the verdict before anything is accepted.

    It has the findings that nothing else accepts, and of its former entries
    those of which this run could not know whether they still are.
    """
    old = rules.baseline or Baseline(path="")
    comments = LineComments(verdict.folder, verdict.lines)
    seen = Seen.of(verdict, sites, cut_short)
    others = replace(rules, baseline=None)
    counted = [
        finding
        for finding in verdict.findings
        if not stopped_the_program(finding) and not any(matches(finding, others, comments, verdict.folder))
    ]
    entries = baselines.entries_of(counted, old, verdict.folder, comments)
    gone = {entry.key for entry in entries} | stale_keys(verdict, old, set(), seen)
    return replace(old, entries=(*entries, *(entry for entry in old.entries if entry.key not in gone)))


def _place(match: Match) -> int:
    where = match.accepted.finding.where
    return where.line if where is not None else 0


def _within_counts(found: Sequence[Sequence[Match]], baseline: Baseline | None) -> Mapping[object, Sequence[int]]:
    """By key of an entry: the lines that it accepts, which are the first so many of those that have its text."""
    same: dict[Key, list[Finding]] = {}
    for match in (match for one in found for match in one):
        if isinstance(match.by, Key):
            same.setdefault(match.by, []).append(match.accepted.finding)
    counts = {entry.key: entry.count for entry in baseline.entries} if baseline is not None else {}
    return {key: baselines.lines_of(findings)[: counts[key]] for key, findings in same.items()}


def _refused(match: Match) -> Iterator[str]:
    finding = match.accepted.finding
    yield (
        f"{match.accepted.source} accepts {finding.name} ({finding.subject}), by which the program came to a stop: "
        "that counts all the same."
    )


def _changed(findings: Iterable[Finding], rules: Rules) -> Iterator[str]:
    """Which severities are the project's, and not our own."""
    for check, severity in rules.severities.items():
        changed = [one for one in findings if one.check == check and rules.at_severity(one) is not one]
        if changed:
            how = count(len(changed), f"{changed[0].severity}")
            yield f"{rules.source} has {check} count as {severity}: by itself it would be {how}."


def _result(check: str, result: CheckResult, kept: Iterable[Finding], taken: Iterable[Accepted]) -> CheckResult:
    """A check all of whose findings are accepted is at risk: it did not hold, and nobody is to act."""
    severities = {one.severity for one in kept if check in (one.check, *one.also)}
    number = sum(check in (one.finding.check, *one.finding.also) for one in taken)
    status = result.status
    if status != "not-checked" or "error" in severities:
        if "error" in severities:
            status = "violated"
        elif severities or number:
            status = "at-risk"
    return replace(result, status=status, accepted=number)
