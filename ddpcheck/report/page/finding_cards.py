"""What a card of the page says of one finding: all of it, so that nothing else has to be at hand."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from markdown_it import MarkdownIt
from markupsafe import Markup

from ddpcheck.checks.registry import explanation
from ddpcheck.report import call_chain, finding_module
from ddpcheck.report.check_rows import holds
from ddpcheck.report.source_lines import Line, Sources
from ddpcheck.report.timeline.timeline import Mark
from ddpcheck.verdict.verdict import Verdict
from ddpcheck.vocabulary.model import CallSite, Finding, Struct
from ddpcheck.vocabulary.wording import ranks_text

BEFORE, AFTER, MORE = 5, 3, 60
"""Lines around the one that a finding names: at once, and when asked for."""
WHOLE = 24
"""Lines of a function that is shown whole."""


class Excerpt(Struct, frozen=True, kw_only=True):
    """Lines of the program, one of them marked; ``ranks`` says who was there."""

    where: CallSite
    lines: tuple[Line, ...] = ()
    ranks: str = ""


class Called(Struct, frozen=True, kw_only=True):
    """One line on the way from the script's main to the line that a finding names."""

    where: CallSite
    code: str
    through: str
    """The library that the call went into; empty for none."""


class Card(Struct, frozen=True, kw_only=True):
    """One finding."""

    number: int
    """From 1, as in the report on the terminal."""
    finding: Finding
    holds: str
    """When the check holds, as a sentence."""
    ranks: str
    first: str
    """The step, and how often."""
    chain: tuple[Called, ...]
    """From the script's main to the line; empty where the line says it all."""
    part: str
    """The module that the subject belongs to, where it is a parameter or a buffer."""
    set_by: Excerpt | None
    """The line that has made that module."""
    excerpt: Excerpt | None
    around: Excerpt | None
    """More of the same file; None where the excerpt has all that there is."""
    proof: tuple[Excerpt, ...]
    also: tuple[tuple[str, str], ...]
    """Checks that are broken as a consequence, each with when it holds."""
    marked: bool
    """Its moment is on the timeline."""


def cards(verdict: Verdict, sources: Sources, marks: Sequence[Mark], shown: int) -> list[Card]:
    """The cards of the first findings, in their order."""
    marked = {mark.finding for mark in marks}
    return [
        _card(number, finding, verdict, sources, number - 1 in marked)
        for number, finding in enumerate(verdict.findings[:shown], 1)
    ]


def _card(number: int, finding: Finding, verdict: Verdict, sources: Sources, marked: bool) -> Card:
    excerpts = _Excerpts(sources)
    return Card(
        number=number,
        finding=finding,
        holds=holds(finding.check),
        ranks=_ranks(finding, verdict.world_size),
        first=_first(finding),
        chain=_chain(finding, sources),
        part=finding_module.told(finding),
        excerpt=excerpts.of(finding.where) if finding.where is not None else None,
        set_by=_set_by(finding, excerpts),
        around=_around(finding.where, sources) if finding.where is not None else None,
        proof=tuple(_proof(finding, excerpts)),
        also=tuple((check, holds(check)) for check in finding.also),
        marked=marked,
    )


def explained(checks: Collection[str]) -> dict[str, Markup]:
    """What ``ddpcheck explain`` says of each of these checks, as HTML."""
    markdown = MarkdownIt("commonmark", {"html": False})
    found = {}
    for check in checks:
        try:
            found[check] = Markup(markdown.render(explanation(check)))
        except Exception:  # a check of another package without a text
            found[check] = Markup("")
    return found


def _chain(finding: Finding, sources: Sources) -> tuple[Called, ...]:
    where = finding.where
    callers = call_chain.callers(where, sources.line) if where is not None else []
    if where is None or not (callers or where.through):
        return ()
    return tuple(
        Called(where=one, code=sources.line(one), through=one.through[0] if one.through else "")
        for one in (*callers, where)
    )


def _set_by(finding: Finding, excerpts: _Excerpts) -> Excerpt | None:
    where = finding_module.line(finding)
    return excerpts.of(where) if where is not None and where != finding.where else None


def _ranks(finding: Finding, world_size: int) -> str:
    if not finding.ranks:
        return ""
    whole = world_size > 1 and set(finding.ranks) == set(range(world_size))
    return f"all {world_size} ranks" if whole else ranks_text(finding.ranks)


def _first(finding: Finding) -> str:
    times = f"{finding.count:,} times" if finding.count > 1 else ""
    if finding.step is None:
        return times
    step = f"{'first at ' if times else ''}step {finding.step:,}"
    return f"{step}, {times}" if times else step


class _Excerpts:
    """The excerpts of one card, in their order: a line that one of them has shown comes alone from then on."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._shown: set[tuple[str, int]] = set()

    def of(self, where: CallSite, ranks: str = "") -> Excerpt:
        known = (where.file, where.line) in self._shown
        lines = self._sources.excerpt(where, *((0, 0) if known else _reach(where, self._sources)))
        self._shown.update((where.file, line.number) for line in lines)
        return Excerpt(where=where, lines=tuple(lines), ranks=ranks)


def _reach(where: CallSite, sources: Sources) -> tuple[int, int]:
    """How many lines are shown before and after one: a short function is shown whole."""
    before, after = sources.function(where)
    return (before, after) if 0 < before + after < WHOLE else (BEFORE, AFTER)


def _around(where: CallSite, sources: Sources) -> Excerpt | None:
    few, more = sources.excerpt(where, *_reach(where, sources)), sources.excerpt(where, MORE, MORE)
    return Excerpt(where=where, lines=tuple(more)) if len(more) > len(few) else None


def _proof(finding: Finding, excerpts: _Excerpts) -> list[Excerpt]:
    """The further lines, each once with the ranks that were there; those that the chain of calls has are known."""
    known = {(one.file, one.line) for one in finding.chain}
    ranks: dict[CallSite, set[int]] = {}
    for rank, where in finding.proof:
        ranks.setdefault(where, set()).add(rank)
    return [
        excerpts.of(where, ranks_text(there)) for where, there in ranks.items() if (where.file, where.line) not in known
    ]
