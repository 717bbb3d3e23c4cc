"""R2 between steps: what ranks make of each other's parameters reaches all copies, of all tensors, whole.

Ranks that step copies for themselves meet now and then. Then every copy takes what is made of all of them, so does
every tensor of their optimizer, and the shares of the models in it add up to one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from ddpcheck.facts import exchanges
from ddpcheck.facts.logical_tensors import Ranks
from ddpcheck.facts.mixing import Became, Between, How, Mixing
from ddpcheck.relations.complete import ENOUGH
from ddpcheck.vocabulary.model import CallSite

Pattern = Literal["left out", "not taken", "taken by some", "parted", "in groups", "scaled"]
"""Tensors stay as they were whenever others of their optimizer meet; a mean of all is made, and no copy is written to;
some ranks go into it and do not take it; what made copies the same leaves them different; ranks that share a dataset
meet in groups that nothing joins; shares do not add up to one."""

Ground = Literal["dealt", "observed", "done"]
"""Why it must be whole: one dataset is dealt out to the ranks; copies have begun with the same; or the ranks themselves
bring them together."""

AGREEING = 2
"""Meetings whose numbers have to agree."""
NEARLY = 1e-3
"""How far apart sums of shares are that are one."""


class Deviation(NamedTuple):
    """What is not whole, in the meetings of one family."""

    mixing: Mixing
    pattern: Pattern
    ground: Ground
    tensors: list[int]
    """Those that are so."""
    ranks: Ranks
    """Those that are so."""
    windows: list[int]
    """The steps before which it is so."""
    line: CallSite | None
    others: int = 0
    """How many tensors meet as they should."""
    sets: Sequence[Ranks] = ()
    """The groups in which ranks meet."""
    share: float = 1.0
    """All shares in one copy together."""
    models: int = 0
    """How many models are added up."""
    before: tuple[Mixing, int] | None = None
    """Where the same line has made all copies the same, and the step before which it did."""

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(self.mixing.family.tensors[place].path for place in self.tensors))


class Meetings(NamedTuple):
    """What the comparison of all families gave."""

    windows: set[tuple[int, int]]
    """Those that are known to begin with the same copies of all, or not to: an optimizer's number, and its step's."""
    deviations: list[Deviation]


def meetings(each: Sequence[Mixing], sizes: Collection[int]) -> Meetings:
    """Compare what meets with what there is; ``sizes`` are the numbers of ranks that groups have."""
    found: list[Deviation | None] = []
    windows: set[tuple[int, int]] = set()
    for mixing in each:
        rounds = [one for one in mixing.between if one.meeting]
        adjacent = [one for one in rounds if one.is_next]
        windows.update((mixing.optimizer, one.number) for one in rounds if one.even >= one.by.keys())
        found.append(_not_taken(mixing))
        if len(rounds) >= ENOUGH:
            found += [_left_out(mixing, rounds), _taken_by_some(mixing, rounds), _in_groups(mixing, rounds)]
        found += [_scaled(mixing, adjacent, sizes), _parted(mixing, each)]
    deviations = [one for one in found if one is not None]
    windows.update(
        (one.mixing.optimizer, number) for one in deviations if one.ground != "observed" for number in one.windows
    )
    return Meetings(windows, deviations)


def _deviation(
    mixing: Mixing, pattern: Pattern, ground: Ground, tensors: Collection[int], windows: Sequence[Between], **more: Any
) -> Deviation:
    usual = {line for one in mixing.between if not one.meeting and one not in windows for line in one.lines}
    lines = [line for one in windows for line in one.lines if line is not None]
    line = next((line for line in lines if line not in usual), next(iter(lines), None))
    copies = (ranks for one in windows for place in tensors for ranks in one.by.get(place, ()))
    ranks = more.pop("ranks", None) or frozenset().union(*copies)
    numbers = list(dict.fromkeys(one.number for one in windows))
    return Deviation(mixing, pattern, ground, sorted(tensors), ranks, numbers, line, **more)


def _not_taken(mixing: Mixing) -> Deviation | None:
    """Who keeps a mean in another model, or evaluates it, has made it for that."""
    every = set(range(len(mixing.family.tensors)))
    made = [one for one in mixing.between if one.carried >= every]
    if len(made) < ENOUGH or not mixing.is_dealt or mixing.has_other_models or any(map(mixing.is_written, every)):
        return None
    is_kept = all(one.by.keys() >= every and all(_are_kept(its, "passed") for its in one.by.values()) for one in made)
    is_kept &= not any(one.is_evaluated for one in made)
    return _deviation(mixing, "not taken", "dealt", every, made) if is_kept else None


def _left_out(mixing: Mixing, rounds: Sequence[Between]) -> Deviation | None:
    """Who takes turns leaves out other tensors each time, and means to."""
    if len({one.meeting for one in rounds}) > 1 or not mixing.is_all_seen:
        return None
    kept = [{place for place, copies in one.by.items() if _are_kept(copies, "passed")} for one in rounds]
    places = {place for place in set.intersection(*kept) if mixing.are_copies(place) and not mixing.is_written(place)}
    if all(map(mixing.is_constant, places)):
        return None
    return _deviation(
        mixing, "left out", "dealt" if mixing.is_dealt else "observed", places, rounds, others=len(rounds[0].meeting)
    )


def _taken_by_some(mixing: Mixing, rounds: Sequence[Between]) -> Deviation | None:
    """Each time the same ranks do not take it: who sends in turn keeps its own now and then."""
    missing = [
        {place: ranks for place, its in one.by.items() if place not in one.even and (ranks := _missing(its))}
        for one in rounds
    ]
    places = {place for place in missing[0] if any(_is_of_all(one.by[place]) for one in rounds)}.intersection(*missing)
    sets = {its[place] for its in missing for place in places}
    return _deviation(mixing, "taken by some", "done", places, rounds, ranks=sets.pop()) if len(sets) == 1 else None


def _in_groups(mixing: Mixing, rounds: Sequence[Between]) -> Deviation | None:
    """Ranks that share a dataset, and exchange nothing else."""
    if mixing.family.dealt is None or not mixing.is_dealt or not mixing.is_all_seen:
        return None
    reduced = [answer.over for sums in mixing.family.windows for answer in sums.answers]
    parted: dict[tuple[Ranks, ...], list[int]] = defaultdict(list)
    for place in set.intersection(*(set(one.meeting) for one in rounds)):
        each = [ranks | became.over for one in rounds for ranks, became in one.by[place].items()]
        stepping = frozenset[int]().union(*each)
        sets = _joined([*each, *(ranks & stepping for ranks in reduced)])
        if mixing.are_copies(place) and not any(_is_across(ranks, sets) for ranks in mixing.family.between):
            parted[tuple(sets)].append(place)
    found = [(sets, places) for sets, places in parted.items() if len(sets) > 1]
    return _deviation(mixing, "in groups", "dealt", found[0][1], rounds, sets=list(found[0][0])) if found else None


def _scaled(mixing: Mixing, rounds: Sequence[Between], sizes: Collection[int]) -> Deviation | None:
    """By a quotient of sizes, whenever they meet."""
    each = [
        (one, place, became)
        for one in rounds
        for place, copies in one.by.items()
        for ranks, became in copies.items()
        if became.how == "mixed" and became.over - ranks
    ]
    windows = list(dict.fromkeys(one.number for one, _, _ in each))
    if len(windows) < AGREEING:
        return None
    share = each[0][2].total
    quotients = {a / b for a in (1, *sizes) for b in (1, *sizes) if a != b}
    if not any(all(abs(one.total - wanted) <= NEARLY * wanted for *_, one in each) for wanted in quotients):
        return None
    places = {place for _, place, _ in each}
    return _deviation(
        mixing,
        "scaled",
        "done",
        places,
        [one for one, _, _ in each],
        sets=[each[0][2].over],
        share=share,
        models=len(each[0][2].shares),
    )


def _parted(mixing: Mixing, each: Sequence[Mixing]) -> Deviation | None:
    """The line shows what it is meant to do: it has done so before, with this optimizer or the one before."""
    later = [(one, before) for one in mixing.between if (before := _evened(mixing, one, each)) is not None]
    if not later:
        return None
    windows, befores = zip(*later, strict=True)
    return _deviation(mixing, "parted", "done", windows[0].based, windows, before=befores[0])


def _evened(mixing: Mixing, later: Between, each: Sequence[Mixing]) -> tuple[Mixing, int] | None:
    """Where its lines have made these tensors the same, if their copies are counted from what differs now."""
    if not (later.is_next and later.lines and later.based):
        return None
    before = ((other, one) for other in each for one in other.between if one.lines == later.lines and one.meeting)
    for other, one in before:
        is_earlier = one.number < later.number if other is mixing else other.optimizer < mixing.optimizer
        if is_earlier and _keys(other, one.even) >= _keys(mixing, later.based):
            return other, one.number
    return None


# --- copies


def _are_kept(copies: Mapping[Ranks, Became], *but: How) -> bool:
    """Whether all are what the step before has left, or are what they are in these ways."""
    return all(one.how == "kept" or one.how in but for one in copies.values())


def _missing(copies: Mapping[Ranks, Became]) -> Ranks:
    """The ranks that are apart where all others are the same."""
    taken = {(one.over, one.shares) for one in copies.values() if one.how in ("mixed", "evened")}
    apart = {ranks for ranks, one in copies.items() if one.how in ("kept", "passed")}
    is_all = len(taken) == 1 and not any(one.how == "written" for one in copies.values())
    return frozenset[int]().union(*apart) if is_all else frozenset()


def _is_of_all(copies: Mapping[Ranks, Became]) -> bool:
    """Whether what some copies of a tensor are then was made of all of them."""
    return any(one.over >= frozenset[int]().union(*copies) for one in copies.values())


def _joined(sets: Sequence[Ranks]) -> list[Ranks]:
    """Sets that have a rank in common, together."""
    return sorted({exchanges.closure(one, lambda _: sets) for one in sets if one}, key=min)


def _is_across(ranks: Ranks, sets: Sequence[Ranks]) -> bool:
    """Whether these are in several of the sets."""
    return sum(bool(ranks & one) for one in sets) > 1


def _keys(mixing: Mixing, places: Collection[int]) -> set[tuple[str, tuple[int, ...]]]:
    return {(mixing.family.tensors[place].path, mixing.family.tensors[place].shape) for place in places}
