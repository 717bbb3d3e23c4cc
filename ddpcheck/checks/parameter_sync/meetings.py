"""Rows over what ranks make of each other's parameters between steps, with the words for each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from ddpcheck.facts.mixing import Mixing
from ddpcheck.relations.meeting import Deviation, Ground, Pattern, meetings
from ddpcheck.vocabulary.model import Finding, Severity
from ddpcheck.vocabulary.wording import count, listing, ranks_text

Called = Callable[[int, frozenset[int]], str]


class MeetingRow(NamedTuple):
    """One rule: which deviation it reads, and what it is called.

    Texts are templates: ``{name}``, ``{names}``, ``{parameters}`` (how many), ``{number}``, ``{others}`` (how many meet
    as they should), ``{ranks}``, ``{sets}`` (the groups in which ranks meet), ``{groups}`` (how many), ``{times}``,
    ``{step}``, ``{share}``, ``{models}`` (how many are added up), ``{divisor}`` (by what), ``{before}`` (where it was
    otherwise), ``{anew}``.
    """

    rule: str
    pattern: Pattern
    expected: str
    found: str
    cause: str
    advice: str
    severity: Severity = "warning"
    ground: Ground | None = None
    """The one that it reads; each by default."""


_LEFT_OUT = MeetingRow(
    rule="parameters-never-averaged",
    pattern="left out",
    expected="what the program exchanges at this line to bring all parameters together that began alike on all ranks",
    found="{others} that are brought together, and {number} that each rank keeps as its step has left them, in each of "
    "{times} looked at: {names}",
    cause="the average goes over some of the parameters alone, and the others drift apart, rank by rank",
    advice="Average all parameters of the model; or accept it, where a part is meant to be each rank's own.",
    ground="dealt",
)
ROWS = (
    _LEFT_OUT,
    _LEFT_OUT._replace(severity="advisory", ground="observed"),
    MeetingRow(
        rule="parameters-never-averaged",
        pattern="in groups",
        expected="all ranks to be brought together sooner or later: one dataset is dealt out to them",
        found="{parameters} brought together in {groups} that nothing joins ({sets}), in {times} looked at: {names}",
        cause="averages go over groups of ranks alone, and each group trains a model of its own on a share of the data",
        advice="Average over all ranks, now and then at least; or deal the dataset out within each group.",
    ),
    MeetingRow(
        rule="average-not-applied",
        pattern="not taken",
        expected="what this line makes of the parameters of all ranks, which began alike, to be written to them",
        found="{parameters} that each rank holds as its step before had left them, and that differ between the ranks, "
        "in each of {times} looked at",
        cause="the average is made in a copy, or bound to a name, and no parameter takes it: every rank trains alone",
        advice="Write it to the parameters, with torch.no_grad(): p.copy_(average); or accept it, where it is only "
        "looked at.",
    ),
    MeetingRow(
        rule="average-not-applied",
        pattern="taken by some",
        expected="all ranks to take the average that theirs went into",
        found="{ranks} to keep {parameters} as the step before had left them, and all others to take what was made of "
        "all, in each of {times} looked at: {names}",
        cause="the average is written to the parameters on some ranks alone",
        advice="Write it to the parameters on every rank, or broadcast them from a rank that has it.",
    ),
    MeetingRow(
        rule="unequal-after-averaging",
        pattern="parted",
        expected="all ranks to hold the same parameters after what the program exchanges at this line, as {before}",
        found="{parameters} to differ between ranks when step {step} began: {names}",
        cause="the ranks count the change that they have in common from weights that differ{anew}",
        advice="Keep the weights from which changes are counted the same on all ranks: broadcast them, and save and "
        "load them with the rest.",
    ),
    MeetingRow(
        rule="average-off-by-factor",
        pattern="scaled",
        expected="the shares of all models in an average to add up to 1",
        found="shares that add up to {share} in {times} looked at, of {parameters}: {names}",
        cause="{models} of {sets} are added up, and divided by {divisor}",
        advice="Divide by the number of models that are added up: the size of that group, or the sum of their weights.",
    ),
)


def read_meetings(
    each: Sequence[Mixing], sizes: Collection[int], called: Called
) -> tuple[set[tuple[int, int]], list[Finding]]:
    """The windows that are known to begin with the same copies of all, or not to; and the findings of all rows.

    ``called`` says what a size is, rather not of these ranks.
    """
    found = meetings(each, sizes)
    return found.windows, [
        _finding(row, one, sizes, called)
        for row in ROWS
        for one in found.deviations
        if row.pattern == one.pattern and row.ground in (None, one.ground)
    ]


def _finding(row: MeetingRow, one: Deviation, sizes: Collection[int], called: Called) -> Finding:
    names, divisor = one.names, round(one.models / one.share)
    mixing, number = one.before or (one.mixing, 0)
    is_anew = mixing is not one.mixing
    texts: dict[str, Any] = {
        "name": names[0],
        "names": listing(names),
        "parameters": count(len(names), "parameter"),
        "number": len(names),
        "others": count(one.others, "parameter"),
        "ranks": ranks_text(sorted(one.ranks)),
        "sets": " and ".join(ranks_text(sorted(ranks)) for ranks in one.sets),
        "groups": count(len(one.sets), "group"),
        "times": count(len(one.windows), "exchange"),
        "step": one.windows[0],
        "share": f"{one.share:.4g}",
        "models": count(one.models, "model"),
        "divisor": ", ".join(
            [
                str(divisor) if divisor > 1 else "nothing",
                *([called(divisor, frozenset(one.sets[0]))] if divisor in sizes and one.sets else []),
            ]
        ),
        "before": f"{'with the optimizer before, ' if is_anew else ''}when step {number} began",
        "anew": ", such as a copy that was made anew after a load" if is_anew else "",
    }
    return Finding(
        rule=row.rule,
        severity=row.severity,
        ranks=tuple(sorted(one.ranks)),
        subject=names[0],
        step=one.windows[0],
        expected=row.expected.format(**texts),
        found=row.found.format(**texts),
        cause=row.cause.format(**texts),
        advice=row.advice.format(**texts),
        where=one.line,
        count=len(one.windows),
        links=(f"optimizer {one.mixing.optimizer}",),
    )
