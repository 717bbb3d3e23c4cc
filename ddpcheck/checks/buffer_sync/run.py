"""Does what DDP does not reduce agree where it must? Judge of buffer-sync, and of models that ranks evaluate."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from ddpcheck import evidence as ev
from ddpcheck.checks.buffer_sync import recomputed, unwrapped_models
from ddpcheck.judging import step_alignment
from ddpcheck.judging.evaluation_alignment import Evaluation, Model, evaluations, is_compared, model_of
from ddpcheck.judging.first_forwards import named
from ddpcheck.judging.step_alignment import Replicas
from ddpcheck.judging.world import Judged, World
from ddpcheck.judging.zero_digests import covers
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing

BROADCAST_AGAIN = (
    "Leave out broadcast_buffers=False, so that each forward through the wrapper begins with rank 0's buffers; to keep "
    "it, average or broadcast the buffers before an evaluation (dist.broadcast(buffer, src=0) for each of "
    "model.module.buffers())"
)
_NOTHING = "ddpcheck saw no buffer that several ranks hold of one model, after a step, a broadcast or in an evaluation"
_RULES = {
    "broadcast": "different-buffers-after-broadcast",
    "evaluation": "different-buffers-at-evaluation",
    "step": "different-buffers-after-step",
}
_OWN_AFFAIR = ("rank", "device", "seed", "worker", "local", "index", "path", "dir", "file", "name", "time", "log")
"""Parts of the names of attributes that may well differ between ranks."""


def judge(world: World) -> Judged:
    """Compare buffers when DDP has broadcast them, when a step has been made, and when a model is evaluated."""
    checked = 0
    findings: list[Finding] = []
    told: dict[str, set[str]] = {}
    for replicas in step_alignment.wrappers(world):
        times, found, names = _wrapper(replicas)
        checked += times
        findings += found
        if names:
            told[replicas.link] = names
    models: dict[Model, Finding | None] = {}
    for _, records in evaluations(world):
        if is_compared(records):
            rank, one = records[0]
            tensors = named(rank, one.module, one.buffers.names)
            checked += covers(tensors, [it.buffers.digests for _, it in records])
            model = model_of(records)
            models[model] = models.get(model) or _evaluation(records, told)
    findings += [finding for finding in models.values() if finding is not None]
    findings += _attributes(world, told)
    looked, of_models = unwrapped_models.judge(world)
    twice = recomputed.judge(world)
    return Judged(
        checked=checked + looked + sum(one.count for one in twice),
        findings=(*findings, *of_models, *twice),
        skipped_because=_NOTHING,
    )


# --- wrappers


def _wrapper(replicas: Replicas) -> tuple[int, list[Finding], set[str]]:
    """How often a wrapper's buffers were compared, a finding for each cause, and the buffers that these are about."""
    checked = 0
    findings: dict[str, Finding] = {}
    told: set[str] = set()
    wrapped = replicas.wrapped[0]
    for moment in ("broadcast", "evaluation", "step"):
        each = [
            {s.number: s for s in rank.of(ev.Synced) if s.wrapper == replicas.of(rank) and s.moment == moment}
            for rank in replicas.ranks
        ]
        for turn in sorted(set(each[0]).intersection(*each[1:])):
            tensors = named(replicas.ranks[0], wrapped.module, each[0][turn].names or wrapped.buffers.names)
            checked += covers(tensors, [one[turn].digests for one in each])
            for unknown, names in _moment(replicas, moment, [one[turn] for one in each]):
                if told.issuperset(names):
                    continue
                finding = _differ(replicas, moment, [one[turn] for one in each], unknown, names)
                findings.setdefault(finding.cause, finding)
                told.update(names)
    return checked, list(findings.values()), told


def _moment(replicas: Replicas, moment: str, synced: Sequence[ev.Synced]) -> Iterable[tuple[bool, list[str]]]:
    """The buffers that differ and must not: those that the wrapper does not know, and those that it does."""
    wrapped = replicas.wrapped[0]
    names = synced[0].names or wrapped.buffers.names
    owners = dict(zip(wrapped.buffers.names, wrapped.buffer_owners, strict=False))
    left_out = {*wrapped.ignored, *wrapped.local_buffers}
    differing = [names[p] for p in step_alignment.differing([s.digests for s in synced]) if p < len(names)]
    places = [name for name in differing if name not in left_out]
    unknown = [name for name in places if name not in owners]
    if unknown:
        yield True, unknown
    # Batch statistics are each rank's own between two forwards: DDP means it so.
    own = unwrapped_models.NORMS if moment == "step" else frozenset[str]()
    known = [name for name in places if name in owners and owners[name] not in own]
    if known:
        yield False, known


def _differ(
    replicas: Replicas, moment: str, synced: Sequence[ev.Synced], unknown: bool, differing: Sequence[str]
) -> Finding:
    wrapped, ranks = replicas.wrapped[0], replicas.ranks
    names = synced[0].names or wrapped.buffers.names
    places = [names.index(name) for name in differing]
    odd = step_alignment.odd_ranks([s.digests for s in synced], places, [r.rank for r in ranks])
    when, cause, advice = _why(moment, wrapped, unknown)
    # What the next forward overwrites with rank 0's is no worse than a batch norm's statistics; and where DDP was told
    # to broadcast nothing, a buffer may be meant to be each rank's own.
    lost = moment == "step" and not unknown
    rank = next((r for r in ranks if r.rank in odd), ranks[0])
    record = synced[ranks.index(rank)]
    built = rank.proof(replicas.wrapped[ranks.index(rank)].site)
    return Finding(
        rule=_RULES[moment],
        severity="warning" if lost else "error",
        ranks=odd,
        subject=differing[0],
        expected=f"all ranks to hold the same buffers {when}",
        found=f"{count(len(places), 'buffer')} to differ: {listing(differing)}",
        cause=cause,
        advice=advice,
        where=rank.where(record.site),
        links=(replicas.link, "buffers"),
        proof=built if not wrapped.broadcast_buffers and not unknown else (),
    )


def _why(moment: str, wrapped: ev.Wrapped, unknown: bool) -> tuple[str, str, str]:
    if unknown:
        return (
            "after a step" if moment == "step" else "when the model is evaluated on all of them",
            "it was registered after the module was wrapped, or was None then: DDP does not broadcast it",
            "Register every buffer as a tensor before the module is wrapped.",
        )
    if moment == "broadcast":
        return (
            "when DDP has broadcast them",
            "a buffer was assigned anew, and DDP broadcasts the tensor that it found at first",
            "Change buffers in place (copy_, add_), and leave the object that is registered.",
        )
    if moment == "evaluation":
        return (
            "when the model is evaluated on all of them",
            "the wrapper was built with broadcast_buffers=False, so that each rank keeps statistics of its own data",
            f"{BROADCAST_AGAIN}{_or_sync_batch_norm(wrapped)}.",
        )
    if wrapped.broadcast_buffers:
        return (
            "after a step",
            "they are updated from each rank's own data; the next forward overwrites them with rank 0's, and what the "
            "other ranks had added is lost",
            "All-reduce the statistics that go into such a buffer, in the forward, before it is updated.",
        )
    return (
        "after a step",
        "they are updated from each rank's own data, and nothing brings them together",
        "All-reduce the statistics that go into such a buffer, or let DDP broadcast it (broadcast_buffers=True).",
    )


def _or_sync_batch_norm(wrapped: ev.Wrapped) -> str:
    """torch's SyncBatchNorm takes inputs on GPUs alone, and is no fix for other buffers."""
    on_gpus = all(device.startswith("cuda") for device in wrapped.devices)
    norms = any("BatchNorm" in owner for owner in wrapped.buffer_owners)
    return "; or convert the model with torch.nn.SyncBatchNorm.convert_sync_batchnorm" if on_gpus and norms else ""


# --- evaluations


def _evaluation(records: Evaluation, told: Mapping[str, set[str]]) -> Finding | None:
    """The buffers that differ of one model that several ranks evaluate; wrappers were accused of ``told`` already."""
    first = records[0][1]
    ranks = [rank.rank for rank, _ in records]
    apart = step_alignment.differing([one.parameters.digests for _, one in records])
    places = step_alignment.differing([one.buffers.digests for _, one in records])
    names = [first.buffers.names[p] for p in places]
    if not names or _explained(first, names, told):
        return None
    broadcast = any(w.wrapper == first.wrapper and w.broadcast_buffers for w in records[0][0].of(ev.Wrapped))
    meant = first.wrapper is not None or (not apart and any(_is_copy(first, w) for w in records[0][0].of(ev.Wrapped)))
    odd = step_alignment.odd_ranks([one.buffers.digests for _, one in records], places, ranks)
    return Finding(
        rule="different-buffers-at-evaluation",
        severity="error" if meant and not broadcast else "warning",
        ranks=odd,
        subject=f"the {first.kind} that is evaluated",
        expected="all ranks to hold the same buffers of a model that all of them evaluate",
        found=f"{count(len(names), 'buffer')} to differ: {listing(names)}",
        cause=(
            "they are as each rank's last batch has left them: DDP broadcasts buffers at the beginning of a forward "
            "through the wrapper, and this evaluation goes round it"
            if broadcast
            else "nothing brings the buffers of this model together"
        ),
        advice="Broadcast rank 0's buffers before all ranks evaluate, or evaluate on one rank.",
        where=next((r.where(one.site) for r, one in records if r.rank in odd), None),
        links=(f"model {first.module}", "buffers"),
    )


def _explained(model: ev.Evaluated, buffers: Sequence[str], told: Mapping[str, set[str]]) -> bool:
    """Whether these buffers are those of a wrapper that differ already, or copies of them."""
    if model.wrapper is not None:
        return f"wrapper {model.wrapper}" in told
    return any({_bare(name) for name in buffers} <= {_bare(name) for name in names} for names in told.values())


def _is_copy(model: ev.Evaluated, wrapped: ev.Wrapped) -> bool:
    """Whether it has the parameters of a wrapped module, by their names."""
    return {_bare(name) for name in model.parameters.names} == {_bare(name) for name in wrapped.parameters.names}


def _bare(name: str) -> str:
    """A name within the model itself, whatever holds a copy of it (an average, a wrapper)."""
    while name.startswith("module."):
        name = name.removeprefix("module.")
    return name


# --- attributes


def _attributes(world: World, told: Collection[str]) -> list[Finding]:
    """Plain numbers in the model that are not the same: DDP sees parameters and buffers alone.

    Those of ``told`` wrappers may differ as the buffers do.
    """
    findings = []
    for replicas in step_alignment.wrappers(world):
        noted = [[a for a in rank.of(ev.Attributes) if a.wrapper == replicas.of(rank)] for rank in replicas.ranks]
        each = [_lasting(of) for of in noted]
        if replicas.link in told or not all(each):
            continue
        names = [
            name
            for name in each[0]
            if len({one.get(name) for one in each}) > 1
            and not any(part in name.rpartition(".")[2].lower() for part in _OWN_AFFAIR)
            and not _are_places([r.rank for r in replicas.ranks], [one.get(name, "") for one in each])
        ]
        if names:
            values = "; ".join(
                f"{one.get(names[0], 'none')} on rank {r.rank}" for r, one in zip(replicas.ranks, each, strict=True)
            )
            findings.append(
                Finding(
                    rule="different-model-attributes",
                    severity="warning",
                    ranks=tuple(r.rank for r in replicas.ranks)[1:],
                    subject=f"{replicas.wrapped[0].kind}.{names[0]}",
                    expected="the plain attributes of the model to be the same on all ranks",
                    found=f"{listing(names)} to differ: {names[0]} is {values}",
                    cause="it was computed from each rank's own data, or from its rank; DDP broadcasts parameters and "
                    "buffers alone",
                    advice="If it is meant to be the same, compute it on one rank and broadcast it, or all-reduce what "
                    "it is computed from.",
                    where=replicas.ranks[0].where(noted[0][0].site),
                    links=(replicas.link, "attributes"),
                )
            )
    return findings


def _are_places(ranks: Sequence[int], values: Sequence[str]) -> bool:
    """Whether these are whole numbers, as many times each rank's place as there are to each: where its own part begins.

    So a program sets them, and no data come into it.
    """
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
