"""Do the optimizers hold the parameters that the models have? Judge of optimizer-coverage."""

from __future__ import annotations

from collections import Counter
from math import prod

from ddpcheck import evidence as ev
from ddpcheck.checks.optimizer_coverage import emptied, state_wholes, unstepped
from ddpcheck.judging.tensor_kinds import shape_of
from ddpcheck.judging.world import Judged, Rank, World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing


def judge(world: World) -> Judged:
    """Compare what each optimizer holds with what the models have when it steps."""
    checked = 0
    stale: dict[str, list[tuple[Rank, ev.Optimizer, ev.LeftOut]]] = {}
    for rank in world:
        left = {(one.optimizer, one.number): one for one in rank.of(ev.LeftOut)}
        for described in rank.of(ev.Optimizer):
            # Around a forward of DTensors that DDP was given as plain tensors, a module has others in their place.
            known = [one for one in described.parameters if one.model is not None or one.reduced]
            checked += bool(known)
            record = left.get((described.optimizer, described.number))
            if record is not None and _replaces(described, record):
                checked += not known
                stale.setdefault(str(rank.where(described.site)), []).append((rank, described, record))
    findings = [_finding(each) for each in stale.values()]
    for part in (state_wholes, unstepped, emptied):
        findings += part.findings(world)
    return Judged(
        checked=checked,
        of=sum(len(rank.of(ev.Optimizer)) for rank in world),
        findings=tuple(findings),
        skipped_because="" if checked else "ddpcheck saw no optimizer with a parameter of a module that was called",
    )


def _replaces(described: ev.Optimizer, left: ev.LeftOut) -> bool:
    """Whether what nobody steps has the elements of what is stepped in vain.

    Tensors of which a model is nothing but a function, as in a hypernetwork,
    are no parameters of it, and are stepped rightly.
    """
    mine = [prod(shape_of(described.parameters[place].kind)) for place in left.stale]
    theirs = [prod(shape_of(kind)) for kind in left.kinds]
    same = not Counter(mine) - Counter(theirs)
    flat = all(name.endswith("_flat_param") for name in left.names)
    return same or flat


def _finding(each: list[tuple[Rank, ev.Optimizer, ev.LeftOut]]) -> Finding:
    rank, described, left = each[0]
    total = len(described.parameters)
    return Finding(
        rule="stale-parameters",
        ranks=tuple(sorted({one.rank for one, _, _ in each})),
        subject=left.names[0],
        step=left.number,
        expected=f"the {described.kind} to hold the parameters that the model has when it steps",
        found=f"{len(left.stale)} of {count(total, 'tensor')} in it that no module has as a parameter any more, while "
        f"{count(len(left.names), 'trainable parameter')} with a gradient "
        f"{'is' if len(left.names) == 1 else 'are'} in no optimizer: {listing(left.names)}",
        cause="the optimizer was given the parameters that the model had before it was sharded, wrapped or gathered",
        advice="Build the optimizer last, from the parameters of the sharded or wrapped model.",
        where=rank.where(described.site),
        links=(f"optimizer {described.optimizer}",),
    )
