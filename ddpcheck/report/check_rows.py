"""The table of checks: what was checked and how often, the broken ones first; and the others, by the reason why not."""

from __future__ import annotations

from ddpcheck.checks.registry import every_check
from ddpcheck.verdict.verdict import Verdict
from ddpcheck.vocabulary.model import Status, Struct


class Row(Struct, frozen=True, kw_only=True):
    """One check."""

    check: str
    status: Status
    compared: str
    finding: int
    """The number of the finding that is about it, or that it follows from; 0 for none."""
    told: str
    holds: str


def holds(check: str) -> str:
    """When a check holds, as a sentence; nothing for one that is not known here."""
    known = every_check().get(check)
    return f"{known.holds[:1].upper()}{known.holds[1:]}." if known is not None else ""


def checked(verdict: Verdict) -> list[Row]:
    """Those that were checked, the broken ones first, in the order of the findings."""
    rows = []
    for check, result in verdict.checks.items():
        if result.status == "not-checked":
            continue
        own = [n for n, finding in enumerate(verdict.findings, 1) if finding.check == check]
        causes = [n for n, finding in enumerate(verdict.findings, 1) if check in finding.also]
        number = (own or causes or [0])[0]
        more = f" and {len(own) - 1} more" if len(own) > 1 else ""
        told = f"finding {number}{more}" if own else f"follows from {number}" if causes else ""
        accepted = f"{result.accepted:,} accepted" if result.accepted else ""
        rows.append(
            Row(
                check=check,
                status=result.status,
                compared=result.coverage,
                finding=number,
                told=", ".join(part for part in (told, accepted) if part),
                holds=holds(check),
            )
        )
    return sorted(rows, key=lambda row: (_ORDER.index(row.status), row.finding))


_ORDER: tuple[Status, ...] = ("violated", "at-risk", "held", "not-checked")


def unchecked(verdict: Verdict) -> list[tuple[str, list[str]]]:
    """The others: each reason, and the checks that it is the reason of."""
    reasons: dict[str, list[str]] = {}
    for check, result in verdict.checks.items():
        if result.status == "not-checked":
            reasons.setdefault(result.skipped_because or "nothing was seen that it could judge", []).append(check)
    return list(reasons.items())
