"""Do the ranks hold the same parameters after an exchange that has brought them together before?"""

from __future__ import annotations

from ddpcheck.judging.brought_together import Meeting, meetings
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing


def judge(world: World) -> tuple[int, list[Finding]]:
    """Compare what exchanges at the same lines come to: how often, and what was found.

    Whoever averages parts in turn, or mixes the average into what a rank has,
    never brings all parameters together: of that nothing is said. Nor where some
    ranks hold the same then: a round may be of some ranks alone.
    """
    checked = 0
    whole: dict[object, Meeting] = {}
    parted: dict[object, list[Meeting]] = {}
    for one in meetings(world):
        key = (one.lines, tuple(p.kind for p in one.optimizer.described[0].parameters))
        if one.met and not one.apart:
            checked += 1
            whole.setdefault(key, one)
        elif key in whole and one.apart and not one.met and not one.of_some:
            parted.setdefault(key, []).append(one)
    return checked, [_finding(whole[key], later) for key, later in parted.items()]


def _finding(before: Meeting, later: list[Meeting]) -> Finding:
    first = later[0]
    optimizer = first.optimizer
    parameters = optimizer.described[0].parameters
    names = [parameters[place].name for place in sorted(first.apart)]
    again = optimizer is not before.optimizer
    return Finding(
        rule="unequal-after-averaging",
        severity="warning",
        ranks=tuple(rank.rank for rank in optimizer.ranks),
        subject=names[0],
        step=first.number,
        expected="all ranks to hold the same parameters after what the program exchanges at this line, as "
        f"{'with the optimizer before, ' if again else ''}when step {before.number} began",
        found=f"{len(names)} of {count(len(parameters), 'parameter')} to differ when step {first.number} began: "
        f"{listing(names)}",
        cause="the ranks count the change that they have in common from weights that differ"
        + (", such as a copy that was made anew after a load" if again else ""),
        advice="Keep the weights from which changes are counted the same on all ranks: broadcast them, and save and "
        "load them with the rest.",
        where=next((line for line in first.lines if line is not None), None),
        count=len(later),
        links=(f"optimizer {optimizer.number}",),
    )
