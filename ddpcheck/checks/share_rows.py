"""Rows over what each step is made of: rules as readings of who has a share in it, with the words for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ddpcheck.checks.rows import Words
from ddpcheck.facts.mixing import Mixing
from ddpcheck.relations.complete import Deviation, Ground, Pattern, completeness
from ddpcheck.vocabulary.model import Finding, Severity
from ddpcheck.vocabulary.wording import count, listing, ranks_text


class ShareRow(NamedTuple):
    """One rule: which deviations it reads, and what it is called.

    Texts are templates: ``{name}``, ``{names}``, ``{gradients}`` and ``{parameters}`` (how many), ``{holders}`` (the
    ranks that have copies, set by set), ``{over}`` (those whose contributions are added up, set by set), ``{owners}``
    (these all together), ``{models}`` (how many sets), ``{steps}``, ``{of}``, ``{calls}``, ``{shares}``, ``{earlier}``,
    ``{dataset}``, ``{crossed}`` (the other tensors, by rank).
    """

    rule: str
    patterns: tuple[Pattern, ...]
    expected: str
    found: str
    causes: Mapping[str, Words | None]
    """By the deviation's cause, None for one that it does not read; that of an empty name is for all others."""
    grounds: tuple[Ground, ...] | None = None
    """Those that it reads; all of them by default."""
    severity: Severity = "warning"
    subject: str = "{name}"


class Shares(NamedTuple):
    """What the rows of a check have found."""

    findings: list[Finding]
    windows: set[tuple[int, int]]
    """Those of which the shares of several holders are known: an optimizer's number, and that of its step."""
    several: set[tuple[int, int]]
    """Those of which the shares of several backward() calls are."""


def read_shares(each: Sequence[Mixing], rows: Sequence[ShareRow]) -> Shares:
    """The findings of all rows, in their order; each deviation is told by the first row that reads it."""
    windows: set[tuple[int, int]] = set()
    several: set[tuple[int, int]] = set()
    found: list[list[Finding]] = [[] for _ in rows]
    for mixing in each:
        complete = completeness(mixing)
        windows |= complete.windows
        several |= complete.several
        for deviation in complete.deviations:
            for row, its in zip(rows, found, strict=True):
                if _reads(row, deviation):
                    its.append(_finding(row, deviation))
                    break
    return Shares([finding for its in found for finding in its], windows, several)


def _reads(row: ShareRow, deviation: Deviation) -> bool:
    is_meant = deviation.pattern in row.patterns and (row.grounds is None or deviation.ground in row.grounds)
    return is_meant and _words(row, deviation) is not None


def _words(row: ShareRow, deviation: Deviation) -> Words | None:
    return row.causes[deviation.cause] if deviation.cause in row.causes else row.causes.get("")


def _finding(row: ShareRow, deviation: Deviation) -> Finding:
    words = _words(row, deviation) or Words()
    names, answer = deviation.names, deviation.answer
    calls = [str(turn + 1) for turn in sorted(answer.lost)]
    texts: dict[str, Any] = {
        "name": names[0],
        "names": listing(names),
        "gradients": count(len(names), "gradient"),
        "parameters": count(len(names), "parameter"),
        "holders": " and ".join(ranks_text(sorted(ranks)) for ranks in deviation.holders),
        "over": " and ".join(ranks_text(sorted(ranks)) or "nobody" for ranks in deviation.over),
        "owners": ranks_text(sorted(frozenset[int]().union(*deviation.over))),
        "steps": count(len(deviation.windows), "step"),
        "of": deviation.of,
        "calls": listing(calls),
        "shares": ", ".join(f"{abs(share):.3g}" for share in answer.weights),
        "earlier": f"{answer.earlier:.3g}",
        "models": len(deviation.over),
        "dataset": deviation.family.dataset,
        "crossed": listing([f"{deviation.family.tensors[at].path} on rank {rank}" for rank, at in answer.crossed]),
    }
    optimizer = deviation.family.optimizers[min(deviation.family.optimizers)]
    return Finding(
        rule=row.rule,
        severity=row.severity,
        ranks=deviation.ranks,
        subject=row.subject.format(**texts),
        step=deviation.windows[0],
        expected=row.expected.format(**texts),
        found=row.found.format(**texts),
        cause=words.cause.format(**texts),
        advice=words.advice.format(**texts),
        where=deviation.line,
        count=len(deviation.windows),
        links=(f"optimizer {optimizer}",),
    )
