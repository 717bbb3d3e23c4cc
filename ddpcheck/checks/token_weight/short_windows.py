"""The last window of a pass has fewer micro-batches than others, and each loss is divided as if it had as many."""

from __future__ import annotations

from collections import defaultdict

from ddpcheck import evidence as ev
from ddpcheck.judging import declared_windows
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import count

ENOUGH = 2
"""Windows that have as many micro-batches as the loss is divided by: then it is meant to be a mean over them."""
NEAR = 1e-3


def judge(world: World) -> list[Finding]:
    """A step is made on what the last batches of a loader have left, and their mean counts less than it should.

    Who scales the gradients of a short window once more, or leaves it out, has
    thought of it. One that is short for another reason, such as a batch that was
    left out, is not told from one that is meant.
    """
    found: dict[tuple[CallSite | None, int, int], list[tuple[Rank, list[ev.Window]]]] = defaultdict(list)
    for rank in world:
        for windows in declared_windows.by_optimizer(rank).values():
            number, short = _short(rank, windows)
            if short:
                site = rank.where(short[0].backward_site)
                found[site, number, _backwards(short[0])].append((rank, short))
    return [_finding(*about, each) for about, each in found.items()]


def _short(rank: Rank, windows: list[ev.Window]) -> tuple[int, list[ev.Window]]:
    """How many micro-batches make a window, and the last windows of passes that have fewer, divided alike."""
    numbers = {declared_windows.divided_by(one) for one in windows}
    number = numbers.pop() if len(numbers) == 1 else 0
    if not number or sum(_backwards(one) == number for one in windows) < ENOUGH:
        return 0, []
    left = {one.batches % number for one in rank.of(ev.PassEnded) if one.backwards == one.batches > number}
    short = [one for one in windows if _backwards(one) != number]
    told = all(_backwards(one) in left and one.factor is not None and abs(one.factor - 1) < NEAR for one in short)
    return number, short if told else []


def _backwards(window: ev.Window) -> int:
    """Those that go into the step: what came before a zero_grad() was left out."""
    zeroed = [place for place, one in enumerate(window.between, 1) if one.became == "zeroed"]
    return window.backwards - zeroed[-1] if zeroed and len(window.between) == window.backwards - 1 else window.backwards


def _finding(where: CallSite | None, number: int, left: int, each: list[tuple[Rank, list[ev.Window]]]) -> Finding:
    short = each[0][1]
    batches = count(left, "micro-batch", "micro-batches")
    return Finding(
        rule="short-last-window",
        ranks=tuple(sorted({rank.rank for rank, _ in each})),
        subject="the loss of the last window",
        severity="warning",
        step=short[0].number,
        count=len(short),
        expected=f"the {batches} that are left over for the last step of a pass to make one mean, as the {number} of "
        "every other step do",
        found=f"each loss to be divided by {number} there, too: that step takes {left}/{number} of the mean",
        cause="the loss is divided by the size of a whole window, which the loader's batches do not fill at the end",
        advice="Divide by the number of micro-batches that a window has, the last one of a pass included; or leave out "
        "what does not fill one, and call zero_grad().",
        where=where,
    )
