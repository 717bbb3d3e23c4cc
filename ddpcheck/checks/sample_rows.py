"""Rows over what ranks read: rules as readings of samples that are not read once, with the words for each cause."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ddpcheck.checks.rows import Words
from ddpcheck.evidence import Loader
from ddpcheck.relations.once import Deviation, Pattern
from ddpcheck.vocabulary.model import Finding


class SampleRow(NamedTuple):
    """One rule: which deviations it reads, and what it is called.

    Texts are templates, with what the deviation has in its ``texts``.
    """

    rule: str
    pattern: Pattern
    expected: str
    found: str
    causes: Mapping[str, Words]
    """By the deviation's cause; that of an empty name is for all others."""
    subject: str = ""
    """The loader, if it is empty."""
    at_loader: bool = False
    """The line to fix is the one that makes the loader, and not the loop over it."""


def loader_text(loader: Loader | None) -> str:
    """What a finding calls a loader."""
    return f"the DataLoader over {loader.dataset}" if loader is not None else "the DataLoader"


def read_samples(deviations: Iterable[Deviation], rows: Sequence[SampleRow]) -> list[Finding]:
    """The findings of all rows."""
    return [_finding(row, one) for one in deviations for row in rows if row.pattern == one.pattern]


def _finding(row: SampleRow, one: Deviation) -> Finding:
    words = row.causes.get(one.cause) or row.causes[""]
    loader = one.pass_.loader if one.pass_ is not None else None
    rank = one.pass_.rank if one.pass_ is not None else None
    made = rank.where(loader.site) if rank is not None and loader is not None else None
    lines = (one.line, made) if not row.at_loader else (made, one.line)
    where = next((line for line in lines if line is not None), None)
    other = next((line for line in reversed(lines) if line is not None and line != where), None)
    return Finding(
        rule=row.rule,
        severity="error" if one.is_certain else "warning",
        ranks=one.ranks,
        subject=row.subject.format(**one.texts) or loader_text(loader),
        expected=row.expected.format(**one.texts),
        found=row.found.format(**one.texts),
        cause=words.cause.format(**one.texts),
        advice=words.advice.format(**one.texts),
        where=where,
        count=one.times,
        proof=((one.ranks[0], other),) if other is not None else (),
        links=one.links,
    )
