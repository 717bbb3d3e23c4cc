"""A verdict as one HTML file that needs nothing else: no network, no other report, no source file at hand."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, Template
from markupsafe import Markup

from ddpcheck.report import report_files
from ddpcheck.report.check_rows import checked, unchecked
from ddpcheck.report.finding_text import accepted_line
from ddpcheck.report.page.coloured_code import coloured
from ddpcheck.report.page.finding_cards import cards, explained
from ddpcheck.report.page.packed_timeline import packed
from ddpcheck.report.page.rank_balance import balance, waits
from ddpcheck.report.page.rank_stands import number_of_parting, parted, stood
from ddpcheck.report.page.safe_text import brief
from ddpcheck.report.source_lines import Sources
from ddpcheck.report.standstill_table import parts_where_it_stands
from ddpcheck.report.terminal_report import sentence, tone, word
from ddpcheck.report.timeline.timeline import Timeline
from ddpcheck.verdict.verdict import RankResult, Verdict
from ddpcheck.vocabulary.wording import ranks_text, signal_name

MOST_CARDS = 200
"""Findings that have a card."""
LONG = 20_000
"""Characters of one text that are shown."""
SCRIPTS = ("events.js", "painting.js", "timeline.js")
LEGEND = (
    ("kind-forward", "forward"),
    ("kind-backward", "backward"),
    ("kind-evaluation", "forward without gradients"),
    ("kind-step", "optimizer step"),
    ("kind-data", "waiting for data"),
    ("kind-save", "save, load"),
    ("kind-collective", "collective"),
    ("swatch waited", "waiting for a rank"),
)
SETTLED = 5_000_000
"""Microseconds of a run before which its beginning is most of it: then the page opens where training begins."""


def write(verdict: Verdict, path: Path, timeline: Timeline | None = None, strict: bool = False) -> None:
    """Write the page, whole or not at all."""
    report_files.write(path, html(verdict, timeline, strict))


def html(verdict: Verdict, timeline: Timeline | None = None, strict: bool = False) -> str:
    """The page; ``timeline`` is None where there is no evidence on this machine to make one from."""
    lines = dict(verdict.lines)
    hang = verdict.hang
    if hang is not None:
        for stand in hang.stands:
            if stand.where is not None and stand.code:
                lines.setdefault(f"{stand.where.file}:{stand.where.line}", stand.code)
    sources = Sources(verdict.folder, lines)
    marks = timeline.marks if timeline is not None else ()
    shown = cards(verdict, sources, marks, MOST_CARDS)
    there = timeline is not None and bool(timeline.lanes)
    rows = checked(verdict)
    return _template().render(
        verdict=verdict,
        word=word(verdict),
        tone=tone(verdict),
        accepted=[accepted_line(one) for one in verdict.accepted],
        advisories=verdict.advisories or (),
        sentence=sentence(verdict, strict),
        missing=ranks_text(verdict.missing),
        cards=shown,
        unshown=len(verdict.findings) - len(shown),
        explained=explained({card.finding.check for card in shown}),
        stood=stood(hang, sources) if hang is not None else [],
        parted=parted(hang, sources) if hang is not None and not parts_where_it_stands(hang) else [],
        parted_number=number_of_parting(hang),
        broken=[row for row in rows if row.status != "held"],
        held=[row for row in rows if row.status == "held"],
        unchecked=unchecked(verdict),
        unchecked_count=sum(result.status == "not-checked" for result in verdict.checks.values()),
        data=_data(verdict, timeline) if timeline is not None and there else None,
        no_timeline=_why_not(timeline),
        begin="training" if timeline is not None and timeline.end < 24 * SETTLED else "whole",
        lanes=len(timeline.lanes) if timeline is not None else 0,
        legend=LEGEND,
        timeline_notes=timeline.notes if timeline is not None else (),
        balance=balance(timeline) if timeline is not None and there else [],
        waits=waits(timeline) if timeline is not None and there else [],
        endings=_endings(verdict.ranks),
        versions=", ".join(f"{name} {version or 'not known'}" for name, version in verdict.versions.items()),
        style=Markup(_part("style.css")),
        script=Markup("\n".join(_part(name) for name in SCRIPTS)),
    )


def _data(verdict: Verdict, timeline: Timeline) -> dict[str, Any]:
    return packed(timeline) | {"severities": [finding.severity for finding in verdict.findings]}


def _why_not(timeline: Timeline | None) -> str:
    if timeline is None:
        return "There is none here: the node of rank 0 has the evidence of all ranks, and shows it on its page."
    return "There is none: no rank of a process group has left evidence."


def _endings(ranks: Iterable[RankResult]) -> list[str]:
    """How ranks ended, where that was not well."""
    alike: dict[str, list[int]] = {}
    for one in ranks:
        if one.signal is not None:
            alike.setdefault(f"ended by {signal_name(one.signal)}", []).append(one.rank)
        elif one.exit_code:
            alike.setdefault(f"ended with exit code {one.exit_code}", []).append(one.rank)
    return [f"{ranks_text(them).capitalize()}: {how}." for how, them in alike.items()]


@cache
def _template() -> Template:
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=_shown)
    environment.filters["coloured"] = partial(coloured, most=LONG)
    return environment.from_string(_part("template.html"))


def _shown(value: Any) -> Any:
    """Every text that is not ours, as a page can hold it."""
    return brief(value, LONG) if isinstance(value, str) and not isinstance(value, Markup) else value


def _part(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
