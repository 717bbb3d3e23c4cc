"""Training data that are not what was meant: a sampler that another one has taken the place of."""

from __future__ import annotations

from collections.abc import Sequence

from ddpcheck import evidence as ev
from ddpcheck.facts.passes import Pass
from ddpcheck.vocabulary.model import Finding

_WITHOUT_MEANING = ("RandomSampler", "SequentialSampler", "DistributedSampler", "")
"""Samplers whose order nobody has thought about."""


def sampler_lost(every: Sequence[Sequence[Pass]]) -> list[Finding]:
    """A sampler with a meaning that nobody goes through, while the training has torch's own over the same dataset."""
    found: dict[tuple[int, int], Finding] = {}
    for passes in every:
        used = {one.begun.loader for one in passes}
        for one in passes:
            loader = one.loader
            if loader is None or loader.sampler != "DistributedSampler" or not one.backwards:
                continue
            for other in one.rank.process.of(ev.Loader):
                if (
                    other.dataset_id == loader.dataset_id
                    and other.n < loader.n
                    and other.loader not in used
                    and other.sampler not in _WITHOUT_MEANING
                    and not other.distributed
                ):
                    found.setdefault((other.site, loader.site), _lost(every, one, loader, other))
    return list(found.values())


def _lost(every: Sequence[Sequence[Pass]], one: Pass, loader: ev.Loader, other: ev.Loader) -> Finding:
    rank = one.rank
    return Finding(
        rule="sampler-replaced",
        severity="warning",
        ranks=tuple(passes[0].rank.rank for passes in every if passes),
        subject=f"the {other.sampler}",
        expected=f"the order of the {other.sampler} that a loader over this {loader.dataset} was made with",
        found=f"training through a {loader.sampler} in its place, and no pass through the {other.sampler}",
        cause="a later loader over the same dataset has a sampler of its own",
        advice=f"Deal the order of the {other.sampler} out to the ranks (every world_size-th index of it, the same "
        "order on all ranks) in place of drawing another one.",
        where=rank.where(loader.sampler_site) or rank.where(loader.site),
        proof=rank.proof(other.site, one.begun.site),
        links=(f"loader {loader.loader}",),
    )
