"""R5: in one pass each sample is read once among the ranks that train one model, and a later pass reads other ones.

Whether ranks read each other's samples is compared in ``overlap.py``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from ddpcheck.facts.model_inputs import GroupInputs, Replay
from ddpcheck.facts.passes import Line, Pass
from ddpcheck.facts.positions import Resumption
from ddpcheck.facts.worker_copies import OldCopy
from ddpcheck.relations.overlap import AT_LEAST, CHANCE, NEARLY_ALL, SOME
from ddpcheck.vocabulary.model import CallSite

Pattern = Literal["position", "again", "workers", "nothing", "old copy", "replayed", "shared"]
"""A pass that goes on after a load leaves out others than had been read; a second pass gives the samples of one beside
it, or before it, once more; worker processes read the same; a pass gives none; workers read a dataset as it was;
batches are trained on once more when their pass is over; all ranks' models are given one batch."""

BY_CHANCE = 1e-3
"""How likely a pass may be to leave out, of samples that were read, as many by chance as it does."""
FORWARDS = 5
"""Fewer may be a try of something else, for which any data will do."""


class Deviation(NamedTuple):
    """Samples that are not read once, and where that is so."""

    pattern: Pattern
    cause: str
    ranks: tuple[int, ...]
    pass_: Pass | None
    """The pass that is said to be wrong, on the first of the ranks."""
    line: CallSite | None
    texts: Mapping[str, Any]
    times: int = 1
    is_certain: bool = False
    links: tuple[str, ...] = ()


def _of_passes(
    pattern: Pattern, cause: str, passes: Mapping[int, Pass], texts: Mapping[str, Any], times: int = 1
) -> Deviation:
    first = passes[min(passes)]
    links = (f"loader {first.begun.loader}",)
    return Deviation(pattern, cause, tuple(sorted(passes)), first, first.where, texts, times, links=links)


# --- positions


def positions(resumptions: Iterable[Resumption]) -> list[Deviation]:
    """The passes after a load that leave out other samples than ranks had read when the state was saved.

    A pass that leaves out samples, all of which had been read, means to go on from there; so does one that hands out
    batches which nothing is trained on, or leaves out as many as had been read. One that begins anew leaves out none.
    """
    return [one for one in map(_position, resumptions) if one is not None]


def _position(one: Resumption) -> Deviation | None:
    if one.left_out in one.read or not one.left_out:
        return None
    read = one.read[0]
    means_to = bool(one.skipped) or (len(one.left_out) == len(read) > one.batch * len(one.passes))
    within = one.left_out <= read and all(_is_begun_with(order, one.left_out) for order in one.orders)
    within = within and _chance(len(read), one.size, len(one.left_out)) < BY_CHANCE
    if not means_to and not within:
        return None
    counted = {"one rank": len(one.passes), "updates": one.often}
    fits = [name for name, times in counted.items() if times > 1 and len(one.left_out) * times == len(read)]
    cause = " or ".join(fits) if fits and one.left_out <= read else "number"
    if not one.left_out <= read and not read <= one.left_out:
        epochs = {one.before[rank].begun.epoch for rank in one.before}, {p.begun.epoch for p in one.passes.values()}
        cause = "epoch" if epochs[0] != epochs[1] and None not in epochs[1] else "order"
    epoch = next(iter(one.passes.values())).begun.epoch
    texts = {
        "read": len(read),
        "again": len(read - one.left_out),
        "left": len(one.left_out),
        "unread": len(one.left_out - read),
        "epoch": epoch,
        "before": next(iter(one.before.values())).begun.epoch,
    }
    return _of_passes("position", cause, one.passes, texts)


def _is_begun_with(order: Sequence[int], left_out: Collection[int]) -> bool:
    """Whether what a rank has read begins with what is left out of it."""
    number = sum(place in left_out for place in order)
    return all(place in left_out for place in order[:number])


def _chance(within: int, size: int, drawn: int) -> float:
    """That so many samples, drawn from all, come from a part of them."""
    return math.exp(_ways(within, drawn) - _ways(size, drawn)) if drawn <= within else 0.0


def _ways(size: int, drawn: int) -> float:
    """The logarithm of how many ways there are to draw so many: the number itself may have millions of digits."""
    return math.lgamma(size + 1) - math.lgamma(drawn + 1) - math.lgamma(size - drawn + 1)


# --- several passes of one rank


def repetitions(pairs: Iterable[tuple[Pass, Pass]]) -> list[Deviation]:
    """Passes that train one model on one dataset, of which the second gives what the first gave, in its order."""
    found: dict[tuple[int, int], dict[int, list[tuple[Pass, Pass]]]] = {}
    for one, other in pairs:
        if _are_one_sequence(one, other):
            lines = one.begun.site, other.begun.site
            found.setdefault(lines, {}).setdefault(one.rank.rank, []).append((one, other))
    deviations = []
    for by_rank in found.values():
        first, second = by_rank[min(by_rank)][0]
        cause = (
            "side by side" if second.begun.n < first.end and first.begun.loader != second.begun.loader else "begun anew"
        )
        texts = {
            "samples": min(len(first.samples), len(second.samples)),
            "sampler": second.loader.sampler if second.loader is not None else "sampler",
            "first": str(first.where) if first.where is not None else "another line",
        }
        latest = {rank: its[0][1] for rank, its in by_rank.items()}
        deviations.append(_of_passes("again", cause, latest, texts, max(map(len, by_rank.values()))))
    return deviations


def _are_one_sequence(one: Pass, other: Pass) -> bool:
    """Whether both give the same content, sample after sample."""
    pairs = [(a.print_, b.print_) for a, b in zip(one.samples, other.samples, strict=False) if a.print_ and b.print_]
    equal = sum(a == b for a, b in pairs)
    return len({a for a, _ in pairs}) >= AT_LEAST and equal >= NEARLY_ALL * len(pairs)


def workers_alike(lines: Iterable[Line]) -> list[Deviation]:
    """The streams that several worker processes of a rank read alike.

    Data may hold a sample twice, and then there are such pairs within a worker as well as between two of them.
    """
    found = []
    for line in lines:
        alike: list[tuple[Pass, int, int]] = []
        for one in (
            one for passes in line.passes.values() for one in passes if one.exhausted and len(one.by_worker) > 1
        ):
            sets = [set(prints) for prints in one.by_worker]
            total = sum(map(len, one.by_worker))
            surplus = sum(map(len, sets)) - len(set().union(*sets))
            chance = CHANCE * (total - sum(map(len, sets))) * (len(sets) - 1)
            if surplus >= AT_LEAST and surplus > SOME * total + chance:
                alike.append((one, surplus, total))
        if alike:
            first, surplus, total = alike[0]
            latest = {one.rank.rank: one for one, _, _ in reversed(alike)}
            texts = {"surplus": surplus, "samples": total, "workers": len(first.by_worker)}
            found.append(_of_passes("workers", "", latest, texts, len({one.begun.number for one, _, _ in alike})))
    return found


def empty_passes(lines: Sequence[Line], ranks: int) -> list[Deviation]:
    """The passes of training loops that give no rank anything, though their samplers have samples to give.

    An earlier pass of these ranks has to have given some, or else drop_last has to leave out all there is: a program
    may begin with a position at the end of an epoch that another one has read.
    """
    found = []
    for line in lines:
        empty = [
            passes
            for _, passes in line.rounds()
            if len(passes) == ranks and all(one.exhausted and not one.taken for one in passes.values())
        ]
        empty = [passes for passes in empty if all(_has_more(one, lines) for one in passes.values())]
        if empty:
            cause = "dropped" if all(map(_is_dropped, empty[0].values())) else ""
            found.append(_of_passes("nothing", cause, empty[0], {}, len(empty)))
    return found


def _before(one: Pass, lines: Sequence[Line]) -> list[Pass]:
    """The passes of its rank before it that gave something."""
    each = (other for line in lines for other in line.passes.get(one.rank.rank, ()))
    return sorted((p for p in each if p.begun.n < one.begun.n and p.taken), key=lambda p: p.begun.n)


def _has_more(one: Pass, lines: Sequence[Line]) -> bool:
    """Whether there is something to give, and the epoch is not one that a pass has read to its end."""
    if not one.begun.sampler_length:
        return False
    before = _before(one, lines)
    if not before:
        return _is_dropped(one)
    return one.begun.epoch is None or one.begun.epoch != before[-1].begun.epoch


def _is_dropped(one: Pass) -> bool:
    """Whether all that its sampler gives is less than a batch, and the loader drops what is less."""
    made, length = one.loader, one.begun.sampler_length
    return made is not None and made.drop_last and length is not None and length < (made.batch_size or 0)


def old_copies(copies: Sequence[OldCopy]) -> list[Deviation]:
    """The workers that go on with a dataset as it was, though the program has changed what samples are made from."""
    by_line: dict[object, list[OldCopy]] = {}
    for one in copies:
        by_line.setdefault(one.read.where, []).append(one)
    found = []
    for its in by_line.values():
        first = its[0]
        number = first.read.begun.number
        texts = {
            "names": ", ".join(first.names),
            "number": number + 1,
            "since": first.since.begun.number + 1,
            "dataset": first.read.loader.dataset if first.read.loader is not None else "dataset",
        }
        found.append(_of_passes("old copy", "", {one.rank: one.read for one in its}, texts, first.times))
    return found


# --- what models are given


def replays(again: Iterable[Replay]) -> list[Deviation]:
    """The passes through loaders that shuffle, whose batches are trained on in one order over and over."""
    by_line: dict[object, list[Replay]] = {}
    for one in again:
        by_line.setdefault(one.first.where, []).append(one)
    return [
        _of_passes("replayed", "", {one.rank: one.first for one in its}, {"forwards": its[0].forwards})
        for its in by_line.values()
    ]


def common_inputs(given: Iterable[GroupInputs]) -> list[Deviation]:
    """Models of all ranks that are given the same batches, one after another, while these change.

    Ranks that contribute differently take parts of them within the model, unless it draws random numbers.
    """
    found: dict[tuple[int, ...], Deviation] = {}
    for one in given:
        total = len(one.digests)
        is_same = total >= FORWARDS and one.equal >= NEARLY_ALL * total
        unlike = one.contributions is False and not (one.draws and one.change)
        is_whole = one.contributions is True or (one.is_declared and not unlike)
        if is_same and is_whole:
            texts = {"name": one.name, "equal": one.equal, "of": total}
            is_certain = one.is_declared and one.change and one.equal == total and one.contributions is True
            links = (one.name,)
            deviation = Deviation("shared", "", one.ranks, None, one.line, texts, is_certain=is_certain, links=links)
            found.setdefault(one.ranks, deviation)
    return list(found.values())
