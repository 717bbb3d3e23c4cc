"""Samples that come to no rank in an epoch, and those that come to several: what padding and dropping explain."""

from __future__ import annotations

from collections.abc import Mapping

from ddpcheck import evidence as ev
from ddpcheck.checks.shard_partition.causes import UNAWARE, loop_lines, place, sampler_cause, subject
from ddpcheck.facts.datasets import Identity
from ddpcheck.facts.passes import Line, Pass
from ddpcheck.vocabulary.model import Finding, Struct
from ddpcheck.vocabulary.wording import count

SOME = 0.12
"""The part of the dataset that batches of a sampler's own making may leave out: each bucket has a last one."""
IN_PART = "samples came to no rank in an epoch, and it was not seen whether the sampler leaves them out on purpose"
"""Why nothing was checked."""
_LEAVE_OUT = (*UNAWARE, "SubsetRandomSampler", "WeightedRandomSampler")
"""torch's samplers that know of no ranks, or leave samples out on purpose."""


class Epoch(Struct, frozen=True, kw_only=True):
    """What a sampler of the user's own has given all ranks in one round of passes, each to its end."""

    size: int
    """Of the dataset."""
    given: frozenset[int]
    again: int
    """How often a rank came to a sample that it had had already."""
    batch: int
    """The samples of the largest batch."""
    ranks: int
    buckets: bool
    """It makes whole batches."""

    @property
    def padding(self) -> int:
        """How many samples may come twice, so that all ranks have equally many, or full batches."""
        return -self.size % (self.ranks * self.batch)

    @property
    def dropped(self) -> float:
        """Fewer than this may be left out: an incomplete batch of each rank."""
        return self.ranks * self.batch + (SOME * self.size if self.buckets else 0)


def own_epoch(passes: Mapping[int, Pass]) -> Epoch | None:
    """What a sampler of the user's own gave; None where another one did, or where not all of it is known."""
    first = next(iter(passes.values())).loader
    if first is None or not first.size or not all(one.batches for one in passes.values()):
        return None
    for one in passes.values():
        loader = one.loader
        if loader is None or loader.size != first.size or loader.repeats or loader.sampler in _LEAVE_OUT:
            return None
        if not one.whole or (loader.sampler == "DistributedSampler" and not loader.batch_sampler):
            return None
    places = [[s.place for s in one.samples if s.place is not None] for one in passes.values()]
    if any(len(given) < len(one.samples) for given, one in zip(places, passes.values(), strict=True)):
        return None
    return Epoch(
        size=first.size,
        given=frozenset(place for given in places for place in given),
        again=sum(len(given) - len(set(given)) for given in places),
        batch=max(b.samples for one in passes.values() for b in one.batches),
        ranks=len(passes),
        buckets=bool(first.batch_sampler),
    )


def is_beyond_padding(epoch: Epoch, surplus: int) -> bool:
    """Whether shares of the whole dataset overlap by more than would even them out."""
    covers = epoch.size - len(epoch.given) < epoch.dropped
    return covers and not epoch.again and not epoch.buckets and surplus > epoch.padding


def in_part(line: Line, epochs: Mapping[int, Epoch], identity: Identity) -> set[int]:
    """The numbers of the epochs in which samples came to no rank that nothing is known to explain."""
    if identity.different or _is_shared(line):
        return set()
    return {
        number
        for number, epoch in epochs.items()
        if epoch.again < epoch.ranks * epoch.batch and epoch.size - len(epoch.given) >= epoch.dropped
    }


def _is_shared(line: Line) -> bool:
    """Whether another line makes a loader over the same dataset: one for validation has the rest."""
    loader = line.loader
    return loader is not None and any(
        other.dataset_id == loader.dataset_id and other.site != loader.site
        for other in line.first.rank.process.of(ev.Loader)
    )


def left_out(line: Line, passes: Mapping[int, Pass]) -> Finding | None:
    """What torch's own sampler leaves out beyond what it and its loader may drop."""
    loaders = [one.loader for one in passes.values()]
    first = loaders[0]
    if first is None or first.size is None or not all(one.whole for one in passes.values()):
        return None
    if any(
        one is None or one.sampler != "DistributedSampler" or one.batch_size is None or one.size != first.size
        for one in loaders
    ):
        return None
    indices = {s.place for one in passes.values() for s in one.samples if s.place is not None}
    if not indices:
        return None
    world = len(passes)
    allowed = first.size % world if first.sampler_drops else 0
    if first.drop_last:
        allowed += world * ((first.batch_size or 1) - 1)
    missing = first.size - len(indices)
    if missing <= allowed:
        return None
    example = next(i for i in range(first.size) if i not in indices)
    ones = {rank: one.loader for rank, one in passes.items()}
    known = [one for one in loaders if one is not None]
    return Finding(
        rule="missing-samples",
        ranks=tuple(passes),
        subject=subject(first),
        expected="each sample of the dataset in the epoch of some rank",
        found=f"{missing:,} of {count(first.size, 'sample')} on no rank; the first is sample {example}",
        cause=sampler_cause(passes, ones).cause if {one.replicas for one in known} != {world} else "",
        advice="Make the sampler for as many ranks as there are, each with its own rank from 0 to world_size - 1.",
        where=place(line, ones),
        proof=loop_lines(line, tuple(passes)),
        links=(line.link,),
    )
