"""Where in the source two ranks have gone different ways: the condition, `break` or `return` between their calls.

Both ranks have come to their calls by a chain of lines. Up to some function the chains are the same; in it, or in what
it has called, lies what made one rank skip the other's call. That is read from the text of these functions alone, so
that it is a likely cause, and none where several places are as likely.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ddpcheck import evidence as ev
from ddpcheck.judging.control_flow import Branch, Step, flow_of
from ddpcheck.judging.world import Rank
from ddpcheck.vocabulary.model import CallSite, Struct

FEW = 2
"""Places that are named together, where there are not more of them."""


class Turn(Struct, frozen=True, kw_only=True):
    """A place at which a rank went another way, or one of two."""

    branches: tuple[Branch, ...]
    file: str
    function: str
    inside: bool
    """The rank whose call this is about has gone in (or on) there, and not the other."""

    @property
    def where(self) -> CallSite:
        return CallSite(file=self.file, line=self.branches[0].line, function=self.function)

    def __str__(self) -> str:
        """``the `break` under `if stop:` (train.py:41)``; of several, the file is named once."""
        first, *others = self.branches
        word = "and" if self.around else "or"
        return f" {word} ".join([f"{first} ({self.file}:{first.line})", *(f"{b} (line {b.line})" for b in others)])

    @property
    def around(self) -> bool:
        """The call stands under all of these; otherwise they are ways to come past it, of which one was gone."""
        return all(branch.kind in ("condition", "loop") for branch in self.branches)


class _Found(Struct, frozen=True, kw_only=True):
    """One candidate: a place by which a rank has skipped the call of another one."""

    branch: Branch
    site: ev.Site
    skips: int
    """Which of the two calls it leads past: 0 for the first one's."""


class Frames:
    """The chain of lines that has led a rank to a call, each with its function's text."""

    def __init__(self, rank: Rank, site: int) -> None:
        self._rank = rank
        self._passes: set[tuple[str, int]] | None = None
        self.sites = rank.process.calls_to(site)
        self._flows = [flow_of(rank.process.body(s), s.first, s.function) for s in self.sites]

    def around(self, place: int) -> tuple[Step, ...]:
        """The compound statements around a line of the chain."""
        flow = self._flows[place]
        return flow.around(self.sites[place].line) if flow is not None else ()

    def skipped_at(self, place: int, steps: Sequence[Step], early: bool) -> list[Branch]:
        """How a rank may have come past a line of the chain: by what is around it, or by leaving its function early."""
        found: list[Branch] = []
        for step in steps:
            found += [step.branch] if step.branch is not None else []
            found += (exit for exit in step.exits if exit.kind != "loop" or exit.line not in self._even(place))
            # Who has left out a turn has come to the end of the loop with fewer calls.
            found += (skip for skip in step.skips if skip.line <= self.sites[place].line)
        flow = self._flows[place]
        return [*found, *flow.returns(self.sites[place].line)] if early and flow is not None else found

    def _even(self, place: int) -> set[int]:
        """Lines of loops over a DataLoader: whether it gave the ranks as many batches is known, and judged by that."""
        file = self.sites[place].file
        if self._passes is None:
            lines = (self._rank.where(one.site) for one in self._rank.of(ev.Pass))
            self._passes = {(where.file, where.line) for where in lines if where is not None}
        return {line for other, line in self._passes if other == file}

    def known(self, place: int) -> bool:
        """Whether the text of the function is on record."""
        return self._flows[place] is not None


def turn(one: tuple[Rank, int], other: tuple[Rank, int]) -> Turn | None:
    """Where the ways to two ranks' calls part; ``inside`` tells whether the first one has gone in there."""
    chains = Frames(*one), Frames(*other)
    first = _first_difference(chains[0].sites, chains[1].sites)
    shared = min(len(chain.sites) for chain in chains)
    if first is None:
        return None
    again = any(step.kind == "loop" for place in range(first) for step in chains[0].around(place))
    if first == shared:  # one has gone on from the very line of the other's call
        longer = max((0, 1), key=lambda which: len(chains[which].sites))
        return _chosen(_deeper(chains[longer], first, longer))
    if not all(chain.known(first) for chain in chains) or chains[0].sites[first].first != chains[1].sites[first].first:
        return None
    around = [chain.around(first) for chain in chains]
    common = _common(*around)
    if (apart := _arms_of_one(around, common)) is not None:
        return Turn(branches=(apart,), file=chains[0].sites[first].file, function=chains[0].sites[first].function,
                    inside=around[0][common].arm in ("body", "expression"))  # fmt: skip
    again = again or any(step.kind == "loop" for step in around[0][:common])
    lines = [chain.sites[first].line for chain in chains]
    behind = 0 if lines[0] < lines[1] else 1
    found = _skips(chains[behind], first, around[behind][common:], behind)
    if again:
        ahead = 1 - behind
        found += _skips(chains[ahead], first, around[ahead][common:], ahead)
        loops = [step for step in around[0][:common] if step.kind == "loop"]
        found += [
            _Found(branch=skip, site=chains[ahead].sites[first], skips=ahead)
            for skip in (loops[-1].skips if loops else ())
            if lines[behind] <= skip.line <= lines[ahead]
        ]
    return _chosen(found)


def past(rank: Rank, site: int) -> Turn | None:
    """How another rank may have come past a call for good: it has ended without it."""
    return _chosen(_deeper(Frames(rank, site), 0, 0))


def is_for_some_ranks(rank: Rank, site: int) -> bool | None:
    """Whether a condition that names a rank stands around a line of the chain; None where the text is not known."""
    frames = Frames(rank, site)
    places = range(len(frames.sites))
    if any(step.branch is not None and step.branch.about_ranks for place in places for step in frames.around(place)):
        return True
    return False if places and all(map(frames.known, places)) else None


def gone_on(rank: Rank, site: int) -> Turn | None:
    """How another rank may have gone on to the next turn of the innermost loop without a call."""
    frames = Frames(rank, site)
    found: list[_Found] = []
    for place in reversed(range(len(frames.sites))):
        if not frames.known(place):
            return None
        steps = frames.around(place)
        loops = [at for at, step in enumerate(steps) if step.kind == "loop"]
        inside = steps[loops[-1] + 1 :] if loops else steps
        branches = frames.skipped_at(place, inside, early=not loops)
        if loops:
            branches += [skip for skip in steps[loops[-1]].skips if skip.line <= frames.sites[place].line]
        found += [_Found(branch=branch, site=frames.sites[place], skips=0) for branch in branches]
        if loops:
            break
    return _chosen(found)


def _first_difference(one: Sequence[ev.Site], other: Sequence[ev.Site]) -> int | None:
    """The first place at which the chains are at other lines; that of the shorter one's end; None for equal ones."""
    for place, (mine, its) in enumerate(zip(one, other, strict=False)):
        if (mine.file, mine.function, mine.line) != (its.file, its.function, its.line):
            return place if (mine.file, mine.function) == (its.file, its.function) else None
    return None if len(one) == len(other) else min(len(one), len(other))


def _common(one: Sequence[Step], other: Sequence[Step]) -> int:
    """How many of the statements around two lines are the same, with the same arm."""
    same = 0
    for mine, its in zip(one, other, strict=False):
        if (mine.line, mine.arm) != (its.line, its.arm):
            break
        same += 1
    return same


def _arms_of_one(around: Sequence[Sequence[Step]], common: int) -> Branch | None:
    """The condition of which one rank is in this arm, and the other one in that."""
    if not all(len(steps) > common for steps in around):
        return None
    mine, its = around[0][common], around[1][common]
    if mine.kind != "if" or mine.line != its.line:
        return None
    return mine.branch if mine.arm in ("body", "expression") else its.branch


def _skips(chain: Frames, place: int, steps: Sequence[Step], which: int) -> list[_Found]:
    """How the other rank may have come past a call from the function in which the ways part."""
    here = chain.skipped_at(place, steps, early=False)
    return [
        *(_Found(branch=branch, site=chain.sites[place], skips=which) for branch in here),
        *_deeper(chain, place + 1, which),
    ]


def _deeper(chain: Frames, place: int, which: int) -> list[_Found]:
    return [
        _Found(branch=branch, site=chain.sites[deep], skips=which)
        for deep in range(place, len(chain.sites))
        for branch in chain.skipped_at(deep, chain.around(deep), early=True)
    ]


def _chosen(found: Iterable[_Found]) -> Turn | None:
    """What is said of the candidates: the one that is about ranks, or the only ones there are."""
    found = list(dict.fromkeys(found))
    named = [one for one in found if one.branch.about_ranks] or found
    if not named or len(named) > FEW or len({(one.site.file, one.site.function, one.skips) for one in named}) > 1:
        return None
    site = named[0].site
    return Turn(
        branches=tuple(one.branch for one in named), file=site.file, function=site.function,
        inside=named[0].skips == 0,
    )  # fmt: skip
