"""Do all ranks evaluate the same weights of a model that no wrapper holds, such as an average of them?"""

from __future__ import annotations

from ddpcheck import evidence as ev
from ddpcheck.judging import step_alignment
from ddpcheck.judging.evaluation_alignment import Evaluation, Model, evaluations, is_compared, model_of
from ddpcheck.judging.first_forwards import named
from ddpcheck.judging.world import World
from ddpcheck.judging.zero_digests import covers
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing


def judge(world: World) -> tuple[int, list[Finding]]:
    """Compare such models between the ranks that evaluate them: how often, and what was found."""
    checked = 0
    models: dict[Model, Finding | None] = {}
    for wrapper, records in evaluations(world):
        # A wrapped module is compared after its steps.
        if wrapper is not None or not is_compared(records) or _may_be_stages(records):
            continue
        rank, one = records[0]
        tensors = named(rank, one.module, one.parameters.names)
        checked += covers(tensors, [it.parameters.digests for _, it in records])
        model = model_of(records)
        models[model] = models.get(model) or _finding(records)
    return checked, [finding for finding in models.values() if finding is not None]


def _may_be_stages(records: Evaluation) -> bool:
    """Whether these ranks send each other tensors: then each may have a part of one model."""
    ranks = {rank.rank for rank, _ in records}
    return any(call.op in ev.PAIRWISE and call.peer in ranks for rank, _ in records for call in rank.of(ev.Call))


def _finding(records: Evaluation) -> Finding | None:
    first = records[0][1]
    apart = step_alignment.differing([one.parameters.digests for _, one in records])
    if not apart or first.wrapper is not None:
        return None
    ranks = [rank.rank for rank, _ in records]
    odd = step_alignment.odd_ranks([one.parameters.digests for _, one in records], apart, ranks)
    names = [first.parameters.names[p] for p in apart]
    return Finding(
        rule="different-evaluated-copy",
        severity="warning",  # without a wrapper, it may well be each rank's own
        ranks=odd,
        subject=f"the {first.kind} that is evaluated",
        expected="all ranks to hold the same parameters of a model that all of them evaluate",
        found=f"{len(names)} of {count(len(first.parameters.names), 'parameter')} to differ: {listing(names)}",
        cause="it was built or updated on each rank by itself, and no wrapper has brought the ranks together",
        advice="Wrap the model (or broadcast its state) before its first use; update copies from wrapped models.",
        where=next((r.where(one.site) for r, one in records if r.rank in odd), None),
        links=(f"model {first.module}",),
    )
