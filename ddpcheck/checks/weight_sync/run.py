"""Does a model that follows a trained one hold what it was to take over? Judge of weight-sync."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ddpcheck.checks.rows import Words
from ddpcheck.facts import followers
from ddpcheck.judging.values_by_key import by_key
from ddpcheck.judging.world import Judged, World
from ddpcheck.relations.following import Deviation, Pattern, following
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing

COPIED = 0.01
"""How near to 1 a share is that is called a copy."""


class _Row(NamedTuple):
    rule: str
    expected: str
    found: str
    words: Words


_SAME = "a model that follows a trained one to take over the same under every name"
_ROWS: Mapping[Pattern, _Row] = {
    "left out": _Row(
        "tensors-left-out",
        "a model that follows a trained one to take over every tensor of it",
        "{tensors} that {take} over nothing: {names}",
        Words(
            "what writes to the copy does not reach them: a name that does not fit, with strict=False, or a loop that "
            "does not come to them",
            "Write to every parameter and buffer, by names that both models have; load with strict=True.",
        ),
    ),
    "other name": _Row(
        "tensor-of-another-name",
        _SAME,
        "{tensors} that {take} over tensors of other names: {name} has that of {of} ({names})",
        Words("names are mapped to others, or lists are paired that are in another order", "Pair tensors by name."),
    ),
    "other start": _Row(
        "follower-of-another-model",
        "a model that begins as a copy of one that is trained to follow that one",
        "all {tensors} following a {trained} that it did not begin as a copy of",
        Words("it is written to from another model than it was made of", "Write to each copy from its own model."),
    ),
    "other time": _Row(
        "tensors-of-another-moment",
        _SAME,
        "{tensors} that {are} of another step of the model than the others: {names}",
        Words(
            "some are written to before a step, and others after it",
            "Write to all tensors of the copy at one moment, between two steps.",
        ),
    ),
}


def judge(world: World) -> Judged:
    """Compare what each tensor of a following model has taken over, between two uses, with what the others have.

    Each use counts once, on however many ranks.
    """
    every = followers.of(world)
    found = following(every)
    uses = {(one.follower.model, steps) for one in found for steps in one.uses}
    often = {one.model: one.often for one in every}
    groups = by_key(((d.pattern, d.follower.kind, tuple(d.names)), d) for one in found for d in one.deviations)
    return Judged(
        checked=len(uses),
        of=max(len(uses), sum(often.values())),
        findings=tuple(_finding(each) for each in groups.values()),
        skipped_because="" if uses else _NONE_FOLLOWS if every else _NONE_USED,
    )


_NONE_USED = "ddpcheck saw no model that no optimizer steps being used again and again beside one that is trained"
_NONE_FOLLOWS = "ddpcheck saw no model that takes over the same of several tensors of a trained one between its uses"


def _finding(each: Sequence[Deviation]) -> Finding:
    first = each[0]
    follower, row, some = first.follower, _ROWS[first.pattern], len(first.names) > 1
    what = "all of it" if abs(first.share - 1) < COPIED else f"a share of {first.share:.4g}"
    texts = {
        "tensors": count(len(first.names), "tensor"),
        "names": listing(first.names),
        "name": first.names[0],
        "of": first.of.name if first.of is not None else "",
        "trained": follower.trained_kind,
        "take": "take" if some else "takes",
        "are": "are" if some else "is",
    }
    used = first.first.line
    where = follower.written_at or used
    uses = f"{count(first.uses, 'use')} at which {'others take' if first.pattern != 'other start' else 'it takes'}"
    return Finding(
        rule=row.rule,
        severity="warning",
        ranks=tuple(sorted({rank for one in each for rank in one.follower.ranks})),
        subject=f"{follower.kind}.{first.names[0]}",
        step=first.first.steps,
        expected=row.expected,
        found=row.found.format(**texts) + f", at {uses} over {what}",
        cause=row.words.cause,
        advice=row.words.advice,
        where=where,
        count=first.uses,
        proof=((follower.ranks[0], used),) if used is not None and used != where else (),
    )
