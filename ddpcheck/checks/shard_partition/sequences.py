"""Ranks that are handed the same sequences, and take a part of each: do the parts make up the whole?

Places are those of a batch's second dimension. What a rank takes was seen in what its backward() needed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.facts.passes import Pass, every_pass
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing, ranks_text

_TARGETS = ("NllLoss", "NllLoss2D")
_INPUTS = ("Embedding",)

Use = tuple[int, str]
"""A tensor of the batch, and the operation that has used it."""
Moment = Mapping[int, ev.Sequences]
"""By rank: the same backward() on ranks that were handed the same."""


class Sharers(NamedTuple):
    """Ranks that take their parts of the same sequences."""

    ranks: list[Rank]
    moments: list[Moment]


def judge(world: World) -> list[Finding]:
    """What is wrong with the parts that were taken."""
    findings: list[Finding] = []
    for group in groups(world):
        for look in (_left_out, _not_dealt_out, _in_rank_order):
            found = [look(group, moment) for moment in group.moments]
            # Once may be a batch that happens to look so.
            if found and all(one is not None for one in found):
                passes = [one for its in every_pass(world) for one in its if one.rank is group.ranks[0]]
                times = sum(is_compared(world, one) for one in passes)
                findings += [_finding(group, found[0], max(times, 1))] if found[0] is not None else []
    return findings


def is_compared(world: World, one: Pass) -> bool:
    """Whether the parts of a batch of this pass were compared."""
    number = one.rank.rank
    moments = [moment for group in groups(world) for moment in group.moments if number in moment]
    return any(one.begun.n < moment[number].n < one.end for moment in moments)


@once_per_world
def groups(world: World) -> list[Sharers]:
    """The groups of ranks that are handed the same batches, and take other places of them than the others do."""
    records = {rank.rank: {one.number: one for one in rank.of(ev.Sequences) if not one.unseen} for rank in world}
    alike: list[list[Rank]] = []
    for rank in world:
        mine = records[rank.rank]
        known = next((ones for ones in alike if mine and _alike(mine, records[ones[0].rank])), None)
        if known is None:
            alike.append([rank])
        else:
            known.append(rank)
    found = []
    for ones in alike:
        numbers = set.intersection(*(set(records[rank.rank]) for rank in ones))
        moments: list[Moment] = [{rank.rank: records[rank.rank][number] for rank in ones} for number in sorted(numbers)]
        if len(ones) > 1 and all(_dealt(moment) for moment in moments):
            found.append(Sharers(ones, moments))
    return found


def unseen(world: World) -> set[int]:
    """The ranks whose losses lie on devices, where nobody saw which places of a batch they took."""
    return {rank.rank for rank in world if any(one.unseen for one in rank.of(ev.Sequences))}


def _alike(mine: Mapping[int, ev.Sequences], yours: Mapping[int, ev.Sequences]) -> bool:
    """Whether two ranks were handed the same batches, as far as both are known."""
    both = set(mine).intersection(yours)
    return bool(both) and all(mine[number].digests == yours[number].digests for number in both)


def _uses(record: ev.Sequences) -> dict[Use, set[int]]:
    """The places that each operation has used."""
    found: dict[Use, set[int]] = {}
    for part in record.parts:
        places = found.setdefault((part.tensor, part.by), set())
        for _, first, size in part.runs:
            places.update(range(first, first + size))
    return found


def _by_use(moment: Moment) -> dict[Use, list[set[int]]]:
    """The same, rank by rank, of what all ranks have used."""
    each = [_uses(record) for record in moment.values()]
    return {use: [one[use] for one in each] for use in each[0] if all(use in one for one in each)}


def _dealt(moment: Moment) -> dict[Use, list[set[int]]]:
    """The uses for which no two ranks have taken the same place."""
    return {use: ones for use, ones in _by_use(moment).items() if sum(map(len, ones)) == len(set().union(*ones))}


# --- what may be wrong


class _Wrong(NamedTuple):
    rule: str
    subject: str
    expected: str
    found: str
    cause: str
    advice: str


class _Lost(NamedTuple):
    """Places that are a target on no rank, at one moment."""

    places: list[int]
    length: int
    """Of the whole sequence."""
    breaks: list[int]


def _left_out(group: Sharers, moment: Moment) -> _Wrong | None:
    """Targets are shifted within a rank's own part, and what follows its last token is another rank's first."""
    lost = _lost(moment)
    if lost is None or _are_texts(group):
        return None
    places = listing([str(place) for place in lost.places])
    return _Wrong(
        rule="tokens-without-target",
        subject="the targets of a sequence that ranks share",
        expected="the parts of all ranks to have every token as a target that the whole sequence has",
        found=f"{count(len(lost.places), 'place')} (counted from 0: {places}) to be a target on no rank: the first "
        "tokens of parts, which the parts before them would have to predict",
        cause="the labels are shifted within each rank's part, whose last token has nothing to predict then",
        advice="Shift the labels of the whole sequence, and deal inputs and labels out alike; see to it that "
        "the model does not shift them once more. Where each part is a text of its own, accept this finding.",
    )


def _lost(moment: Moment) -> _Lost | None:
    dealt = _dealt(moment)
    read = [set().union(*ones) for (_, by), ones in dealt.items() if by in _INPUTS]
    for (tensor, by), ones in dealt.items():
        if by not in _TARGETS:
            continue
        every = set().union(*ones)
        holes = [place for place in range(min(every), max(every)) if place not in every]
        begins = _beginnings(moment, tensor)
        lost = [place for place in holes if place in begins or (not read and len(holes) == len(ones) - 1)]
        if lost and lost == holes:
            first = next(iter(moment.values()))
            return _Lost(lost, first.lengths[tensor], first.breaks[tensor] if first.breaks else [])
    return None


def _are_texts(group: Sharers) -> bool:
    """Whether the parts are texts that were packed into one sequence: nobody has to predict how such a one begins.

    They begin where a text may, by what stands there; or at other places in sequences of one length.
    """
    each = [lost for lost in map(_lost, group.moments) if lost is not None]
    lengths = {lost.length for lost in each}
    vary = len({(lost.length, *lost.places) for lost in each}) > len(lengths)
    return vary or all(set(lost.places) <= set(lost.breaks) for lost in each)


def _beginnings(moment: Moment, tensor: int) -> set[int]:
    """The places of the batch where a piece begins that some rank reads, apart from the first of all."""
    runs = [
        run
        for record in moment.values()
        for part in record.parts
        if part.by in _INPUTS
        for run in part.runs
        if record.lengths[part.tensor] == record.lengths[tensor]
    ]
    return {place for _, place, _ in runs} - {min((place for _, place, _ in runs), default=0)}


def _not_dealt_out(group: Sharers, moment: Moment) -> _Wrong | None:
    """Every rank takes the same places of one tensor, as many as its part of the others has."""
    dealt = _dealt(moment)
    lengths = next(iter(moment.values())).lengths
    for (tensor, by), ones in _by_use(moment).items():
        if (tensor, by) in dealt or any(one != ones[0] for one in ones) or len(ones[0]) >= lengths[tensor] - 1:
            continue
        sizes = [len(one) for one in ones]
        beside = [
            other
            for (other, _), theirs in dealt.items()
            if other != tensor and [*map(len, theirs)] == sizes and abs(lengths[other] - lengths[tensor]) <= 1
        ]
        if beside:
            return _Wrong(
                rule="sequence-tensor-not-sharded",
                subject=f"tensor {tensor} of the batch",
                expected="what belongs to the tokens of a sequence (a mask, positions) to be dealt out as these are",
                found=f"places {min(ones[0])} to {max(ones[0])} of it in use ({by}) on each of "
                f"{ranks_text([rank.rank for rank in group.ranks])}, which have different places of tensor {beside[0]}",
                cause="every rank cuts it at the same place, to the length of its part",
                advice="Take the rank's own part of it, by the same places as of the tokens.",
            )
    return None


def _in_rank_order(group: Sharers, moment: Moment) -> _Wrong | None:
    """Parts are not in the order of ranks, and what is gathered of them is joined in that order.

    Who gathers whole numbers as well has the positions beside, and may look there. Attention that is masked in that
    very order, or that sees all places, needs no other one.
    """
    if not all(record.in_rank_order for record in moment.values()) or any(map(_gathers_positions, group.ranks)):
        return None
    if any(record.any_order for record in moment.values()):
        return None
    for by in (*_INPUTS, *_TARGETS):
        pieces = [[run for part in record.parts if part.by == by for run in part.runs] for record in moment.values()]
        order = [place for runs in pieces for _, place, _ in sorted(runs)]
        if all(pieces):
            return None if order == sorted(order) else _order_lost(group, pieces)
    return None


def _gathers_positions(rank: Rank) -> bool:
    return any("gather" in call.op and call.detail.startswith(("int", "uint")) for call in rank.of(ev.Call))


def _order_lost(group: Sharers, pieces: Sequence[Sequence[Sequence[int]]]) -> _Wrong:
    which = "; ".join(
        f"{listing([f'{first} to {first + size - 1}' for _, first, size in runs])} on rank {rank.rank}"
        for rank, runs in zip(group.ranks, pieces, strict=True)
    )
    return _Wrong(
        rule="gathered-in-wrong-order",
        subject="what ranks gather of a sequence",
        expected="the pieces of a sequence to be joined in the order that they have in it",
        found=f"what all ranks had gathered joined in the order of ranks, whose pieces are places {which}",
        cause="the sequence is dealt out in a zigzag, from its front and its back, and joined as if it had been cut",
        advice="Undo the order by which the pieces were dealt out before they are joined; where the order does not "
        "matter, because positions are gathered alike, accept this finding.",
    )


def _finding(group: Sharers, wrong: _Wrong, times: int) -> Finding:
    rank = group.ranks[0]
    return Finding(
        rule=wrong.rule,
        severity="warning",
        ranks=tuple(one.rank for one in group.ranks),
        subject=wrong.subject,
        expected=wrong.expected,
        found=wrong.found,
        cause=wrong.cause,
        advice=wrong.advice,
        where=rank.where(group.moments[0][rank.rank].site),
        count=times,
    )


def others(world: World) -> Iterator[int]:
    """The ranks that take a part of what a lower rank was handed as well."""
    for group in groups(world):
        yield from (rank.rank for rank in group.ranks[1:])
