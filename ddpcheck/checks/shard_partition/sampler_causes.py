"""Why ranks have samples in common: what their samplers say of themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ddpcheck.evidence.epochs import SamplerFacts

UNAWARE_ADVICE = "Give the DataLoader sampler=DistributedSampler(dataset), and leave its own shuffle off."
BUILT_ALIKE = (
    "Build the sampler after the process group exists, with the same seed on every rank, over a dataset whose "
    "order is the same everywhere, and call set_epoch with the same epoch."
)


def unaware(kind: str, same_data: bool = True) -> str:
    """The cause where each rank goes through all of its dataset; ``same_data`` where this is seen to be the same."""
    whole = "the whole dataset" if same_data else "the whole of its dataset"
    return f"{kind} knows nothing of ranks, so each rank goes through {whole}"


class Why(NamedTuple):
    """A likely cause, and what to do about it."""

    cause: str
    fix: str


def why(samplers: Sequence[SamplerFacts], local_ranks: Sequence[int | None], in_common: bool | None) -> Why:
    """What is wrong with samplers that know of ranks; ``in_common``: ranks had equal indices, where that is known."""
    kind = samplers[0].kind
    ranks = [one.rank for one in samplers]
    if len(set(ranks)) < len(ranks):
        told = "; that is LOCAL_RANK where RANK is needed" if ranks == list(local_ranks) else ""
        return Why(
            f"several ranks have a {kind} for the same rank ({', '.join(map(str, ranks))}){told}",
            f"Make the {kind} after init_process_group, with rank=dist.get_rank() on each rank.",
        )
    replicas = {one.num_replicas for one in samplers}
    if replicas != {len(samplers)}:
        made = ", ".join(map(str, sorted(number for number in replicas if number is not None)))
        return Why(
            f"{kind} was made for {made} ranks, and there are {len(samplers)}",
            f"Make the {kind} after init_process_group, with num_replicas=dist.get_world_size().",
        )
    for name, fix in (
        ("seed", f"Give the {kind} the same seed on every rank: only then do their parts fit together."),
        ("epoch", "Call set_epoch with the same epoch on every rank."),
        ("shuffle", f"Give the {kind} the same shuffle on every rank."),
    ):
        values = [getattr(one, name) for one in samplers]
        if len(set(values)) > 1:
            return Why(f"the ranks' samplers have different values of {name} ({', '.join(map(str, values))})", fix)
    if in_common is None:
        return Why("", BUILT_ALIKE)
    if not in_common:
        return Why(
            "the datasets' orders differ: the ranks' indices are disjoint, and equal samples have different indices",
            "Make the dataset in the same order on every rank: sort its files, and split and shuffle it by a "
            "generator with the same seed.",
        )
    return Why(f"{kind} gives the ranks indices in common", BUILT_ALIKE)
