"""Buffers, evaluated copies and attributes of models: what no optimizer steps, and several ranks must hold alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from ddpcheck import evidence as ev
from ddpcheck.facts import buffer_grounds, followers
from ddpcheck.facts.buffer_grounds import NORMS, Models
from ddpcheck.facts.holdings import Ground, Holding, Look, name_within
from ddpcheck.judging import step_alignment
from ddpcheck.judging.evaluation_alignment import Evaluation, evaluations, is_compared, model_of
from ddpcheck.judging.first_forwards import named
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.step_alignment import Replicas
from ddpcheck.judging.world import Rank, World
from ddpcheck.judging.zero_digests import nothing_of
from ddpcheck.vocabulary.model import CallSite

_OWN_AFFAIR = ("rank", "device", "seed", "worker", "local", "index", "path", "dir", "file", "name", "time", "log")
"""Parts of the names of attributes that may well differ between ranks: what differs is an advisory at most."""


@once_per_world
def of(world: World) -> list[Holding]:
    """Those of wrappers, of models in no wrapper, and of models that several ranks evaluate."""
    found: list[Holding] = []
    for replicas in step_alignment.wrappers(world):
        found += _of_wrapper(replicas)
    for models in buffer_grounds.of(world):
        found += [*_evaluated_by(world, models), *_after_steps(models)]
    by_model: dict[object, list[tuple[Replicas | None, Evaluation]]] = defaultdict(list)
    for replicas_of, records in evaluations(world):
        if is_compared(records):
            by_model[model_of(records)].append((replicas_of, records))
    for moments in by_model.values():
        of_own = followers.differ_as_trained(world, dict(model_of(moments[0][1])))
        found += [one for one in _evaluated(moments) if one.moment != "evaluated" or not of_own]
    return [*found, *_attributes(world)]


Moment = tuple[int, tuple[bytes, ...], Callable[[int], CallSite | None]]
"""A number, the digests of each holder, and the lines."""


def _holdings(
    of: str, ranks: Sequence[int], by_names: dict[tuple[str, ...], list[Moment]], models: dict[Rank, int]
) -> Iterator[Holding]:
    """A holding for each list of names that was looked at; its places and its ground are still to be set."""
    rank, model = next(iter(models.items()))
    for names, moments in by_names.items():
        tensors = named(rank, model, names)
        yield Holding(
            of,
            tuple(ranks),
            names,
            range(len(names)),
            Ground("wrapper"),
            [Look(*moment) for moment in moments],
            has_steps=False,
            empty=lambda place, tensors=tensors: nothing_of(tensors[place]),  # type: ignore[misc]
        )


def _lines(ranks: Sequence[Rank], sites: Sequence[int]) -> Callable[[int], CallSite | None]:
    return lambda holder: ranks[holder].where(sites[holder])


# --- of wrappers


def _of_wrapper(replicas: Replicas) -> Iterator[Holding]:
    """At the beginning of a forward, when DDP has broadcast them, in evaluations, and after steps."""
    first = replicas.wrapped[0]
    owners = dict(zip(first.buffers.names, first.buffer_owners, strict=False))
    left_out = {*first.ignored, *first.local_buffers}
    ranks = replicas.ranks
    models = {rank: wrapped.module for rank, wrapped in zip(ranks, replicas.wrapped, strict=True)}
    built = ranks[0].proof(first.site)
    for moment in ("broadcast", "evaluation", "step"):
        synced = [
            {s.number: s for s in rank.of(ev.Synced) if s.wrapper == replicas.of(rank) and s.moment == moment}
            for rank in ranks
        ]
        by_names: dict[tuple[str, ...], list[Moment]] = defaultdict(list)
        for turn in sorted(set(synced[0]).intersection(*synced[1:])):
            now = [one[turn] for one in synced]
            line = _lines(ranks, [one.site for one in now])
            names = tuple(now[0].names or first.buffers.names)
            by_names[names].append((turn, tuple(one.digests for one in now), line))
        # Batch statistics are each rank's own between two forwards: DDP means it so.
        own = NORMS if moment == "step" else frozenset[str]()
        lost = "overwritten" if first.broadcast_buffers else "own data"
        cause = {"broadcast": "reassigned", "evaluation": "not broadcast", "step": lost}[moment]
        for holding in _holdings(f"buffers: {moment}", [rank.rank for rank in ranks], by_names, models):
            wanted = [place for place, name in enumerate(holding.names) if name not in left_out]
            late = [place for place in wanted if holding.names[place] not in owners]
            known = [place for place in wanted if place not in late and owners[holding.names[place]] not in own]
            holding = holding._replace(
                links=(replicas.link, "buffers"),
                words={"sync": _or_sync_batch_norm(first), "began": ""},
            )
            yield holding._replace(
                places=known,
                ground=Ground("wrapper", "warning" if moment == "step" else "error"),
                cause=cause,
                proof=() if first.broadcast_buffers else built,
            )
            yield holding._replace(places=late, ground=Ground("wrapper"), cause="late")


def _or_sync_batch_norm(wrapped: ev.Wrapped) -> str:
    """torch's SyncBatchNorm takes inputs on GPUs alone, and is no fix for other buffers."""
    on_gpus = all(device.startswith("cuda") for device in wrapped.devices)
    norms = any("BatchNorm" in owner for owner in wrapped.buffer_owners)
    return "; or convert the model with torch.nn.SyncBatchNorm.convert_sync_batchnorm" if on_gpus and norms else ""


# --- of models in no wrapper


def _after_steps(models: Models) -> Iterator[Holding]:
    ranks = list(models.models)
    held = [
        {(b.optimizer, b.number): b for b in rank.of(ev.BuffersHeld) if b.model == model.model}
        for rank, model in models.models.items()
    ]
    by_names: dict[tuple[str, ...], list[Moment]] = defaultdict(list)
    for turn in sorted(set(held[0]).intersection(*held[1:])):
        now = [one[turn] for one in held]
        names = {tuple(b.names or _own(model)) for b, model in zip(now, models.models.values(), strict=True)}
        if len(names) == 1:
            line = _lines(ranks, [b.site for b in now])
            by_names[names.pop()].append((turn[1], tuple(b.digests for b in now), line))
    yield from _of_models(models, "buffers: step", by_names)


def _own(model: ev.Model) -> list[str]:
    return [one.name for one in model.held if one.buffer and one.persistent and not one.same_as]


def _evaluated_by(world: World, models: Models) -> Iterator[Holding]:
    """In evaluations by all ranks of a model: one may evaluate by itself."""
    ranks = list(models.models)
    by_names: dict[tuple[str, ...], list[Moment]] = defaultdict(list)
    for _, records in evaluations(world):
        ours = {rank: one for rank, one in records if rank in models.models and one.module == models.models[rank].model}
        now = [ours[rank] for rank in ranks if rank in ours]
        if len(now) == len(ranks) and all(one.buffers.names == now[0].buffers.names for one in now):
            line = _lines(ranks, [one.site for one in now])
            digests = tuple(one.buffers.digests for one in now)
            by_names[tuple(now[0].buffers.names)].append((now[0].number, digests, line))
    yield from _of_models(models, "buffers: evaluation", by_names)


def _of_models(models: Models, moment: str, by_names: dict[tuple[str, ...], list[Moment]]) -> Iterator[Holding]:
    numbers = {rank: model.model for rank, model in models.models.items()}
    at_step = moment == "buffers: step"
    for holding in _holdings(moment, [rank.rank for rank in models.models], by_names, numbers):
        norms = {place for place, name in enumerate(holding.names) if models.owner(name) in NORMS}
        places = [place for place, name in enumerate(holding.names) if name in models.names]
        if at_step and models.ground.kind in ("dealt", "reduced"):
            places = [place for place in places if place not in norms]
        # Statistics of batches are a part of the model that is evaluated; what else differs may be meant.
        certain = not at_step and models.ground.kind == "dealt" and models.is_sharded and norms.issuperset(places)
        yield holding._replace(
            places=places,
            ground=models.ground._replace(severity="error") if certain else models.ground,
            cause=models.ground.kind,
            words={"began": "" if models.ground.kind == "declared" else ", which were equal at the first forward"},
            links=(models.link, "buffers"),
        )


# --- of models that are evaluated


def _evaluated(moments: Sequence[tuple[Replicas | None, Evaluation]]) -> Iterator[Holding]:
    """The buffers of one model that several ranks evaluate, and its parameters if no wrapper holds it."""
    first = moments[0][1]
    rank, one = first[0]
    ranks = [rank for rank, _ in first]
    models = {rank: its.module for rank, its in first}
    wrapped = rank.of(ev.Wrapped)
    broadcast = any(w.wrapper == one.wrapper and w.broadcast_buffers for w in wrapped)
    names_within = set(map(name_within, one.parameters.names))
    copied = [w for w in wrapped if set(map(name_within, w.parameters.names)) == names_within]
    of_kind = f"the {one.kind} that is evaluated"
    for moment, tensors in (("buffers: model", "buffers"), ("evaluated", "parameters")):
        if tensors == "parameters" and (one.wrapper is not None or _may_be_stages(first)):
            continue
        by_names: dict[tuple[str, ...], list[Moment]] = defaultdict(list)
        equal = True
        for _, records in moments:
            state = [getattr(record, tensors) for _, record in records]
            line = _lines(ranks, [record.site for _, record in records])
            by_names[tuple(state[0].names)].append((records[0][1].number, tuple(t.digests for t in state), line))
            equal &= not step_alignment.differing([record.parameters.digests for _, record in records])
        meant = one.wrapper is not None or (equal and copied)
        links: tuple[str, ...] = (f"model {one.module}",)
        if tensors == "buffers":
            of_wrapper = [one.wrapper, *(w.wrapper for w in copied)][one.wrapper is None :][:1]
            links = (*(f"wrapper {number}" for number in of_wrapper), *links, "buffers")
        for holding in _holdings(moment, [rank.rank for rank in ranks], by_names, models):
            yield holding._replace(
                ground=Ground("evaluated", "error" if tensors == "buffers" and meant and not broadcast else "warning"),
                cause="gone round" if broadcast else "never together",
                words={"subject": of_kind, "began": ""},
                links=links,
            )


def _may_be_stages(records: Evaluation) -> bool:
    """Whether these ranks send each other tensors: then each may have a part of one model."""
    ranks = {rank.rank for rank, _ in records}
    return any(call.op in ev.PAIRWISE and call.peer in ranks for rank, _ in records for call in rank.of(ev.Call))


# --- attributes


def _attributes(world: World) -> Iterator[Holding]:
    """Plain numbers in wrapped models: DDP sees parameters and buffers alone."""
    for replicas in step_alignment.wrappers(world):
        noted = [[a for a in rank.of(ev.Attributes) if a.wrapper == replicas.of(rank)] for rank in replicas.ranks]
        lasting = [_lasting(its) for its in noted]
        if not all(lasting):
            continue
        ranks = [rank.rank for rank in replicas.ranks]
        names = [
            name
            for name in lasting[0]
            if not any(part in name.rpartition(".")[2].lower() for part in _OWN_AFFAIR)
            and not _are_places(ranks, [one.get(name, "") for one in lasting])
        ]
        values = tuple(tuple(one.get(name, "none") for name in names) for one in lasting)
        line = _lines([replicas.ranks[0]] * len(ranks), [noted[0][0].site] * len(ranks))
        yield Holding(
            "attributes", tuple(ranks), [f"{replicas.wrapped[0].kind}.{name}" for name in names], range(len(names)),
            Ground("wrapper", "advisory"), [Look(0, values, line, counts=False)], links=(replicas.link, "attributes"),
        )  # fmt: skip


def _are_places(ranks: Sequence[int], values: Sequence[str]) -> bool:
    """Whether these are whole numbers, as many times each rank's place as there are to each: where its part begins."""
    if not all(value.lstrip("-").isdecimal() for value in values):
        return False
    numbers = [int(value) for value in values]
    return any(
        numbers == [place * numbers[1] // places[1] for place in places]
        for places in (ranks, range(len(ranks)))
        if len(places) > 1 and places[0] == 0
    )


def _lasting(noted: Sequence[ev.Attributes]) -> dict[str, str]:
    """The attributes that stayed as they were: what changes from step to step is a rank's own log."""
    if not noted:
        return {}
    return {name: value for name, value in noted[0].values.items() if all(a.values.get(name) == value for a in noted)}
