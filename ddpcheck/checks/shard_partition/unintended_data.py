"""Training data that are not what was meant: a sampler that has lost its place, inputs that all ranks share."""

from __future__ import annotations

from collections.abc import Sequence

from ddpcheck import evidence as ev
from ddpcheck.judging.loader_passes import Pass
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import Finding

_WITHOUT_MEANING = ("RandomSampler", "SequentialSampler", "DistributedSampler", "")
"""Samplers whose order nobody has thought about."""
ENOUGH = 3
"""Forwards that were looked at."""
FEW = "ranks gave their models the same inputs in some of the forwards compared, and it was not seen whether on purpose"
INPUTS = "no DataLoader was seen, and different inputs of the ranks' models do not show how samples are shared out"
"""Why nothing was checked."""


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


def same_inputs(world: World, groups: Sequence[Sequence[int]]) -> tuple[list[Finding], str]:
    """Training without a DataLoader in which every rank's model is given the same, step after step.

    And why nothing was said of inputs that were compared: whether the samples in
    them are shared out is not known where they differ, either.
    """
    findings = []
    because = ""
    for group in groups:
        given = [
            {(one.wrapper, one.number): one for one in rank.of(ev.Inputs) if one.digest}
            for rank in world
            if rank.rank in group
        ]
        if len(given) < 2:
            continue
        common = sorted(set(given[0]).intersection(*given[1:]))
        equal = [key for key in common if len({by_place[key].digest for by_place in given}) == 1]
        told = len(common) >= ENOUGH and len(equal) >= 0.9 * len(common)
        because = because or (FEW if equal else INPUTS if common else "")
        if told:
            rank = next(rank for rank in world if rank.rank in group)
            wrapper, _ = equal[0]
            finding = Finding(
                rule="same-inputs-on-ranks",
                severity="warning",
                ranks=tuple(group),
                subject=f"the inputs of wrapper {wrapper}",
                expected="other samples on every rank",
                found="the same inputs on all ranks in nearly all forwards compared",
                cause="every rank reads or draws the same batch, so that more ranks train on no more data",
                advice="Let each rank take its own part of the data, or draw with a seed that depends on the rank.",
                where=rank.where(given[0][equal[0]].site),
                links=(f"wrapper {wrapper}",),
            )
            findings.append(finding)
    return findings, because
