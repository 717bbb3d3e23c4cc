"""Rows over what each element of a loss counts in a step: rules as readings of that, with the words for each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from ddpcheck.facts.reductions import Ranks
from ddpcheck.facts.weights import Batch, Weights
from ddpcheck.relations.alike import Alikeness, Deviation, Pattern, alikeness, whole
from ddpcheck.vocabulary.model import Finding, Severity
from ddpcheck.vocabulary.wording import count, ranks_text

Called = Callable[[int, frozenset[int]], str]


class WeightRow(NamedTuple):
    """One rule: which deviation it reads, and what it is called.

    Texts are templates: ``{heavy}`` and ``{light}`` (elements of a backward() that count most, and least),
    ``{ratio}`` (between these), ``{calls}`` (micro-batches), ``{elements}`` (of these), ``{call}`` (one of them),
    ``{of_call}`` (its elements), ``{times}`` ("2 times", "1/2 of"), ``{size}``, ``{called}`` (what number that is),
    ``{over}`` (ranks whose gradients are added up), ``{factor}``, ``{weight}``, ``{name}``, ``{usual}`` (another
    parameter), ``{of_usual}`` (the ranks whose gradients are added up for that), ``{usual_factor}``.
    """

    rule: str
    pattern: Pattern
    expected: str
    found: str
    cause: str
    advice: str
    severity: Severity = "warning"
    is_larger: bool | None = None
    """Whether elements have to count too much, or too little; None for either."""
    subject: str = "the loss"


class Reading(NamedTuple):
    """What the rows of a check have found."""

    findings: list[Finding]
    windows: set[tuple[int, int]]
    """Those of which all was compared: an optimizer's number, and that of its step."""
    whys: list[str]
    """Why others were not."""


def read_weights(
    each: Sequence[Weights],
    rows: Sequence[WeightRow],
    sizes: Mapping[int, Collection[Ranks]],
    called: Called,
) -> Reading:
    """The findings of all rows, in their order; ``called`` says what a size is, rather not of these ranks."""
    alike: Alikeness = alikeness(each, sizes)
    found: list[list[Finding]] = [[] for _ in rows]
    for deviation in alike.deviations:
        for row, its in zip(rows, found, strict=True):
            if row.pattern == deviation.pattern and row.is_larger in (None, deviation.size > 1):
                its.append(_finding(row, deviation, called))
                break
    return Reading(_once([finding for its in found for finding in its]), alike.windows, alike.whys)


def _once(found: list[Finding]) -> list[Finding]:
    """One finding of each line: several groups of ranks have the same."""
    first: dict[tuple[str, str, str], Finding] = {}
    for one in found:
        first.setdefault((one.rule, str(one.where), one.subject), one)
    return list(first.values())


def _finding(row: WeightRow, one: Deviation, called: Called) -> Finding:
    weighed, other = one.weighed, one.other
    size = whole(one.size) or int(one.size)
    calls: dict[int, float] = {}
    for batch in one.part.batches:
        calls[batch.turn] = calls.get(batch.turn, 0.0) + batch.term.elements / batch.sharers
    call = size if one.pattern == "one call" else 0
    texts: dict[str, Any] = {
        "heavy": _elements(one.heavy),
        "light": _elements(one.light),
        "ratio": f"{one.heavy.weight / one.light.weight:.3g}",
        "calls": count(len(calls), "micro-batch", "micro-batches"),
        "elements": count(round(sum(calls.values())), "element"),
        "call": f"micro-batch {call + 1} of {len(calls)}",
        "of_call": round(calls.get(call, 0)),
        "times": f"{size} times" if one.size > 1 else f"1/{size} of",
        "size": size,
        "called": called(size, weighed.over),
        "over": ranks_text(sorted(weighed.over)),
        "factor": f"{abs(weighed.factor):.4g}",
        "weight": f"{one.heavy.term.weight:.4g}",
        "by": one.part.batches[0].term.by,
        "name": one.names[0],
        "usual": other.weights.family.tensors[other.weighed.tensors[0]].path if other is not None else "",
        "of_usual": ranks_text(sorted(other.weighed.over)) if other is not None else "",
        "usual_factor": f"{abs(other.weighed.factor):.4g}" if other is not None else "",
    }
    return Finding(
        rule=row.rule,
        severity=row.severity,
        ranks=one.ranks,
        subject=row.subject.format(**texts),
        step=one.steps[0],
        count=len(one.steps),
        expected=row.expected.format(**texts),
        found=row.found.format(**texts),
        cause=row.cause.format(**texts),
        advice=row.advice.format(**texts),
        where=one.part.line,
        links=(f"optimizer {one.weights.family.optimizers[min(weighed.ranks)]}",),
    )


def _elements(one: Batch) -> str:
    """``each of the 7 elements of rank 1 in backward 2 of the step``."""
    number = one.term.elements
    elements = "the one element" if number == 1 else f"each of the {count(number, 'element')}"
    return f"{elements} of rank {one.rank} in backward {one.turn + 1} of the step"
