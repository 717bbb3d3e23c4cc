"""Buffers of models in no wrapper: DTensors between those that hold the same, others as far as they began equal.

Nothing broadcasts them. What the ranks of one model held alike at its first
forward and hold apart afterwards was computed from each rank's own data; what
was each rank's own from the beginning may be meant so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.checks.buffer_sync import beside_experts
from ddpcheck.judging import first_forwards, mesh_names, step_alignment
from ddpcheck.judging.data_ranks import are_peers, readers
from ddpcheck.judging.evaluation_alignment import evaluations
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.world import Rank, World
from ddpcheck.judging.zero_digests import covers
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing

_TOGETHER = (
    "All-reduce the statistics that go into such a buffer, in the forward, before it is updated; or broadcast it from "
    "one rank before the model is evaluated or saved"
)


NORMS = frozenset({
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d",
})  # fmt: skip
"""torch's modules whose buffers are statistics of batches."""
_CAUSES = {
    "data": "they are updated from each rank's own data, and what shards the model leaves buffers alone",
    "peers": "each rank computes them from activations of its own, or draws for itself",
    "experts": "they are updated from the tokens of each rank alone, and nothing adds these up over the ranks",
}


class Copies(NamedTuple):
    """One model, on ranks that are to hold some of its buffers alike."""

    models: dict[Rank, ev.Model]
    names: frozenset[str]
    """These buffers."""
    ground: str
    """``declared`` by their placements; ``peers``, which read the same data; ``data``, where each reads its own; or
    ``experts``, where the program reduces a part of the model and each rank has its own of the rest."""

    @property
    def link(self) -> str:
        return f"model {next(iter(self.models.values())).model}"


def judge(world: World) -> tuple[int, list[Finding]]:
    """Compare buffers after steps, and those of models that several ranks evaluate."""
    checked = 0
    findings: list[Finding] = []
    for copies in _copies(world):
        told: set[str] = set()
        rank, model = next(iter(copies.models.items()))
        for moment in (_evaluated, _stepped):
            for each, names, sites in moment(world, copies):
                places = [p for p, name in enumerate(names) if name in copies.names]
                checked += covers(first_forwards.named(rank, model.model, names), each, places)
                apart = [names[p] for p in step_alignment.differing(each) if p in places]
                at_step = moment is _stepped
                apart = [
                    one
                    for one in apart
                    if not (at_step and copies.ground in ("data", "experts") and _is_norm(copies, one))
                ]
                apart = [one for one in apart if one not in told]
                if apart:
                    odd = step_alignment.odd_ranks(
                        each, [names.index(one) for one in apart], [rank.rank for rank in copies.models]
                    )
                    findings.append(_finding(copies, apart, odd, sites, at_step))
                told.update(apart)
    return checked, findings


# --- which buffers


@once_per_world
def _copies(world: World) -> list[Copies]:
    found = [*_declared(world), *_peers(world)]
    for group in readers(world):
        for models in _of_ranks(group.ranks):
            ours = group.models is None or all(
                not group.apart and one.model in group.models[rank] for rank, one in models.items()
            )
            if ours and (group.models is not None or _is_sharded(models)):
                found += _with(models, _equal(models), "data")
    for shared in beside_experts.shared(world):
        for models in _of_ranks(shared.ranks):
            if all(one.model in shared.models[rank] for rank, one in models.items()):
                held = next(iter(models.values())).held
                found += _with(models, _equal(models) & {h.name for h in held if shared.is_of(h)}, "experts")
    return found


def _of_ranks(ranks: Sequence[Rank]) -> Iterator[dict[Rank, ev.Model]]:
    """The models that all of these ranks have, in no wrapper: the same of a class, in their order."""
    by_name = [{name: number for number, name in first_forwards.numbered(rank).items()} for rank in ranks]
    for name in sorted(set(by_name[0]).intersection(*by_name[1:])):
        numbers = [one[name] for one in by_name]
        models = {
            rank: next(one for one in rank.of(ev.Model) if one.model == number)
            for rank, number in zip(ranks, numbers, strict=True)
        }
        if not any(w.module == one.model for rank, one in models.items() for w in rank.of(ev.Wrapped)):
            yield models


def _is_sharded(models: dict[Rank, ev.Model]) -> bool:
    return all(any(h.layout is not None and h.layout.sharded for h in one.held) for one in models.values())


def _with(models: dict[Rank, ev.Model], names: set[str], ground: str) -> list[Copies]:
    return [Copies(models, frozenset(names), ground)] if names else []


def _equal(models: dict[Rank, ev.Model], filled: bool = True) -> set[str]:
    """Plain buffers that are part of the state, and were equal on these ranks at the first forward."""
    each = [
        {h.name: h for h in one.held if h.buffer and h.persistent and not h.same_as and _is_plain(h)}
        for one in models.values()
    ]
    return {
        name
        for name in set(each[0]).intersection(*each[1:])
        if len({(one[name].kind, one[name].digest) for one in each}) == 1
        and each[0][name].digest not in (ev.UNSEEN, ev.ABSENT)
        and (filled or not each[0][name].filled)
    }


def _is_plain(held: ev.Held) -> bool:
    return held.layout is None or held.layout.ground in ("beside", "ignored")


def _declared(world: World) -> Iterator[Copies]:
    """Buffers that are declared to be copies: by the ranks that hold the same."""
    by_holders: dict[tuple[int, ...], set[str]] = {}
    for _, model in world.of(ev.Model):
        for held in model.held:
            if held.buffer and held.persistent and not _is_plain(held) and held.layout is not None:
                by_holders.setdefault(held.layout.holders, set()).add(held.name)
    for holders, names in sorted(by_holders.items()):
        ranks = [rank for rank in world if rank.rank in holders]
        if len(ranks) > 1 and len(ranks) == len(holders):
            for models in _of_ranks(ranks):
                alike = [
                    {h.name for h in one.held if h.layout is not None and h.layout.holders == holders}
                    for one in models.values()
                ]
                yield from _with(models, names.intersection(*alike), "declared")


def _peers(world: World) -> Iterator[Copies]:
    """Plain buffers of ranks that share one copy: what is filled with one number may become a part's own scale."""
    split = {one.ranks for _, one in world.of(ev.Parallelised) if one.how == "parallelize_module"}
    groups = {tuple(group) for group in mesh_names.peers(world)} or {tuple(sorted(one)) for one in split}
    for group in sorted(groups):
        ranks = [rank for rank in world if rank.rank in group]
        if len(ranks) > 1 and len(ranks) == len(group) and are_peers(world, set(group)):
            for models in _of_ranks(ranks):
                if any(h.layout is not None for one in models.values() for h in one.held):
                    yield from _with(models, _equal(models, filled=False), "peers")


def _is_norm(copies: Copies, name: str) -> bool:
    """Whether it is a batch statistic: each rank's own between two forwards."""
    return _owner(copies, name) in NORMS


def _owner(copies: Copies, name: str) -> str:
    model = next(iter(copies.models.values()))
    return next((held.owner for held in model.held if held.name == name), "")


# --- at which moments

Moments = Iterator[tuple[list[bytes], list[str], list[tuple[Rank, int]]]]
"""The digests of each rank, the names of the buffers, and the lines."""


def _stepped(world: World, copies: Copies) -> Moments:
    each = [
        {(b.optimizer, b.number): b for b in rank.of(ev.BuffersHeld) if b.model == model.model}
        for rank, model in copies.models.items()
    ]
    for turn in sorted(set(each[0]).intersection(*each[1:])):
        now = [one[turn] for one in each]
        names = [b.names or _own(model) for b, model in zip(now, copies.models.values(), strict=True)]
        if all(one == names[0] for one in names):
            lines = [(rank, b.site) for rank, b in zip(copies.models, now, strict=True)]
            yield [b.digests for b in now], names[0], lines


def _own(model: ev.Model) -> list[str]:
    return [one.name for one in model.held if one.buffer and one.persistent and not one.same_as]


def _evaluated(world: World, copies: Copies) -> Moments:
    """Of all ranks of a model: one may evaluate by itself."""
    for _, records in evaluations(world):
        ours = {rank: one for rank, one in records if rank in copies.models and one.module == copies.models[rank].model}
        if len(ours) < len(copies.models):
            continue
        now = [ours[rank] for rank in copies.models]
        if all(one.buffers.names == now[0].buffers.names for one in now):
            lines = [(rank, ours[rank].site) for rank in copies.models]
            yield [one.buffers.digests for one in now], now[0].buffers.names, lines


# --- words


def _finding(
    copies: Copies, apart: list[str], odd: tuple[int, ...], sites: list[tuple[Rank, int]], at_step: bool
) -> Finding:
    statistics = all(_is_norm(copies, name) for name in apart)
    declared = copies.ground == "declared"
    when = "after a step" if at_step else "when the model is evaluated on all of them"
    whom = {
        "declared": "the ranks that hold copies of a buffer, by its placements,",
        "peers": "ranks that share one copy of the model, and read the same data,",
        "data": "the ranks of one model",
        "experts": "ranks that make gradients of a module the same, with a number for each of its rows in a buffer,",
    }[copies.ground]
    where = next((rank.where(site) for rank, site in sites if rank.rank in odd), None)
    # A statistic of batches is a part of the model that is evaluated; of what else differs nobody says what it is for.
    wrong = declared or (statistics and not at_step and copies.ground == "data" and _is_sharded(copies.models))
    return Finding(
        rule="different-buffers-after-step" if at_step else "different-buffers-at-evaluation",
        severity="error" if wrong else "warning",
        ranks=odd,
        subject=apart[0],
        expected=f"{whom} to hold the same buffers {when}",
        found=f"{count(len(apart), 'buffer')} to differ: {listing(apart)}"
        + ("" if declared else ", which were equal at the first forward"),
        cause=_CAUSES.get(copies.ground, _CAUSES["data"]),
        advice=f"{_TOGETHER}.",
        where=where,
        links=(copies.link, "buffers"),
    )
