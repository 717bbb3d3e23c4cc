"""R2: every rank that contributes to a part of a tensor has a share in what all its holders step on, in each window.

Which share that is does not matter here: none, of a rank, of a backward() call, or of an earlier window again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from ddpcheck.facts.copies import Kind
from ddpcheck.facts.mixing import Mixing
from ddpcheck.facts.reductions import Answer, Family, Ranks, Sums
from ddpcheck.facts.sketches import are_alike
from ddpcheck.vocabulary.model import CallSite

Pattern = Literal["own", "some", "owner", "one", "skipped", "foreign", "lost", "unequal", "earlier", "again", "crossed"]
"""Holders step on their own contributions alone; on those of some of them; one steps for all, on its own alone; one
has the sum, and the others their own; all are added up at some steps, and not at others; ranks with other values are
in it; backward() calls are not; they count unequally; the gradient of the step before is; it alone is; what
ranks have contributed to another tensor is."""

Ground = Literal["wrapper", "copies", "declared", "computed", "joined", "dealt", "observed", "constant", "ignored"]
"""Why it must be complete: DDP is to reduce it; a mesh makes copies of it; FSDP has divided it; its module has read and
made the same on these ranks; they began with the same numbers, and something else of the model is added up over them,
or one dataset is dealt out to them; they began with the same numbers, or with one number; nothing says so, as the
program keeps it from the wrapper."""

UNSAID = ("observed", "constant", "ignored")
"""Grounds on which it may as well be meant: a window in which it is so is neither complete nor incomplete."""

ENOUGH = 3
"""Windows in which it is so, where one or two may be meant."""
OF_STEPPERS = ("again", "crossed")
"""Patterns that are each stepper's own: they say nothing of who has a share."""
OFTEN = 3
"""A repeated step is the program's way of stepping if at least one window of so many has one."""
NEARLY = 0.02
"""How far apart shares are, over the largest, that count alike."""


class Deviation(NamedTuple):
    """Tensors of a family of optimizers that are treated alike, and not completely."""

    family: Family
    pattern: Pattern
    ground: Ground
    tensors: list[int]
    holders: list[Ranks]
    """The ranks that have copies of each other, set by set."""
    over: list[Ranks]
    """The ranks whose contributions are added up, set by set."""
    windows: list[int]
    """The steps at which it is so."""
    of: int
    """The steps at which it is known."""
    answer: Answer
    """What the first of the gradients is made of."""
    line: CallSite | None
    cause: str = ""
    """``alone`` where each rank steps on its own, in no wrapper; ``elsewhere`` where the second step on one gradient is
    at another line than the first; of backward() calls, what became of the gradients between them."""

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(self.family.tensors[place].path for place in self.tensors))

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted(set().union(*self.holders)))


class Completeness(NamedTuple):
    """What the comparison of a family gave."""

    windows: set[tuple[int, int]]
    """Those of which the shares of several holders are known: an optimizer's number, and that of its step."""
    several: set[tuple[int, int]]
    """Those of which the shares of several backward() calls are."""
    deviations: list[Deviation]


_Seen = dict[Ranks, list[tuple[Sums, Answer]]]
"""By stepping ranks, what is known of one tensor, in the order of the steps."""


def completeness(mixing: Mixing) -> Completeness:
    """Compare who contributes with who has a share; copies that may meet between steps have it then."""
    family = mixing.family
    windows: set[tuple[int, int]] = set()
    several: set[tuple[int, int]] = set()
    found: dict[tuple[object, ...], Deviation] = {}
    for place, seen in _by_tensor(family).items():
        for deviation in (*_of_ranks(mixing, place, seen, windows), *_of_backwards(family, place, seen, several)):
            # Repeated steps, and tensors that are mixed, are reported together for all sets of holders.
            sets = [] if deviation.pattern in OF_STEPPERS else deviation.holders
            key = (deviation.pattern, deviation.ground, deviation.cause, tuple(map(tuple, map(sorted, sets))))
            if key in found:
                found[key].tensors.append(place)
                both = sorted({*found[key].windows, *deviation.windows})
                found[key] = found[key]._replace(windows=both, of=max(found[key].of, deviation.of, len(both)))
            else:
                found[key] = deviation
    unsaid = {number for one in found.values() if one.ground in UNSAID for number in one.windows}
    windows = {(optimizer, number) for optimizer, number in windows if number not in unsaid}
    return Completeness(windows, several, list(found.values()))


def _by_tensor(family: Family) -> Mapping[int, _Seen]:
    found: dict[int, _Seen] = defaultdict(lambda: defaultdict(list))
    for sums in family.windows:
        for (ranks, place), made in sums.by.items():
            found[place][ranks].append((sums, sums.answers[made.answer]))
    return found


# --- the ranks


class _Copy(NamedTuple):
    """What is known of one copy of a tensor."""

    ranks: Ranks
    """Those that step it between them."""
    holders: Ranks
    kind: Kind
    known: list[tuple[Sums, Answer]]
    broken: list[tuple[Sums, Answer]]
    """The windows in which a holder has contributed, and has no share."""

    @property
    def is_whole_again(self) -> bool:
        """Whether all are added up in a window after one in which they are not."""
        first = min((sums.number for sums, _ in self.broken), default=-1)
        return any(answer.over >= self.holders for sums, answer in self.known if sums.number > first)

    @property
    def is_ever_whole(self) -> bool:
        return any(answer.over >= self.holders for _, answer in self.known)


def _of_ranks(mixing: Mixing, place: int, seen: _Seen, compared: set[tuple[int, int]]) -> Iterator[Deviation]:
    family = mixing.family
    each: list[_Copy] = []
    for ranks, known in seen.items():
        holders, kind, _ = family.holders[place][min(ranks)]
        if len(holders) < 2:
            continue
        known = [one for one in known if holders <= one[0].ranks.keys()]  # else a contribution is not on record
        broken = [one for one in known if (one[1].without & holders) - ranks]
        whole = (sums for sums, answer in known if _is_whole(sums, answer, holders, place))
        compared |= {(family.optimizers[min(ranks)], sums.number) for sums in whole}
        if known:
            each.append(_Copy(ranks, holders, kind, known, broken))
    first = next((one for one in each if one.broken), None)
    if first is None or mixing.may_meet(place) or len({one.kind for one in each}) > 1:
        return
    idle = not first.holders <= frozenset[int]().union(*(one.ranks for one in each))
    # Copies that have parted contribute otherwise, whatever has parted them.
    is_known = idle or (
        first.kind == "beside" and not family.are_equal(place, first.holders, family.windows[0], "before")
    )
    if not is_known and not any(
        family.are_equal(place, one.holders, at[0], "before") for one in each for at in one.broken
    ):
        return
    pattern = _pattern(family, place, each)
    if pattern is None:
        return
    over = list(dict.fromkeys(answer.over for one in each for _, answer in one.broken))
    ground = _ground(family, place, first.kind, [one.holders for one in each])
    if ground == "dealt" and any(len([its for its in over if ranks & its]) > 1 for ranks in family.between):
        ground = "observed"
    is_wrapped = any(family.holders[place][min(one.ranks)].is_narrower for one in each)
    cause = "alone" if all(len(ranks) == 1 for ranks in over) and not is_wrapped else ""
    if ground not in UNSAID:
        compared |= {(family.optimizers[min(one.ranks)], sums.number) for one in each for sums, _ in one.broken}
    sums, answer = first.broken[0]
    sets = list(dict.fromkeys(one.holders for one in each))
    yield Deviation(
        family,
        pattern,
        ground,
        [place],
        sets,
        over,
        sorted({sums.number for one in each for sums, _ in one.broken}),
        len({sums.number for one in each for sums, _ in one.known}),
        answer,
        family.line(min(first.ranks), sums.number),
        cause,
    )


def _is_whole(sums: Sums, answer: Answer, holders: Ranks, place: int) -> bool:
    """Whether holders that have no part in a tensor have contributed zeros, or the very same as those who have."""
    other = {rank: sums.contributed(frozenset({rank}))[place] for rank in holders - answer.over}
    own = [sums.contributed(frozenset({rank}))[place] for rank in answer.over]
    return all(not one.any() or (own and all(are_alike(one, its) for its in own)) for one in other.values())


def _ground(family: Family, place: int, kind: Kind, sets: Sequence[Ranks]) -> Ground:
    if kind == "declared":
        return "copies" if family.is_mesh_copy(place) else "declared"
    if kind == "constant" and all(_are_like_ones_joined(family, place, holders) for holders in sets):
        return "joined"
    if kind in ("wrapper", "computed", "constant", "ignored"):
        return kind
    is_joined = kind == "beside" or all(any(holders <= ranks for ranks in family.joined) for holders in sets)
    if is_joined and not any(holders <= ranks for holders in sets for ranks in family.exchanging):
        return "joined"
    return "dealt" if family.dealt is not None else "observed"


def _are_like_ones_joined(family: Family, place: int, holders: Ranks) -> bool:
    """Whether other constants of this shape are added up over these ranks."""
    shape = family.tensors[place].shape
    return any(
        family.tensors[other].shape == shape
        and family.holders[other][min(ranks)].kind == "constant"
        and sums.answers[made.answer].over >= holders
        for sums in family.windows
        for (ranks, other), made in sums.by.items()
        if other != place
    )


def _pattern(family: Family, place: int, each: Sequence[_Copy]) -> Pattern | None:
    """Which it is; None where something else keeps the copies equal, or where it is not lasting."""
    always = all(len(one.broken) == len(one.known) for one in each)
    own = all(answer.over <= one.ranks for one in each for _, answer in one.broken)
    holders = frozenset[int]().union(*(one.holders for one in each))
    idle = holders - frozenset[int]().union(*(one.ranks for one in each))
    enough = max(len(one.known) for one in each) >= ENOUGH
    if idle:
        is_for_all = always and own and enough and not any(family.tensors[place].held[rank].stepped for rank in idle)
        return "owner" if is_for_all else None
    if any(family.are_equal(place, one.holders, sums, "after") for one in each for sums, _ in one.broken):
        return None
    if always:
        if not enough:
            return None
        if any(answer.over - one.holders for one in each for _, answer in one.broken):
            return "foreign"
        return "own" if own else "some"
    if not own:
        return None
    if all(one.is_ever_whole for one in each):
        return "skipped" if all(one.is_whole_again for one in each) else None
    is_one = all(len(one.broken) == len(one.known) or (one.is_ever_whole and not one.broken) for one in each)
    return "one" if is_one else None


# --- the backward() calls


def _of_backwards(family: Family, place: int, seen: _Seen, several: set[tuple[int, int]]) -> Iterator[Deviation]:
    found: dict[Pattern, list[tuple[Ranks, Sums, Answer]]] = defaultdict(list)
    known: set[int] = set()
    for ranks, windows in seen.items():
        for sums, answer in windows:
            rank = min(answer.over, default=min(ranks))
            is_several = len(sums.calls.get(rank, ())) > 1 and not answer.over & sums.moved
            if answer.earlier:
                found["earlier" if answer.over else "again"].append((ranks, sums, answer))
            elif answer.crossed:
                if _are_copies(family, place, answer) and _are_mixed(sums, answer):
                    found["crossed"].append((ranks, sums, answer))
            elif is_several and answer.lost:
                if _is_lost(family, sums, answer):
                    found["lost"].append((ranks, sums, answer))
            elif is_several and answer.weights and 1 - min(map(abs, answer.weights)) > NEARLY:
                found["unequal"].append((ranks, sums, answer))
            elif is_several:
                several.add((family.optimizers[min(ranks)], sums.number))
            if is_several:
                known.add(sums.number)
    for pattern, its in found.items():
        numbers = sorted({sums.number for _, sums, _ in its})
        is_of_calls = pattern in ("lost", "unequal")
        of = known if is_of_calls else {sums.number for windows in seen.values() for sums, _ in windows}
        if len(numbers) < ENOUGH or (pattern == "lost" and len(numbers) * 2 <= len(known)):
            continue
        if pattern == "again" and len(numbers) * OFTEN < len(of):
            continue
        ranks, sums, answer = its[0]
        cause, line = family.between_calls(min(ranks), sums.number) if is_of_calls else ("", None)
        if pattern == "again" and family.line(min(ranks), sums.number) != family.line(min(ranks), sums.number - 1):
            cause = "elsewhere"
        if _is_meant(family, pattern, cause, ranks):
            continue
        if pattern not in OF_STEPPERS:
            several |= {(family.optimizers[min(ranks)], number) for number in numbers}
        sets = list(dict.fromkeys(ranks for ranks, *_ in its))
        line = line or family.line(min(ranks), sums.number)
        yield Deviation(family, pattern, "copies", [place], sets, [answer.over], numbers, len(of), answer, line, cause)


def _is_meant(family: Family, pattern: Pattern, cause: str, ranks: Ranks) -> bool:
    """Whether it may be what the program means to do.

    What is scaled and zeroed between two backward() calls is a sum of the program's
    own, and so is a gradient of before that was not left there.
    """
    if pattern == "unequal":
        return cause in ("prepared", "zeroed", "lost")
    return pattern == "earlier" and not family.is_left_over(min(ranks))


def _are_copies(family: Family, place: int, answer: Answer) -> bool:
    """Whether all of these ranks hold copies of the tensor, and of those that it was mixed with."""
    return all(
        answer.over <= family.holders[one][rank][0]
        for one in {place, *(other for _, other in answer.crossed)}
        for rank in answer.over & family.holders[one].keys()
    )


def _are_mixed(sums: Sums, answer: Answer) -> bool:
    """Whether the other tensors have gradients of another tensor, too: one that is mixed alone may fit by chance."""
    crossed = {place for (_, place), made in sums.by.items() if sums.answers[made.answer].crossed}
    return all(other in crossed for _, other in answer.crossed)


def _is_lost(family: Family, sums: Sums, answer: Answer) -> bool:
    """Whether a call has no share that nothing else was stepped on, while others of its line have.

    Another line's loss may be meant for something else, as one that measures.
    """
    for rank in answer.over:
        calls, sites = sums.calls.get(rank, []), sums.sites.get(rank, [])
        counted = {site for turn, site in enumerate(sites) if turn not in answer.lost}
        for turn in answer.lost:
            if turn < len(calls) and sites[turn] in counted and calls[turn] not in family.used.get(rank, set()):
                return True
    return False
