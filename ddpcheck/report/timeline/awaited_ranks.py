"""Who waited for whom: the last to come to a call is whom the others have waited for."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Sequence

from ddpcheck.judging.call_divergence import NAMES
from ddpcheck.judging.happens_before import members
from ddpcheck.report.timeline.label_table import Labels
from ddpcheck.report.timeline.lane_builder import LaneBuilder, Met
from ddpcheck.report.timeline.timeline import Alone, Awaited, Group

MOST_ALONE = 2_000
MOST_SHOWN = 30
"""Pairs of ranks and lines that are shown, those that took longest."""
DDP = NAMES["ddp-gradients"]


def groups(lanes: Sequence[LaneBuilder], labels: Labels) -> tuple[Group, ...]:
    """Who takes part in the calls of each group."""
    return tuple(Group(name, tuple(_members(name, lanes))) for name in labels.groups)


def _members(name: str, lanes: Sequence[LaneBuilder]) -> list[int]:
    _, group, *way = name.split("|", 3)
    size = max((lane.size for lane in lanes), default=0)
    ranks = set(members(group, size)) if not way else {int(one) for one in way[0].split(">")}
    world = name.partition("|")[0]
    return [place for place, lane in enumerate(lanes) if lane.rank in ranks and str(lane.world) == world]


def note_waits(lanes: Sequence[LaneBuilder], named: Sequence[Group], labels: Labels) -> tuple[Awaited, ...]:
    """Work out for each call that all have made who came last, and how long the others waited for that one.

    A rank cannot have waited for longer than the call took it beyond what it
    took the last one: DDP's reduction goes on while a backward computes.
    """
    found: dict[tuple[int, int, int], list[float]] = defaultdict(lambda: [0.0, 0])
    for group, of in enumerate(named):
        here = [(place, met) for place in of.lanes if (met := lanes[place].met.get(group)) is not None]
        if len(here) >= 2 and len(here) == len(of.lanes):
            _of_group(here, lanes, labels, found, ">" in of.name)
    waits = [
        Awaited(lane, late, labels.labels[label].place, labels.labels[label].text, seconds, int(times))
        for (lane, late, label), (seconds, times) in found.items()
        if seconds >= 1e-3
    ]
    return tuple(sorted(waits, key=lambda one: -one.seconds)[:MOST_SHOWN])


def _of_group(
    here: Sequence[tuple[int, Met]],
    lanes: Sequence[LaneBuilder],
    labels: Labels,
    found: dict[tuple[int, int, int], list[float]],
    pairs: bool,
) -> None:
    common = set(here[0][1].numbers)
    for _, met in here[1:]:
        common.intersection_update(met.numbers)
    places = [_places(met, common) for _, met in here]
    mets = [met for _, met in here]
    for row in zip(*places, strict=True):
        starts = [met.starts[place] for met, place in zip(mets, row, strict=True)]
        names = [met.labels[place] for met, place in zip(mets, row, strict=True)]
        if not pairs and len(set(names)) > 1 and len({labels.labels[label].text for label in names}) > 1:
            continue  # not the same call: nobody waits for its end
        if labels.labels[names[0]].text == NAMES["ddp-construct"]:
            continue  # ranks start at different times: that is no imbalance of the training
        latest = max(starts)
        last = starts.index(latest)
        least, late = mets[last].ends[row[last]] - latest, here[last][0]
        for (lane, met), place, start, label in zip(here, row, starts, names, strict=True):
            waited = min(latest - start, met.ends[place] - start - least)
            if met.waits and lane != late and (over := met.waits.get(met.numbers[place])) is not None:
                waited = min(latest, over[1]) - over[0]  # an asynchronous call, waited for later
            if waited <= 0 or lane == late:
                continue
            seconds = waited / 1e6
            sums = lanes[lane].sums
            sums.waited += seconds
            if labels.labels[label].text == DDP:
                sums.waited_in_backward += seconds
            lanes[late].sums.caused += seconds
            pair = found[lane, late, label]
            pair[0] += seconds
            pair[1] += 1


def _places(met: Met, numbers: set[int]) -> Sequence[int]:
    """Where the calls of these numbers are."""
    if len(numbers) == len(met.numbers):
        return range(len(met.numbers))
    return array("L", (place for place, number in enumerate(met.numbers) if number in numbers))


def alone(lanes: Sequence[LaneBuilder], named: Sequence[Group], labels: Labels) -> tuple[Alone, ...]:
    """Calls that a rank has made and another one has not, or has made as another call: after its last one, say."""
    found: list[Alone] = []
    for group, of in enumerate(named):
        calls = {place: lanes[place].met[group] for place in of.lanes if group in lanes[place].met}
        for place, met in calls.items():
            ends = {o: (calls[o].numbers[-1] if o in calls and calls[o].numbers else 0) for o in of.lanes}
            shortest = min((ends[o] for o in of.lanes if o != place and not lanes[o].note), default=None)
            if shortest is None or not met.numbers or met.numbers[-1] <= shortest:
                continue
            first = next(at for at, number in enumerate(met.numbers) if number > shortest)
            for at in range(first, min(len(met.numbers), first + MOST_ALONE)):
                lacking = tuple(o for o in of.lanes if o != place and not lanes[o].note and ends[o] < met.numbers[at])
                found.append(Alone(place, met.starts[at], group, met.numbers[at], lacking))
        found += _unlike(calls, labels, group)
    return tuple(sorted(found, key=lambda one: one.at)[:MOST_ALONE])


def _unlike(calls: dict[int, Met], labels: Labels, group: int) -> list[Alone]:
    """The first call of a group that ranks have made as different ones."""
    by_number: dict[int, dict[str, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    last = {place: met for place, met in calls.items() if met.numbers}
    if len(last) < 2:
        return []
    # Where the texts of two ranks are the same all along, there is nothing to look for.
    for place, met in last.items():
        for number, start, label in zip(met.numbers[-TAIL:], met.starts[-TAIL:], met.labels[-TAIL:], strict=True):
            by_number[number][labels.labels[label].text].append((place, start))
    for number in sorted(by_number):
        texts = by_number[number]
        if len(texts) > 1 and _differ(list(texts)):
            everybody = [one for them in texts.values() for one in them]
            return [
                Alone(place, start, group, number, tuple(other for other, _ in everybody if other not in dict(them)))
                for them in texts.values()
                for place, start in them
            ]
    return []


TAIL = 1_000
"""Calls of a rank, the last ones, that are compared with the others': from there on none is like another."""


def _differ(texts: Sequence[str]) -> bool:
    """Whether these are different calls; those between two ranks have two names."""
    return not all(text.partition("(")[0].strip("i") in ("send", "recv", "rrecv") for text in texts)
