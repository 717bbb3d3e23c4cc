"""R6 for a second model: under every name it takes over the same share of the model that it follows, at every use."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from ddpcheck.facts.followers import Follower, Share, Source, Use

Pattern = Literal["left out", "other time", "other name", "other start"]
"""Tensors take over nothing where others do; what the model was at another use; a tensor of another name. The whole
began as a copy of another model."""
TWICE = 2
"""What happens at fewer uses, or to fewer tensors, may be meant."""


class Deviation(NamedTuple):
    """Tensors of a follower that do not take over what its others do."""

    pattern: Pattern
    follower: Follower
    names: list[str]
    of: Source | None
    """What the first of them takes over instead."""
    share: float
    """Of the trained model, in the others."""
    first: Use
    uses: int
    """Those in which others have taken over something, and the first of these not the same."""


class Followed(NamedTuple):
    """What was found of one follower."""

    follower: Follower
    uses: Mapping[int, Share]
    """By steps: those in which all tensors that show it took over the same, or some other ones did not."""
    deviations: list[Deviation]


class _Apart(NamedTuple):
    use: Use
    share: float
    pattern: Pattern
    of: Source | None


def following(followers: Sequence[Follower]) -> list[Followed]:
    """Compare what each tensor takes over with what others do: of each follower, of the model that it follows most."""
    best: dict[tuple[tuple[int, ...], int], tuple[tuple[int, int], Followed]] = {}
    for one in followers:
        taken, found = _following(one)
        if taken > best.get((one.ranks, one.model), ((0, 0), found))[0]:
            best[one.ranks, one.model] = taken, found
    each = [found for _, found in best.values()]
    return [found._replace(uses=_on_all_ranks(found, followers)) for found in each]


def _following(follower: Follower) -> tuple[tuple[int, int], Followed]:
    """How much it follows this model, in uses and tensors, and what was found."""
    taken: Counter[str] = Counter()
    nearer: Counter[str] = Counter()
    missed: dict[str, list[_Apart]] = defaultdict(list)
    uses: dict[int, Share] = {}
    exact = 0
    for use in follower.uses:
        common = _common(follower, use)
        if common is None:
            nearer.update(_drifting(follower, use, missed))
            continue
        is_earlier, share = common
        exact += 1
        is_whole = not follower.unpaired & use.used
        for name, other in follower.names.items():
            source = Source(follower.trained, other, is_earlier)
            own = use.share(name, source)
            if own is not None and own.is_alike(share):
                taken[name] += 1
            elif name in use.used and (one := _instead(follower, name, use, own, is_earlier, share)) is not None:
                missed[name].append(one)
                is_whole = False
            elif name in use.used and use.shows(name, source):
                is_whole = False
        if is_whole:
            uses[use.steps] = share
    followed = taken + nearer
    if sum(times >= TWICE for times in followed.values()) < TWICE:
        return (0, 0), Followed(follower, {}, [])
    patterns: dict[Pattern, list[str]] = defaultdict(list)
    for name, each in missed.items():
        kinds = {one.pattern for one in each}
        # Which moment most are of is another one where it is not known what the model was at the use before.
        most = len(each) if kinds == {"other time"} else TWICE
        if len(each) >= TWICE and taken[name] < most and len(kinds) == 1:
            patterns[kinds.pop()].append(name)
    apart = {name: missed[name] for names in patterns.values() for name in names}
    for one in (one for its in apart.values() for one in its):
        uses.setdefault(one.use.steps, Share(one.share, 0.0))
    deviations = [_deviation(follower, pattern, names, apart[names[0]]) for pattern, names in patterns.items()]
    if len(follower.begun_as) == 1 and follower.trained not in follower.begun_as and len(uses) >= TWICE:
        first = next(use for use in follower.uses if use.steps in uses)
        whole = _Apart(first, uses[first.steps].share, "other start", None)
        deviations = [_deviation(follower, "other start", list(follower.names), [whole] * len(uses))]
        uses = {}
    return (exact, len(followed)), Followed(follower, uses, deviations)


def _common(follower: Follower, use: Use) -> tuple[bool, Share] | None:
    """The share that tensors have taken over, and of which moment of the model; None where none do, or just one."""
    best: tuple[int, bool, Share] | None = None
    for is_earlier in (False, True):
        each = [
            share
            for name, other in follower.names.items()
            if (share := use.share(name, Source(follower.trained, other, is_earlier))) is not None
        ]
        for one in each:
            alike = 0 if one.is_none else sum(one.is_alike(other) for other in each)
            if alike >= TWICE and (best is None or alike > best[0]):
                best = alike, is_earlier, one
    return best[1:] if best is not None else None


def _drifting(follower: Follower, use: Use, missed: dict[str, list[_Apart]]) -> list[str]:
    """Tensors that have come nearer to the trained ones, by how much is not known; and those that were left out."""
    written = {name: other for name, other in follower.names.items() if name in use.written}
    share = use.drift(written, follower.trained) if len(written) >= TWICE else None
    if share is None or share.share <= share.error:
        return []
    for name, other in follower.names.items():
        own = use.share(name, Source(follower.trained, other))
        if name in use.used and own is not None and own.is_none and name not in written:
            missed[name].append(_Apart(use, share.share, "left out", None))
    return list(written)


def _instead(
    follower: Follower, name: str, use: Use, own: Share | None, is_earlier: bool, share: Share
) -> _Apart | None:
    """What a tensor has taken over instead; None where that does not show."""
    if own is not None and own.is_none:
        return _Apart(use, share.share, "left out", None) if abs(share.share) > own.error + share.error else None
    for source in use.sources(name, follower.trained):
        other = use.share(name, source)
        if other is None or other.is_none or not other.is_alike(share):
            continue
        if source.name != follower.names[name]:
            return _Apart(use, share.share, "other name", source)
        if source.is_earlier is not is_earlier:
            return _Apart(use, share.share, "other time", source)
    return None


def _deviation(follower: Follower, pattern: Pattern, names: list[str], each: list[_Apart]) -> Deviation:
    first = each[0]
    return Deviation(pattern, follower, names, first.of, first.share, first.use, len(each))


def _on_all_ranks(found: Followed, followers: Sequence[Follower]) -> Mapping[int, Share]:
    """The uses in which it follows on all ranks: where it does on some alone, what it was to do is not known."""
    one = found.follower
    idle = {
        use.steps
        for other in followers
        if (other.model, other.trained) == (one.model, one.trained) and other.ranks != one.ranks
        for use in other.uses
        if use.steps in found.uses and _takes_nothing(other, use)
    }
    return {steps: share for steps, share in found.uses.items() if steps not in idle}


def _takes_nothing(follower: Follower, use: Use) -> bool:
    shares = [use.share(name, Source(follower.trained, other)) for name, other in follower.names.items()]
    return any(shares) and all(share is None or share.is_none for share in shares)
