"""What accepts a finding that is not there any more, as notes; and comments that accept nothing as they are written.

Only a run that could have shown the finding knows that it is gone: its check
was checked, its file and its function were met, and nothing is missing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from ddpcheck.acceptance.baseline import Baseline, Key
from ddpcheck.acceptance.line_comments import LineComments
from ddpcheck.acceptance.project_paths import in_project
from ddpcheck.acceptance.rules import ByComment, Rules
from ddpcheck.checks.registry import check_of
from ddpcheck.evidence import Site
from ddpcheck.verdict.verdict import Verdict
from ddpcheck.vocabulary.wording import listing

_NOTHING = "matches nothing in this run; remove it unless another run needs it"


class Seen(NamedTuple):
    """What of the user's code a run has met."""

    sites: dict[str, dict[int, Site]]
    """By file as the evidence names it, and line."""
    folder: str
    whole: bool
    """The run came to its own end, and all of it is on record."""

    @classmethod
    def of(cls, verdict: Verdict, sites: Iterable[Site], cut_short: bool) -> Seen:
        found: dict[str, dict[int, Site]] = defaultdict(dict)
        for site in sites:
            found[site.file][site.line] = site
        whole = verdict.verdict in ("held", "violated") and not verdict.part and not verdict.missing
        return cls(dict(found), verdict.folder, whole and not cut_short and verdict.interrupted_by is None)

    def functions(self, file: str) -> set[str]:
        return {site.function for site in self.sites.get(file, {}).values()}


def unmatched(
    verdict: Verdict, rules: Rules, used: Collection[object], seen: Seen, comments: LineComments
) -> Iterator[str]:
    """What is to be removed or corrected, as sentences; ``used`` is what has meant some finding of the run."""
    yield from _of_comments(verdict, used, seen, comments)
    if not seen.whole:
        return
    elsewhere = []
    for entry in rules.ignores:
        if entry in used or not _checked(verdict, entry.check):
            continue
        files = [f for f in seen.sites if entry.means_file(in_project(f, seen.folder, rules.base), f)]
        if not files:
            elsewhere.append(str(entry))
        elif any(entry.means_function(function) for file in files for function in seen.functions(file)):
            yield f"{rules.source}: {entry} {_NOTHING}."
    if elsewhere:
        yield f"{rules.source}: no line and no finding of this run is in the file of {listing(elsewhere)}."
    if rules.baseline is not None:
        gone = stale_keys(verdict, rules.baseline, used, seen)
        if gone:
            named = listing([f"{key.rule or key.check} in {key.file or 'no file'}" for key in sorted(gone)])
            match, them = ("entry matches", "it") if len(gone) == 1 else ("entries match", "them")
            where = rules.baseline.path
            yield f"{where}: {len(gone):,} {match} nothing in this run ({named}); --write-baseline removes {them}."


def stale_keys(verdict: Verdict, baseline: Baseline, used: Collection[object], seen: Seen) -> set[Key]:
    """The entries of a baseline that this run shows to be gone."""
    if not seen.whole:
        return set()
    met = {(in_project(file, seen.folder, baseline.folder), f) for file in seen.sites for f in seen.functions(file)}
    return {
        entry.key
        for entry in baseline.entries
        if entry.key not in used
        and _checked(verdict, entry.rule or entry.check)
        and (not entry.file or (entry.file, entry.function) in met)
    }


def _of_comments(verdict: Verdict, used: Collection[object], seen: Seen, comments: LineComments) -> Iterator[str]:
    for file, sites in seen.sites.items():
        if "site-packages" in file:
            continue
        for comment, met in comments.of_file(file, {line: site.text for line, site in sites.items()}):
            place = f"{file}:{comment.line}"
            for wrong in comment.wrong:
                yield f"{place}: a comment for ddpcheck accepts nothing: {wrong}."
            for name in comment.checks:
                gone = seen.whole and met and _checked(verdict, name)
                if gone and ByComment(file, comment.line, name) not in used:
                    yield f"{place}: the comment `ignore[{name}]` {_NOTHING}."


def _checked(verdict: Verdict, name: str) -> bool:
    """Whether the check, or that of the rule, was made by itself, and all that it found was wanted.

    What follows from another finding says nothing of its own findings.
    """
    check = check_of(name) or name
    result = verdict.checks.get(check)
    unseen = {*verdict.left_out, *map(check_of, verdict.left_out)}
    return bool(
        result is not None
        and result.status != "not-checked"
        and not any(check in one.also for one in verdict.findings)
        and name not in unseen
    )
