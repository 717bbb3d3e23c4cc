"""The checks of the suite: by which situations each is judged, in how many ranks, and by which judge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ddpcheck.checks.checkpoint_atomic_save import conformance as saves
from ddpcheck.checks.gradient_oracle import conformance as updates
from ddpcheck.checks.metric_oracle import conformance as metrics
from ddpcheck.checks.optimizer_sync import conformance as rates
from ddpcheck.checks.resume_equivalence import conformance as resumes
from ddpcheck.checks.rng_independence import conformance as streams
from ddpcheck.conformance import adapter_check
from ddpcheck.conformance.judges import endings, replicas, samples
from ddpcheck.judging.world import Judged
from ddpcheck.trainings.situations import BY_NAME, SITUATIONS, LossKind, curriculum
from ddpcheck.trainings.situations import rates as scheduled
from ddpcheck.trainings.trained_situation import Trained
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, ranks_text

NOT_SIMULATED = "does not simulate this"
"""Words of what simulated devices raise for what they are not."""

ANY = "*"
"""All trainings that end of themselves."""

ORDINARY = tuple(s.name for s in SITUATIONS if s.at == "train" and not s.resumed_from)


class Check(NamedTuple):
    """One row of the suite."""

    name: str
    """A check id, and after a colon the situation, where there are several."""
    situations: tuple[str, ...]
    judge: Callable[[Sequence[Trained]], Judged]
    """Given what came of the situations, in their order."""
    least: int = 1
    """The smallest world size at which there is something to judge."""
    world_sizes: tuple[int, ...] = ()
    """The only ones at which there is; empty for all."""
    oracle: bool = False
    """It needs to know what one process would have done in the first of them."""
    also_failed: bool = False
    """It judges trainings that did not end well, too."""

    @property
    def id(self) -> str:
        """The check id alone."""
        return self.name.partition(":")[0]

    @property
    def loss(self) -> LossKind:
        """The kind of loss that its trainings have."""
        return BY_NAME[self.situations[0]].loss if self.situations[0] != ANY else "samples"

    def fits(self, world_size: int, losses: Sequence[str]) -> bool:
        """Whether there is something to judge in so many ranks, for a trainer of such losses."""
        sizes = self.world_sizes
        return world_size >= self.least and (not sizes or world_size in sizes) and self.loss in losses


def _one(judge: Callable[[Trained], Judged]) -> Callable[[Sequence[Trained]], Judged]:
    return lambda trained: judge(trained[0])


def _each(judge: Callable[[Trained], Judged]) -> Callable[[Sequence[Trained]], Judged]:
    """A judge of many trainings: what it says of the first of them stands for the others that it says it of, too."""

    def judge_all(trained: Sequence[Trained]) -> Judged:
        said = [judge(one) for one in trained]
        findings = [_and_likewise(alike) for alike in _alike(said)]
        reason = next((one.skipped_because for one in said if one.skipped_because), "")
        check = said[0].check if said else ""
        checked = sum(one.checked for one in said)
        return Judged(check=check, checked=checked, findings=tuple(findings[:3]), skipped_because=reason)

    return judge_all


def _alike(said: Sequence[Judged]) -> list[list[Finding]]:
    """The findings of many trainings, those that are broken in the same way together; one of each training."""
    found: dict[tuple[str, ...], list[Finding]] = {}
    for one in said:
        ways = {(finding.expected, finding.cause, finding.advice): finding for finding in reversed(one.findings)}
        for way, finding in ways.items():
            found.setdefault(way, []).append(finding)
    return list(found.values())


def _and_likewise(findings: Sequence[Finding]) -> Finding:
    first, *others = findings
    if not others:
        return first
    told = f"{first.found}; likewise in {count(len(others), 'other training')}"
    return replace(first, found=told, count=sum(finding.count for finding in findings))


def _watched(check: str) -> Callable[[Sequence[Trained]], Judged]:
    """What the judges of a script's run say."""

    def judge(trained: Trained) -> Judged:
        return trained.watched.get(check, Judged(check=check, checked=0))

    return _each(judge)


def _on_devices(check: str) -> Callable[[Sequence[Trained]], Judged]:
    """The same of a training on simulated devices, of which a library may want more than is simulated."""
    watched = _watched(check)

    def judge(trained: Sequence[Trained]) -> Judged:
        if not trained[0].failed:
            return _on_the_cpu(check, trained[0]) or watched(trained)
        if NOT_SIMULATED in trained[0].text:
            return Judged(check=check, checked=0, skipped_because="it uses of a GPU what simulated devices have not")
        return Judged(check=check, checked=1, findings=(trained[0].failure(),))

    return judge


def _on_the_cpu(check: str, trained: Trained) -> Judged | None:
    """What is said of ranks that have left their device alone: of all of them, that there is nothing to judge."""
    devices = [{micro.forward.device for micro in trace.micros} for trace in trained.traces]
    ranks = [rank for rank in trained.ranks if devices[rank] == {"cpu"}]
    if not ranks:
        return None
    if len(ranks) == trained.world_size:
        told = "model and batches stayed on the CPU: put them on job.device"
        return Judged(check=check, checked=0, skipped_because=told)
    finding = Finding(
        check=check,
        severity="error",
        ranks=tuple(ranks),
        subject="job.device",
        expected="each rank to compute on job.device",
        found=f"model and batches on the CPU on {ranks_text(ranks)}, with {trained.situation.about}",
        advice="Put model and batches on job.device, on every rank.",
    )
    return Judged(check=check, checked=1, findings=(finding,))


def _of_the_sampler(trained: Trained) -> Judged:
    return samples.judge_shares(trained, curriculum(trained.situation.size.at(trained.world_size)))


def _optimizing(trained: Trained) -> Judged:
    """The state on all ranks, and the rates: but where they depend on what was evaluated, or may on the tokens."""
    judged, situation = rates.judge_state(trained), trained.situation
    own_rates = situation.rates == "plateau" or situation.loss != "samples"
    return judged if judged.findings or own_rates else _schedule(trained)


def _schedule(trained: Trained) -> Judged:
    return rates.judge_schedule(trained, scheduled(trained.situation, len(trained.traces[0].steps)))


def _oracle(situation: str) -> Check:
    return Check(f"{updates.CHECK}:{situation}", (situation,), _one(updates.judge), oracle=True)


def _resume(kind: str = "") -> Check:
    return Check(
        resumes.RESUME + (kind and f":{kind}"),
        tuple(name + (kind and f"-{kind}") for name in ("long", "killed", "resumed")),
        lambda t: resumes.judge_resume(*t),
        oracle=True,
        also_failed=True,
    )


CHECKLIST: tuple[Check, ...] = (
    Check("adapter", ("plain",), _one(adapter_check.judge), also_failed=True),
    Check("initial-broadcast", (ANY,), _each(replicas.judge_broadcast), least=2),
    Check("gradient-sync", (ANY,), _each(replicas.judge_gradients), least=2),
    Check("parameter-sync", (ANY,), _each(replicas.judge_parameters), least=2),
    Check("buffer-sync", ("batchnorm",), _one(replicas.judge_buffers), least=2),
    Check("optimizer-sync", (ANY,), _each(_optimizing), least=2),
    Check("optimizer-sync:schedule", ("schedule",), _one(_schedule)),
    Check("optimizer-sync:schedule-accumulation", ("schedule-accumulation",), _one(_schedule)),
    Check("optimizer-sync:plateau", ("plateau",), _one(rates.judge_plateau)),
    Check("reducer-coverage", (ANY,), _watched("reducer-coverage"), least=2),
    Check("collective-order", (ANY,), _watched("collective-order"), least=2),
    Check("gradient-oracle", ("plain",), _one(updates.judge), oracle=True),
    *(
        _oracle(situation)
        for situation in (
            "exact",
            "in-order",
            "drop-last",
            "few-samples",
            "accumulation",
            "accumulation-tail",
            "clipping",
            "accumulation-clipping",
            "schedule",
            "schedule-accumulation",
            "batchnorm",
            "dropout",
            "branches",
            "tied",
            "iterable",
            "validation",
            "float32",
            "bfloat16",
            "tokens",
            "tokens-accumulation",
            "pairs",
        )
    ),
    Check("shard-partition", ("plain",), _one(samples.judge_shares)),
    Check("shard-partition:in-order", ("in-order",), _one(samples.judge_shares)),
    Check("shard-partition:drop-last", ("drop-last",), _one(samples.judge_shares)),
    Check("shard-partition:few-samples", ("few-samples",), _one(samples.judge_shares)),
    Check("shard-partition:iterable", ("iterable",), _one(samples.judge_shares)),
    Check("shard-partition:iterable-uneven", ("iterable-uneven",), _one(samples.judge_shares)),
    Check("shard-partition:iterable-workers", ("iterable-workers",), _one(samples.judge_shares)),
    Check("shard-partition:sampler", ("sampler",), _one(_of_the_sampler)),
    Check("shard-partition:two-nodes", ("two-nodes",), _one(samples.judge_shares), world_sizes=(4,)),
    Check("epoch-reshuffle", ("plain",), _one(samples.judge_epochs)),
    Check("batch-count", ("plain",), _one(samples.judge_counts)),
    Check("batch-count:drop-last", ("drop-last",), _one(samples.judge_counts)),
    Check("batch-count:few-samples", ("few-samples",), _one(samples.judge_counts)),
    Check("batch-count:iterable", ("iterable",), _one(samples.judge_counts)),
    Check("batch-count:iterable-uneven", ("iterable-uneven",), _one(samples.judge_counts)),
    Check("batch-count:iterable-workers", ("iterable-workers",), _one(samples.judge_counts)),
    Check("rng-independence", ("dropout",), _one(streams.judge_dropout)),
    Check("rng-independence:augmentation", ("augmentation",), _one(streams.judge_augmentation)),
    Check("rng-independence:long-random", ("long-random",), _one(streams.judge_augmentation)),
    Check("metric-oracle", ("validation",), _one(metrics.judge)),
    Check("metric-oracle:few-validation", ("few-validation",), _one(metrics.judge)),
    _resume(),
    _resume("accumulation"),
    _resume("epoch-end"),
    _resume("random"),
    Check(
        "checkpoint-atomic-save",
        ("long", "killed-in-save", "resumed-in-save"),
        lambda t: saves.judge_save(*t),
        oracle=True,
        also_failed=True,
    ),
    Check("checkpoint-single-writer", ("long",), _watched("checkpoint-single-writer"), least=2),
    Check("checkpoint-single-writer:two-nodes", ("two-nodes",), _watched("checkpoint-single-writer"), world_sizes=(4,)),
    Check("checkpoint-load-complete", ("resumed",), _watched("checkpoint-load-complete"), least=2),
    Check("checkpoint-map-location", ("resumed",), _watched("checkpoint-map-location"), least=2),
    Check(
        "checkpoint-map-location:devices",
        ("resumed-devices",),
        _on_devices("checkpoint-map-location"),
        world_sizes=(2,),
        also_failed=True,
    ),
    Check("device-placement", (ANY,), _watched("device-placement"), least=2),
    Check(
        "device-placement:devices",
        ("resumed-devices",),
        _on_devices("device-placement"),
        world_sizes=(2,),
        also_failed=True,
    ),
    Check("rank-failure", ("raises",), _one(endings.judge_failure), also_failed=True),
    Check("no-hang", (ANY,), endings.judge_progress, also_failed=True),
    Check("process-hygiene", (ANY,), endings.judge_leftovers, also_failed=True),
)

BY_CHECK: dict[str, Check] = {check.name: check for check in CHECKLIST}
