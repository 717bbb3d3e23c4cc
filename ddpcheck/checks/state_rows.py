"""Rows over state: rules as readings of names under which something else is held than was saved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ddpcheck.checks.rows import Words
from ddpcheck.facts.transfers import How, Proof, Transfer
from ddpcheck.judging.values_by_key import by_key
from ddpcheck.relations.identity import Deviation, Parted, identity
from ddpcheck.vocabulary.model import Finding, Severity
from ddpcheck.vocabulary.wording import count, listing, ranks_text


class StateRow(NamedTuple):
    """One rule: which deviations of which transfers it reads, and what it is called.

    Texts are templates: ``{names}``, ``{tensors}`` (how many), ``{name}``, ``{of}``, ``{shape}``.
    """

    rule: str
    answer: Proof
    transfers: tuple[How, ...]
    found: str
    causes: Mapping[str, Words]
    """By whether it is trained (``trained``, or nothing)."""
    expected: str = "a load to bring back, by name, what was saved, however it is cut"
    severity: Severity = "error"
    """Of what is trained; anything else is a warning."""


def read_states(transfers: Iterable[Transfer], rows: Sequence[StateRow]) -> tuple[set[tuple[int, str]], list[Finding]]:
    """The names that were compared, and the findings of all rows: one for each line that loads."""
    compared = [identity(one) for one in transfers]
    names = {name for one in compared for name in one.names}
    deviations = [one for found in compared for one in found.deviations]
    findings = []
    for row in rows:
        mine = (d for d in deviations if d.answer == row.answer and d.transfer.how in row.transfers)
        groups = by_key(((str(d.transfer.load.where), d.matters), d) for d in mine)
        findings += [_finding(row, each) for each in groups.values()]
    return names, findings


class PartedRow(NamedTuple):
    """One rule on parameters whose moments belong to others.

    Texts are templates: ``{names}``, ``{parameters}`` (how many), ``{ranks}``.
    """

    rule: str
    expected: str
    found: str
    words: Words
    severity: Severity


def read_parted(each: Iterable[Parted], row: PartedRow) -> list[Finding]:
    """The findings of a row: one for each line that loads."""
    groups = by_key((str(one.loads[0].read.where), one) for one in each if one.names)
    return [_parted_finding(row, each) for each in groups.values()]


def _parted_finding(row: PartedRow, each: Sequence[Parted]) -> Finding:
    names = list(dict.fromkeys(name for one in each for name in one.names))
    loads = [load for one in each for load in one.loads]
    ranks = tuple(sorted({load.rank.rank for load in loads}))
    texts = {"names": listing(names), "parameters": count(len(names), "parameter"), "ranks": ranks_text(ranks)}
    return Finding(
        rule=row.rule,
        severity=row.severity,
        ranks=ranks,
        subject=names[0],
        expected=row.expected,
        found=row.found.format(**texts),
        cause=row.words.cause,
        advice=row.words.advice,
        where=loads[0].read.where,
        count=1,
        links=("loaded state", *(f"entry {name}" for name in names[:10])),
    )


def _finding(row: StateRow, each: Sequence[Deviation]) -> Finding:
    first, transfer = each[0], each[0].transfer
    names = list(dict.fromkeys(name for one in each for name in one.names))
    words = row.causes.get("trained" if first.matters else "") or row.causes[""]
    piece = transfer.before[names[0]][0]
    subject = piece.entry.of or names[0]
    texts = {
        "name": subject,
        "names": listing(names),
        "tensors": count(len(names), "tensor"),
        "of": first.of,
        "shape": "x".join(map(str, piece.shape)),
    }
    return Finding(
        rule=row.rule,
        severity=row.severity if first.matters else "warning",
        ranks=tuple(sorted({rank for one in each for rank in one.ranks})),
        subject=subject,
        expected=row.expected.format(**texts),
        found=row.found.format(**texts),
        cause=words.cause.format(**texts),
        advice=words.advice.format(**texts),
        where=transfer.load.where,
        count=len(names),
        links=("loaded state", *(f"entry {name}" for name in names[:10])),
        proof=transfer.save.rank.proof(transfer.save.record.site),
    )
