"""Whether a finding is accepted: by a comment, an entry of the settings, or a baseline, in this order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from ddpcheck.acceptance.baseline import Baseline, Key
from ddpcheck.acceptance.ignore_entries import Ignore
from ddpcheck.acceptance.line_comments import LineComments
from ddpcheck.acceptance.project_paths import in_project
from ddpcheck.checks.registry import those
from ddpcheck.verdict.verdict import Accepted
from ddpcheck.vocabulary.model import Finding, Severity, Struct


class Rules(Struct, frozen=True, kw_only=True):
    """What a project has laid down, beside the comments on its lines."""

    source: str = ""
    """The file of the settings, as messages name it."""
    base: str = ""
    """Its folder, to which the files of entries are relative."""
    ignores: tuple[Ignore, ...] = ()
    severities: Mapping[str, Severity] = msgspec.field(default_factory=dict)
    baseline: Baseline | None = None

    def concern(self, finding: Finding) -> bool:
        """Whether anything here accepts findings of its check, or of its rule."""
        entries = self.baseline.entries if self.baseline is not None else ()
        names = {*(one.check for one in self.ignores), *(one.rule or one.check for one in entries)}
        return not names.isdisjoint({finding.check, finding.rule})

    def at_severity(self, finding: Finding) -> Finding:
        """A finding with the severity that its check was given; what stopped the program stays what it is."""
        severity = self.severities.get(finding.check)
        if severity is None or severity == finding.severity or stopped_the_program(finding):
            return finding
        return replace(finding, severity=severity)


class ByComment(NamedTuple):
    """The name of a check or a rule in a comment."""

    file: str
    line: int
    check: str


class Match(NamedTuple):
    """A finding, accepted; and what accepts it."""

    accepted: Accepted
    by: ByComment | Ignore | Key


def stopped_the_program(finding: Finding) -> bool:
    """Whether the program failed or hung by it: nobody can accept that, since it has not done its work."""
    return finding.severity == "error" and bool({finding.check, *finding.also} & {*those("stops")})


def accepted(finding: Finding, rules: Rules, comments: LineComments, folder: str = "") -> Accepted | None:
    """Who accepts this finding, and why; None where it counts.

    ``folder`` is the working directory of the ranks. A baseline may hold
    fewer findings of a kind than there are: that one has too many is known
    only of all of them together (see :mod:`ddpcheck.acceptance.accepted_verdict`).
    """
    if stopped_the_program(finding):
        return None
    return next((match.accepted for match in matches(finding, rules, comments, folder)), None)


def matches(finding: Finding, rules: Rules, comments: LineComments, folder: str) -> Iterator[Match]:
    """Everything that means this finding, the first of which accepts it."""
    where = finding.where
    for comment in comments.at(where) if where is not None else ():
        for name in (finding.check, finding.rule):
            if where is not None and name in comment.checks:
                source = f"comment in {where.file}:{comment.line}"
                by = ByComment(where.file, comment.line, name)
                yield Match(Accepted(finding=finding, by="comment", source=source, reason=comment.reason), by)
    path = in_project(where.file, folder, rules.base) if where is not None else ""
    about = (named.partition(" ") for named in (finding.subject, *finding.links))
    written = [in_project(file, folder, rules.base) for kind, _, file in about if kind == "file"]
    for entry in rules.ignores:
        if entry.means(finding, path, written):
            yield Match(Accepted(finding=finding, by="ignore", source=rules.source, reason=entry.reason), entry)
    if rules.baseline is not None:
        for key in rules.baseline.keys_of(finding, folder, comments):
            found = rules.baseline.entry_for(key, finding.severity)
            if found is not None:
                source = rules.baseline.path
                yield Match(Accepted(finding=finding, by="baseline", source=source, reason=found.reason), key)
