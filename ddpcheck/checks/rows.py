"""Rows: a check's rules as readings of a relation's deviations, with the words for each cause."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ddpcheck.evidence import ABSENT
from ddpcheck.facts.holdings import Holding, Look, name_within
from ddpcheck.facts.norms import Team
from ddpcheck.relations import norm
from ddpcheck.relations.equal import Deviation, equality
from ddpcheck.vocabulary.model import CallSite, Finding, Severity
from ddpcheck.vocabulary.wording import count, listing, ranks_text


class Words(NamedTuple):
    """What a message says of one cause."""

    cause: str = ""
    advice: str = ""


class Row(NamedTuple):
    """One rule: which deviation it reads, and what it is called.

    Texts are templates: ``{name}``, ``{names}``, ``{differ}``, ``{differing}``, ``{of}``, ``{step}``, ``{ranks}``,
    ``{odd}``, ``{values}``, ``{last}``, ``{whom}``, ``{along}``; for windows ``{unseen}``, ``{absent}``, ``{clip}``,
    ``{scales}``, ``{backwards}``; and what the holding has in its ``words``.
    """

    rule: str
    moment: str
    """Of the holdings that it reads."""
    expected: str
    found: str
    causes: Mapping[str, Words]
    """By the deviation's cause; that of an empty name is for all others."""
    grounds: tuple[str, ...] = ()
    """The kinds of ground that it reads; all of them by default."""
    noun: str = "parameter"
    subject: str = "{name}"


class NormRow(NamedTuple):
    """One rule on norms that gradients are clipped by: which norms it reads, and what it is called.

    Texts are templates: ``{norm}`` and ``{norms}`` (of the first rank, and of all), ``{whole}``, ``{factors}``,
    ``{ranks}``, ``{group}``, ``{name}``, ``{names}``, ``{times}``, ``{scale}``, ``{bound}``, ``{left}``, ``{made}``.
    """

    rule: str
    candidates: tuple[str, ...]
    """The norms that fit in place of that of the whole."""
    expected: str
    found: str
    causes: Mapping[str, Words]
    """By candidate and kind of team, by candidate, or for all others."""
    subject: str = "the gradients{of_optimizer}"
    severity: Severity = "error"
    """The most that it may say; what equal values alone show is a warning."""
    counts: bool = True
    """Its windows count as compared."""


class Reading(NamedTuple):
    """What the rows of a check have found."""

    findings: list[Finding]
    windows: set[tuple[int, int]]
    """The windows that were compared: an optimizer's number, and that of its step."""
    moments: int
    """Other moments that were compared."""
    has_looks: bool
    """Anything was looked at, whatever it proves."""


def read(holdings: Iterable[Holding], rows: Sequence[Row]) -> Reading:
    """The findings of all rows, in their order, and what was compared for them.

    A tensor that was named once is not named again for the same holders.
    """
    by_moment: dict[str, list[Holding]] = defaultdict(list)
    for holding in holdings:
        by_moment[holding.moment].append(holding)
    found = Reading([], set(), 0, False)
    windows, moments, has_looks = found.windows, 0, False
    named: dict[tuple[object, ...], set[str]] = defaultdict(set)
    for row in rows:
        for holding in by_moment[row.moment]:
            if row.grounds and holding.ground.kind not in row.grounds:
                continue
            _, compared, deviation = equality(holding)
            has_looks |= bool(holding.looks and holding.places)
            windows.update((holding.optimizer, number) for number in compared if holding.optimizer >= 0)
            moments += len(compared) if holding.optimizer < 0 else 0
            if deviation is None:
                continue
            before = named[holding.ranks, holding.links[:1], holding.optimizer]
            if names := [name for name in deviation.names if name_within(name) not in before]:
                found.findings.append(finding(row, deviation, names))
                before.update(map(name_within, names))
    return found._replace(moments=moments, has_looks=has_looks)


def finding(row: Row, deviation: Deviation, names: Sequence[str]) -> Finding:
    """A deviation in the words of a row, for the tensors of these names."""
    holding, look = deviation.holding, deviation.first
    ranks = holding.ranks
    texts: dict[str, Any] = {
        "name": names[0],
        "names": listing(names),
        "differ": len(names),
        "differing": count(len(names), row.noun),
        "of": count(len(holding.places), row.noun),
        "step": look.number,
        "ranks": ranks_text(ranks),
        "values": _values(deviation, look),
        "last": _values(deviation, holding.looks[-1]),
        "odd": ranks_text(ranks[holder] for holder in deviation.odd if holder < len(ranks)),
        "whom": holding.ground.whom,
        "along": holding.ground.along,
        **(_texts_of_window(deviation) if look.window is not None else {}),
        **holding.words,
    }
    words = row.causes.get(deviation.cause) or row.causes.get("", Words())
    odd = {ranks[holder] for holder in deviation.odd if holder < len(ranks)}
    return Finding(
        rule=row.rule,
        severity=holding.ground.severity,
        ranks=tuple(sorted(odd)) or ranks,
        subject=holding.words.get("subject") or row.subject.format(**texts),
        step=look.number if holding.has_steps else None,
        expected=row.expected.format(**texts),
        found=row.found.format(**texts),
        cause=words.cause.format(**texts),
        advice=words.advice.format(**texts),
        where=deviation.line,
        count=len(deviation.looks),
        links=deviation.links,
        proof=holding.proof or (_lines(deviation) if row.moment == "gradients" else ()),
    )


def _lines(deviation: Deviation) -> tuple[tuple[int, CallSite], ...]:
    """The line of each holder's step."""
    each = ((rank, deviation.first.line(holder)) for holder, rank in enumerate(deviation.holding.ranks))
    return tuple((rank, line) for rank, line in each if line is not None)


def _texts_of_window(deviation: Deviation) -> dict[str, str]:
    """What messages say of the window in which holders differ for the first time."""
    window, ranks = deviation.first.window, deviation.holding.ranks
    unseen, clip = window.unseen(), window.clip_line()
    scales = (f"{scale:g}" if scale else "none" for scale in window.scales)
    times = window.backwards(deviation.places) if deviation.holding.moment == "gradients" else []
    return {
        "unseen": f"; {unseen}" if unseen and not deviation.cause else "",
        "absent": _absent(deviation) if deviation.cause == "absent" else "",
        "clip": f"{clip.file}:{clip.line}" if clip is not None else "",
        "scales": ", ".join(f"{scale} on rank {rank}" for rank, scale in zip(ranks, scales, strict=False)),
        "backwards": ", ".join(f"{number} on rank {rank}" for rank, number in zip(ranks, times, strict=False)),
    }


def _absent(deviation: Deviation) -> str:
    """The ranks that do not have the first of the tensors at all."""
    place = deviation.first.window.absent(deviation.places)[0]
    held = zip(deviation.holding.ranks, deviation.first.at(place), strict=True)
    missing = ranks_text(rank for rank, value in held if value == ABSENT)
    return f"; {deviation.holding.names[place]} has no gradient at all on {missing}"


def _values(deviation: Deviation, look: Look) -> str:
    """What each holder holds at the first place that differs, where it is a number."""
    holding = deviation.holding
    shown = [
        f"{_number(value)} on rank {rank}"
        for rank, value in zip(holding.ranks, look.at(deviation.places[0]), strict=False)
        if value is not None and not isinstance(value, bytes)
    ]
    return "; ".join(shown)


def _number(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(f"{one:.6g}" for one in value[:4])
    return f"{value:g}" if isinstance(value, float) else str(value)


# --- norms


def read_norms(teams: Iterable[Team], rows: Sequence[NormRow]) -> tuple[set[tuple[int, int]], list[Finding]]:
    """The windows whose clip was explained by the norm of the whole, or is wrong; and the findings of all rows."""
    found = [norm.scaling(team) for team in teams]
    steps = {step for one in found for window in one.compared for step in window.steps}
    findings: list[Finding] = []
    for row in rows:
        for deviation in (deviation for one in found for deviation in one.deviations):
            if deviation.candidate in row.candidates:
                findings.append(_norm_finding(row, deviation))
                steps.update(step for window in deviation.windows if row.counts for step in window.steps)
    return steps, findings


def _norm_finding(row: NormRow, deviation: norm.Deviation) -> Finding:
    team, first = deviation.team, deviation.windows[0]
    measures = first.measures
    texts = _texts_of_norms(deviation)
    causes = (f"{deviation.candidate} {team.kind}", deviation.candidate, "")
    words = next(row.causes[key] for key in causes if key in row.causes)
    line = next((one.line for one in measures if one.first.how != "backward"), measures[0].line)
    if deviation.candidate == "none" and not measures[0].clips:
        line = measures[0].step_line
    if copies := [holders for holders in team.seen[0] if len(holders) > 1] if deviation.candidate == "copies" else []:
        line = next((one.line for one in first.others[0] if len(copies[0].intersection(one.group)) > 1), line)
    return Finding(
        rule=row.rule,
        severity=row.severity if deviation.is_declared else "warning",
        ranks=tuple(one.rank.rank for one in measures),
        subject=row.subject.format(**texts),
        step=first.number,
        expected=row.expected.format(**texts),
        found=row.found.format(**texts),
        cause=words.cause.format(**texts),
        advice=words.advice.format(**texts),
        where=line,
        count=len(deviation.windows),
        links=(f"optimizer {team.optimizer}",),
    )


_MADE = {
    "largest": "the largest norm that a rank has",
    "sum": "the sum of the norms that the ranks have",
    "mean": "the mean of the norms that the ranks have",
    "part": "the norm of only some of the parameters that are scaled by it",
    "mean square": "the root of the mean of the squares that the ranks have",
}


def _texts_of_norms(deviation: norm.Deviation) -> dict[str, Any]:
    team, measures = deviation.team, deviation.windows[0].measures
    one = measures[0]
    shown = [f"{each.factor:.4g} on rank {each.rank.rank}" for each in measures if each.factor is not None]
    held = (team.declared if deviation.is_declared else team.seen)[0]
    counted = [place for place, holders in enumerate(held) if len(holders) > 1] if len(held) else []
    times = max((len(held[place]) for place in counted), default=team.replicas)
    names = [one.parameters[place].name for place in counted]
    is_all = len(counted) in (0, len(held))
    bound, scale = one.first.largest or 0.0, one.first.scale or 1.0
    return {
        "norm": deviation.norms[0],
        "norms": ", ".join(f"{each:.4g}" for each in deviation.norms),
        "whole": deviation.whole or 0.0,
        "and_whole": f", and that of the whole {deviation.whole:.4g}" if deviation.whole else "",
        "factors": ", ".join(shown),
        "ranks": ranks_text(each.rank.rank for each in measures),
        "group": ranks_text(one.group) if one.group else "",
        "name": names[0] if names else "the gradients",
        "names": "all parameters" if is_all else listing(names),
        "are": "is" if len(names) == 1 and not is_all else "are",
        "times": times,
        "no_sum": ": here no sum over ranks is needed" if is_all else "",
        "bound": bound,
        "scale": scale,
        "left": bound / scale,
        "made": _MADE.get(deviation.candidate, ""),
        "of_optimizer": f" of optimizer {team.optimizer}" if team.optimizer else "",
    }
