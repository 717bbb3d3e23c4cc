"""One mistake, one finding: what follows from another finding is reported with it, the most telling first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ddpcheck.checks.check import LAST
from ddpcheck.checks.registry import every_check
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import listing


def grouped(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Fold consequences into their causes; errors first, and of these the earliest and most telling."""
    ordered = sorted(findings, key=lambda f: (f.severity != "error", _place(f)))
    kept: list[Finding] = []
    for finding in ordered:
        causes = [place for place, one in enumerate(kept) if _explains(one, finding)]
        if causes:
            nearest = max(causes, key=lambda place: (len(_shared(kept[place], finding)), place))
            kept[nearest] = _with(kept[nearest], finding)
        else:
            kept.append(finding)
    return tuple(sorted(_merged(kept), key=lambda f: f.severity != "error"))


def _place(finding: Finding) -> int:
    """Its place in the telling; that of a finding of the runtime's own comes last."""
    check = every_check().get(finding.check)
    return check.order if check is not None else LAST


def _explains(cause: Finding, finding: Finding) -> bool:
    check = every_check().get(finding.check)
    if check is None or cause.check not in check.follows:
        return False
    if cause.severity == "warning" and finding.severity == "error":
        return False
    if cause.step is not None and finding.step is not None and cause.step > finding.step:
        return False
    return bool(_shared(cause, finding))


def _shared(cause: Finding, finding: Finding) -> set[str]:
    return set(cause.links) & set(finding.links)


def _with(cause: Finding, finding: Finding) -> Finding:
    also = dict.fromkeys((*cause.also, finding.check, *finding.also))
    also.pop(cause.check, None)
    known = {(rank, str(site)) for rank, site in cause.proof}
    more = [(rank, site) for rank, site in finding.proof if (rank, str(site)) not in known]
    if finding.where is not None and finding.where != cause.where:
        more.append((finding.ranks[0] if finding.ranks else 0, finding.where))
    return msgspec.structs.replace(cause, also=tuple(also), proof=(*cause.proof, *more))


def _merged(findings: Iterable[Finding]) -> list[Finding]:
    """The same fault at the same line, of several wrappers, worlds or ranks, is one: the cause is the same, too."""
    found: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        place = str(finding.where) if finding.where else finding.subject
        found.setdefault((finding.check, finding.rule, finding.severity, place, finding.cause), []).append(finding)
    return [_as_one(same) for same in found.values()]


def _as_one(same: Sequence[Finding]) -> Finding:
    first = same[0]
    others = [subject for subject in dict.fromkeys(one.subject for one in same) if subject != first.subject]
    counts = [one.count for one in same]  # from one step on, they are of the same windows
    return msgspec.structs.replace(
        first,
        count=max(counts) if first.step is not None and len({one.step for one in same}) == 1 else sum(counts),
        ranks=tuple(sorted({rank for one in same for rank in one.ranks})),
        links=tuple(dict.fromkeys(link for one in same for link in one.links)),
        also=tuple(dict.fromkeys(check for one in same for check in one.also)),
        found=f"{first.found}; and the same of {listing(others)}" if others else first.found,
    )
