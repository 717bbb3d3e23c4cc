"""One mistake, one finding: what follows from another finding is told with it, the most telling first."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ddpcheck.model import Finding

STOPPED = ("no-hang", "rank-failure")
STATE = ("initial-broadcast", "gradient-sync", "parameter-sync", "buffer-sync", "optimizer-sync")

FOLLOWS: dict[str, tuple[str, ...]] = {
    "device-placement": STOPPED,
    "checkpoint-load-complete": (*STATE, *STOPPED),
    "checkpoint-single-writer": ("checkpoint-read-after-write", "checkpoint-atomic-save", *STOPPED),
    "checkpoint-read-after-write": ("checkpoint-single-writer", "checkpoint-load-complete", *STATE, *STOPPED),
    "process-hygiene": (*STATE, *STOPPED),
    "shard-partition": ("batch-count", "epoch-reshuffle", *STOPPED),
    "batch-count": ("collective-order", *STATE, *STOPPED),
    "reducer-coverage": (*STATE, "collective-order", *STOPPED),
    "collective-order": (*STATE, *STOPPED),
    "initial-broadcast": ("gradient-sync", "parameter-sync", "buffer-sync"),
    "gradient-sync": ("parameter-sync", "optimizer-sync", "buffer-sync"),
    "optimizer-sync": ("parameter-sync", "gradient-sync"),
    "parameter-sync": ("gradient-sync", "buffer-sync", "initial-broadcast"),
    "rank-failure": ("collective-order", "no-hang"),
    "no-hang": ("collective-order",),
}
"""What may be a consequence of what, if both concern the same thing. The order is that of telling."""

_RANKS = {check: place for place, check in enumerate(FOLLOWS)}


def grouped(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Fold consequences into their causes; errors first, and of these the earliest and most telling."""
    ordered = sorted(_merged(findings), key=lambda f: (f.severity != "error", _RANKS.get(f.check, len(_RANKS))))
    kept: list[Finding] = []
    for finding in ordered:
        cause = next((place for place, one in enumerate(kept) if _explains(one, finding)), None)
        if cause is None:
            kept.append(finding)
        else:
            kept[cause] = _with(kept[cause], finding)
    return tuple(sorted(kept, key=lambda f: f.severity != "error"))


def _explains(cause: Finding, finding: Finding) -> bool:
    if finding.check not in FOLLOWS.get(cause.check, ()):
        return False
    if cause.severity == "warning" and finding.severity == "error":
        return False
    if cause.step is not None and finding.step is not None and cause.step > finding.step:
        return False
    return bool(set(cause.links) & set(finding.links))


def _with(cause: Finding, finding: Finding) -> Finding:
    also = dict.fromkeys((*cause.also, finding.check, *finding.also))
    also.pop(cause.check, None)
    known = {(rank, str(site)) for rank, site in cause.proof}
    more = [(rank, site) for rank, site in finding.proof if (rank, str(site)) not in known]
    if finding.where is not None and finding.where != cause.where:
        more.append((finding.ranks[0] if finding.ranks else 0, finding.where))
    return msgspec.structs.replace(cause, also=tuple(also), proof=(*cause.proof, *more))


def _merged(findings: Iterable[Finding]) -> list[Finding]:
    """The same fault at the same line, of several wrappers, worlds or ranks, is one."""
    found: dict[tuple[str, str, str], Finding] = {}
    for finding in findings:
        key = (finding.check, finding.severity, str(finding.where) if finding.where else finding.subject)
        before = found.get(key)
        if before is None:
            found[key] = finding
        else:
            found[key] = msgspec.structs.replace(
                before,
                count=before.count + finding.count,
                ranks=tuple(sorted({*before.ranks, *finding.ranks})),
                links=tuple(dict.fromkeys((*before.links, *finding.links))),
            )
    return list(found.values())
