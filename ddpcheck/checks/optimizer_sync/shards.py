"""Ranks that hold the shards of one model step all of them by the same learning rate."""

from __future__ import annotations

from collections import defaultdict
from itertools import accumulate

from ddpcheck import evidence as ev
from ddpcheck.judging import step_alignment
from ddpcheck.judging.data_ranks import models_of
from ddpcheck.judging.first_forwards import numbered
from ddpcheck.judging.step_alignment import Aligned
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import Finding


def judge(world: World) -> tuple[int, list[Finding]]:
    """Compare the rates of the groups that hold shards, among the ranks that a tensor is dealt out to."""
    checked, findings = 0, []
    for optimizer in step_alignment.optimizers(world):
        if not _is_of_one_model(optimizer):
            continue
        for ranks, groups in _dealt_out(optimizer).items():
            columns = [c for c, rank in enumerate(optimizer.ranks) if rank.rank in ranks]
            if len(columns) < 2:
                continue
            broken = []
            for number, everywhere in optimizer.common():
                steps = [everywhere[c] for c in columns]
                rates = [tuple(rate for g, rate in enumerate(s.rates) if g in groups) for s in steps]
                if any(ev.UNREAD in each for each in rates):
                    continue
                checked += 1
                if len(set(rates)) > 1:
                    broken.append((number, steps, rates))
            if broken:
                findings.append(_finding(optimizer, [optimizer.ranks[c] for c in columns], broken))
    return checked, findings


def _is_of_one_model(optimizer: Aligned) -> bool:
    """Whether it steps the same model on all ranks, which may have made their optimizers in another order."""
    stepped = models_of(optimizer)
    return len({frozenset(numbered(rank).get(one) for one in models) for rank, models in stepped.items()}) == 1


def _dealt_out(optimizer: Aligned) -> dict[frozenset[int], set[int]]:
    """By the ranks that share a tensor out among them: the parameter groups in which there is such a tensor."""
    found: dict[frozenset[int], set[int]] = defaultdict(set)
    for rank, described in zip(optimizer.ranks, optimizer.described, strict=True):
        ends = list(accumulate(described.groups))
        for place, parameter in enumerate(described.parameters):
            ranks = _among(rank, parameter.layout)
            if len(ranks) > 1:
                found[ranks].add(sum(end <= place for end in ends))
    return found


def _among(rank: Rank, layout: ev.Layout | None) -> frozenset[int]:
    if layout is None or not layout.sharded:
        return frozenset()
    if layout.ground == "FSDP":
        return frozenset(layout.among)
    mesh = next((one for one in rank.of(ev.Mesh) if one.mesh == layout.mesh), None)
    return frozenset(mesh.ranks) if mesh is not None and layout.ground == "DTensor" else frozenset()


def _finding(
    optimizer: Aligned, ranks: list[Rank], broken: list[tuple[int, list[ev.Step], list[tuple[float, ...]]]]
) -> Finding:
    number, steps, rates = broken[0]
    usual = max(rates, key=lambda one: (rates.count(one), -rates.index(one)))
    odd = [place for place, one in enumerate(rates) if one != usual]
    shown = "; ".join(
        f"{', '.join(f'{one:.6g}' for one in each[:4])} on rank {rank.rank}"
        for rank, each in zip(ranks, rates, strict=True)
    )
    return Finding(
        rule="unequal-rates-of-shards",
        ranks=tuple(ranks[place].rank for place in odd),
        subject=f"the {optimizer.kind}'s learning rate",
        step=number,
        expected="the ranks that hold the shards of one model to step them by the same learning rate",
        found=shown,
        cause="a scheduler is stepped on some ranks alone, or the rate is computed from what differs",
        advice="Step schedulers on every rank, and compute learning rates from numbers that all ranks share.",
        where=ranks[odd[0]].where(steps[odd[0]].site),
        count=len(broken),
        links=(f"rates of optimizer {optimizer.number}",),
    )
