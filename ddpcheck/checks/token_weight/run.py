"""Does every sample count the same in an update, as in one process? Judged where backward() was weighed."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ddpcheck import evidence as ev
from ddpcheck.checks.token_weight import missing_factor, part_of_window, short_windows, whole_weight
from ddpcheck.checks.token_weight.sample_weights import TOLERANCE, Batch, Fault, Part, fault_of, finding
from ddpcheck.checks.token_weight.world_factor import Text
from ddpcheck.judging import step_alignment, summed_gradients, weighted_ranks
from ddpcheck.judging.replicated_parameters import declared_apart, grounds, why_none
from ddpcheck.judging.step_alignment import Aligned
from ddpcheck.judging.world import Judged, Rank, World

WEIGHTED = "ddpcheck saw elements of the loss with different weights, which do not follow from their numbers"
UNSEEN = "ddpcheck saw gradients that the program weighs itself, and not by what"
NOTHING_COUNTS = "ddpcheck saw a part of the loss whose elements count on one rank at most"
NOT_AVERAGED = "ddpcheck did not see which ranks bring gradients of different data together"
UNWEIGHED = "ddpcheck saw no step of all ranks that a backward() of each had led to"

ADVISORIES = ("divided-by-world-size", "multiplied-by-world-size")
"""Rules that show nothing of what was compared."""
CHANGED = "ddpcheck saw gradients do other things than add up between the backward() calls of a step"

Line = tuple[str, int]


class _Met(NamedTuple):
    """The steps at which one fault was found in one part of the loss."""

    numbers: list[int]
    part: Part
    fault: Fault
    unlike: bool
    """Another part of the loss is divided by the elements of all ranks."""


def judge(world: World) -> Judged:
    """Compare the weights of all ranks and micro-batches, step by step."""
    weighed: step_alignment.Windows = set()
    whys: Counter[str] = Counter()
    met: dict[tuple[int, Line, int, str], _Met] = {}
    optimizers = step_alignment.optimizers(world)
    grounded = [one for one in optimizers if grounds(world, one).gradients]
    groups = [*(_Group.of_optimizer(world, each) for each in grounded), *_others(world, grounded)]
    for one in [*groups, *_last_stages(world, groups)]:
        for number, parts, why in _steps(world, one):
            if why:
                whys[why] += 1
            faults = [fault_of(part) for part in parts]
            unlike = _is_of_all_ranks(parts, faults)
            # Held is a step of which all was compared.
            if not all(part.compared for part in parts):
                whys[NOTHING_COUNTS] += 1
            elif parts and not why and not any(fault is not None and fault.kind is None for fault in faults):
                weighed.add((one.number, number))
            for part, fault in zip(parts, faults, strict=True):
                if fault is not None and fault.kind is None:
                    whys[WEIGHTED] += 1
                elif fault is not None:
                    key = (one.number, part.line, part.place, str(fault.kind))
                    met.setdefault(key, _Met([], part, fault, unlike)).numbers.append(number)
    findings = [finding(one.part, one.fault, one.numbers, one.unlike) for one in met.values()]
    compared = [*whole_weight.scaled(world), *whole_weight.unequal(world), *whole_weight.undivided(world)]
    compared += missing_factor.judge(world) + short_windows.judge(world)
    compared += part_of_window.judge(world)
    if not weighed and not findings and not compared and not grounded:
        reason = NOT_AVERAGED if declared_apart(world) else why_none(world, optimizers)
        return Judged(checked=0, skipped_because=(whys.most_common(1) or [(reason, 0)])[0][0])
    reason = (whys.most_common(1) or [(UNWEIGHED, 0)])[0][0]
    findings += compared
    most = max((one.count for one in findings if one.rule not in ADVISORIES), default=0)
    checked, made = step_alignment.coverage(world, weighed, most)
    return Judged(checked=max(checked, most), of=made, findings=tuple(findings), skipped_because=reason)


class _Group(NamedTuple):
    """Ranks that bring their gradients together, and the steps that were weighed on all of them."""

    ranks: list[Rank]
    number: int
    weights: list[tuple[int, list[ev.StepWeights]]]
    optimizer: Aligned | None
    """The one that they step alike, where they are replicas."""
    averaged: bool
    """DDP alone brings the gradients together."""

    @classmethod
    def of_optimizer(cls, world: World, one: Aligned) -> _Group:
        """The ranks of one optimizer that is the same on all of them."""
        averaged = not grounds(world, one).exchanged and all(p.reduced for p in one.described[0].parameters)
        each = []
        for rank, described in zip(one.ranks, one.described, strict=True):
            each.append({w.number: w for w in rank.of(ev.StepWeights) if w.optimizer == described.optimizer})
        numbers = sorted(set(each[0]).intersection(*each[1:]))
        return cls(one.ranks, one.number, [(n, [its[n] for its in each]) for n in numbers], one, averaged)


def _others(world: World, grounded: Sequence[Aligned]) -> Iterator[_Group]:
    """Ranks that hold parts, window by window: those of them that compute a loss."""
    known = [{rank.rank for rank in one.ranks} for one in grounded]
    with_loss = set().union(*whole_weight.with_loss(world).values())
    for numbers in summed_gradients.together(world):
        if any(set(numbers) <= one for one in known):
            continue
        ranks = [rank for rank in world if rank.rank in numbers and rank.rank in with_loss]
        each = [{w.window: w for w in rank.of(ev.StepWeights)} for rank in ranks]
        if len(each) > 1:
            windows = sorted(set(each[0]).intersection(*each[1:]))
            weights = [(each[0][w].number, [its[w] for its in each]) for w in windows]
            yield _Group(ranks, -1, weights, None, averaged=False)


def _last_stages(world: World, groups: Sequence[_Group]) -> Iterator[_Group]:
    """Ranks that compute the loss of what another one sends them, which has none, each by itself.

    A schedule takes the batch apart for them: of its parts each has a backward().
    """
    known = {rank.rank for group in groups for rank in group.ranks}
    with_loss = set().union(*whole_weight.with_loss(world).values())
    sent = [one for one in summed_gradients.exchanges(world) if len(one) == 2 and len(one & with_loss) == 1]
    for rank in world:
        if rank.rank not in known and any(rank.rank in one & with_loss for one in sent):
            yield _Group([rank], -1, [(one.number, [one]) for one in rank.of(ev.StepWeights)], None, averaged=False)


def _is_of_all_ranks(parts: Sequence[Part], faults: Sequence[Fault | None]) -> bool:
    """Whether the program itself divides some loss by the elements of all ranks, which have unequally many."""
    return any(
        fault is None
        and part.compared
        and part.counted[0].term.kind != "mean"
        and len({one.term.elements for one in part.counted}) > 1
        for part, fault in zip(parts, faults, strict=True)
    )


def _parts(group: _Group, number: int, weights: Sequence[ev.StepWeights]) -> tuple[list[Part], str]:
    """The parts of a step's loss, each with what it was on every rank; and why others are not compared."""
    why = next((one.why for one in weights if one.why), "")
    if why:
        return [], why
    by_line = [_by_line(rank, one) for rank, one in zip(group.ranks, weights, strict=True)]
    if len({frozenset(lines) for lines in by_line}) > 1:
        return [], "the ranks have called backward() at different lines"
    parts = []
    steps = _recorded(group.optimizer, number) if group.optimizer is not None else []
    for line in by_line[0]:
        backwards = [lines[line] for lines in by_line]
        each = [one for its in backwards for one in its]
        why = next((one.why for one in each if one.why), why)
        shapes = {tuple((term.by, term.kind) for term in one.terms) for one in each}
        if any(one.why for one in each):
            continue
        if len(shapes) > 1:
            why = "the loss is not made of the same parts on all ranks and in all micro-batches"
            continue
        for place in range(len(each[0].terms)):
            batches = [
                Batch(rank.rank, micro, one.terms[place])
                for rank, its in zip(group.ranks, backwards, strict=True)
                for micro, one in enumerate(its)
            ]
            parts.append(
                Part(
                    line=line,
                    place=place,
                    alone=len(each[0].terms) == 1,
                    batches=tuple(batches),
                    world_size=len(group.ranks),
                    forwards=_forwards(steps),
                    averaged=group.averaged,
                    accumulates=_accumulates(steps, backwards),
                    alone_in_step=bool(steps) and not any(step.collectives for step in steps),
                    unchanged=bool(steps) and all(map(_same, steps)),
                    where=group.ranks[0].where(backwards[0][0].site),
                    source=_functions(group.ranks[0], backwards[0][0].site),
                )
            )
    return parts, why


def _steps(world: World, group: _Group) -> Iterator[tuple[int, list[Part], str]]:
    """The parts of the loss of each step, as :func:`_parts`, by what counts once the program has weighed the ranks.

    One that weighs them by anything but their elements, such as the groups that
    they have, may come to equal weights now and then.
    """
    steps = [(number, weights, *_parts(group, number, weights)) for number, weights in group.weights]
    ranks, weights = [rank.rank for rank in group.ranks], dict(group.weights)
    by_hand = {
        number: weighted_ranks.factors(world, ranks, weights[0].window)
        for number, weights, parts, _ in steps
        if not group.averaged and any(part.compared for part in parts)
    }
    known = {number: factors for number, factors in by_hand.items() if factors is not None}
    partial_sums = {number for number, factors in known.items() if not all(factors)}
    weighed = {number for number, factors in known.items() if number not in partial_sums and _differ(factors)}
    found = [
        (number, [_multiplied(part, group.ranks, factors) for part in parts] if factors is not None else parts, why)
        for number, _, parts, why in steps
        for factors in [by_hand.get(number)]
    ]
    faults = [fault_of(part) for number, parts, _ in found if number in weighed for part in parts]
    by_others = any(fault is not None and fault.kind is None for fault in faults)
    for number, parts, why in found:
        if any(map(_is_changed, group.ranks, weights[number])):
            why = why or CHANGED
        told = number in weighed or number not in by_hand or not weighed
        if number in partial_sums:
            yield number, [], UNSEEN
        elif told or (by_hand[number] is not None and not by_others):
            yield number, parts, why
        else:
            yield number, [], WEIGHTED if by_others else UNSEEN


def _is_changed(rank: Rank, weights: ev.StepWeights) -> bool:
    """Whether gradients were seen to do anything but to add up between the backward() calls of a step."""
    windows = [one for one in rank.of(ev.Window) if (one.optimizer, one.number) == (weights.optimizer, weights.number)]
    between = len(weights.backwards) - 1  # a window may begin with the backward() calls of other optimizers' steps
    return between > 0 and any(one.became != "kept" for its in windows for one in its.between[-between:])


def _multiplied(part: Part, ranks: Sequence[Rank], factors: Sequence[float]) -> Part:
    """A part of the loss, by what its elements count once the program has weighed the ranks itself.

    What is the same for all ranks is none of its weights here: it is left as it is.
    """
    mean = math.fsum(factors) / len(factors)
    by_rank = {rank.rank: factor / mean for rank, factor in zip(ranks, factors, strict=True)}
    if not _differ(factors):
        return part
    batches = [one._replace(term=replace(one.term, weight=one.term.weight * by_rank[one.rank])) for one in part.batches]
    return part._replace(batches=tuple(batches))


def _differ(factors: Sequence[float]) -> bool:
    return max(factors) > (1 + TOLERANCE) * min(factors)


def _by_line(rank: Rank, weights: ev.StepWeights) -> dict[Line, list[ev.Weighed]]:
    found: dict[Line, list[ev.Weighed]] = defaultdict(list)
    for one in weights.backwards:
        if one.continued:
            continue
        place = rank.where(one.site)
        found[(place.file, place.line) if place is not None else ("", 0)].append(one)
    return found


def _functions(rank: Rank, site: int) -> tuple[Text, ...]:
    """The text of the functions that have led to a line."""
    return tuple(Text(one.file, one.first, one.function, rank.process.body(one)) for one in rank.process.calls_to(site))


def _recorded(optimizer: Aligned, number: int) -> list[ev.Step]:
    """The step itself, rank by rank; none where some rank has it not on record."""
    return next((steps for its, steps in optimizer.common() if its == number), [])


def _forwards(steps: Sequence[ev.Step]) -> set[int]:
    """How often wrappers were called for it, rank by rank."""
    return {sum(usage.forwards for usage in step.usage) for step in steps}


def _accumulates(steps: Sequence[ev.Step], backwards: Sequence[Sequence[ev.Weighed]]) -> bool:
    """Whether several backwards are those of micro-batches, and not of several losses of one batch."""
    held_back = bool(steps) and all(any(usage.no_sync for usage in step.usage) for step in steps)
    return held_back or all(one.fresh for its in backwards for one in its[1:])


def _same(step: ev.Step) -> bool:
    left = {one for usage in step.usage for one in _digests(usage.after)}
    met = set(_digests(step.gradients)) - {ev.ABSENT}
    return step.whole and bool(met) and ev.UNSEEN not in met and met <= left


def _digests(data: bytes) -> list[bytes]:
    return [data[start : start + ev.WIDTH] for start in range(0, len(data), ev.WIDTH)]
