"""Why ranks have samples in common: what their samplers say of themselves."""

from __future__ import annotations

from collections.abc import Sequence

from ddpcheck.evidence.epochs import SamplerFacts

UNAWARE_ADVICE = "Give the DataLoader sampler=DistributedSampler(dataset), and leave its own shuffle off."
BUILT_ALIKE = (
    "Build the sampler after the process group exists, with the same seed on every rank, over a dataset whose "
    "order is the same everywhere, and call set_epoch with the same epoch."
)


def unaware(kind: str) -> str:
    """The cause where each rank goes through all of its dataset."""
    return f"{kind} knows nothing of ranks, so each rank goes through the whole dataset"


def why(samplers: Sequence[SamplerFacts], local_ranks: Sequence[int | None], same_data: bool) -> str:
    """What is wrong with samplers that know of ranks; ``same_data`` where an index is the same sample on all."""
    kind = samplers[0].kind
    ranks = [one.rank for one in samplers]
    if len(set(ranks)) < len(ranks):
        told = "; that is LOCAL_RANK where RANK is needed" if ranks == list(local_ranks) else ""
        return f"several ranks have a {kind} for the same rank ({', '.join(map(str, ranks))}){told}"
    replicas = {one.num_replicas for one in samplers}
    if replicas != {len(samplers)}:
        made = ", ".join(map(str, sorted(number for number in replicas if number is not None)))
        return f"{kind} was made for {made} ranks, and there are {len(samplers)}"
    for name in ("seed", "epoch", "shuffle"):
        values = [getattr(one, name) for one in samplers]
        if len(set(values)) > 1:
            return f"the ranks' samplers have different values of {name} ({', '.join(map(str, values))})"
    if not same_data:
        return "the datasets' orders differ: the ranks' indices are disjoint, but the same index is not the same sample"
    return f"{kind} gives the ranks indices in common"
