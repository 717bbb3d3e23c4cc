"""Does the order of the training data change from epoch to epoch of a script's run? epoch-reshuffle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ddpcheck import evidence as ev
from ddpcheck.checks.epoch_reshuffle import causes
from ddpcheck.checks.epoch_reshuffle.causes import NO_CHANCE
from ddpcheck.checks.epoch_reshuffle.rows import ROWS
from ddpcheck.checks.sample_rows import read_samples
from ddpcheck.evidence.epochs import SamplerPass
from ddpcheck.facts import model_inputs, worker_copies
from ddpcheck.facts.passes import Pass, loops, no_loader
from ddpcheck.judging.world import Judged, World
from ddpcheck.relations import once
from ddpcheck.vocabulary.model import CallSite, Finding

Key = tuple[str, str, int, str]


def judge(world: World) -> Judged:
    """Compare the orders of each rank's training passes over one dataset with each other.

    Where every epoch has a loader of its own, the line that makes it is what they have in common.
    """
    trained: dict[Key, dict[int, list[Pass]]] = defaultdict(lambda: defaultdict(list))
    links: dict[Key, str] = {}
    for line in loops(world):
        if line.training:
            for rank, passes in line.passes.items():
                for one in passes:
                    loader = one.loader
                    if loader is not None and one.ended is not None and one.ended.order:
                        made = one.rank.where(loader.site)
                        key = (str(made), str(one.where), loader.dataset_id, loader.sampler)
                        trained[key][rank].append(one)
                        links.setdefault(key, line.link)
    checked = repeated = 0
    findings = []
    for key, by_rank in trained.items():
        repeated += max(len(passes) - 1 for passes in by_rank.values())
        for passes in by_rank.values():
            passes.sort(key=lambda one: one.begun.n)
        checked += min(
            causes.compared([*map(_told, passes)], _is_distributed(passes)) if _shuffles(passes) else 0
            for passes in by_rank.values()
        )
        finding = _repeated(by_rank, links[key]) or _never_shuffled(by_rank, links[key])
        if finding is not None:
            findings.append(finding)
    deviations = [*once.outdated(worker_copies.of(world)), *once.replays(model_inputs.replays(world))]
    findings += read_samples(deviations, ROWS)
    because = no_loader(world) or "no shuffled loader was seen to go through equally many samples twice in training"
    # What a finding counts has been compared.
    checked = max([checked, *(finding.count for finding in findings)])
    return Judged(
        checked=checked, of=max(repeated, checked), findings=tuple(findings), skipped_because="" if checked else because
    )


def _shuffles(passes: Sequence[Pass]) -> bool:
    return all(one.loader is not None and one.loader.shuffle for one in passes)


def _is_distributed(passes: Sequence[Pass]) -> bool:
    return all(one.loader is None or one.loader.distributed for one in passes)


def _told(one: Pass) -> SamplerPass:
    assert one.ended is not None
    return SamplerPass(epoch=one.begun.epoch, order=one.ended.order, length=one.ended.samples)


def _repeated(by_rank: dict[int, list[Pass]], link: str) -> Finding | None:
    """A sampler that shuffles, and gives one order in several epochs."""
    found = {
        rank: pair
        for rank, passes in by_rank.items()
        if _shuffles(passes) and (pair := causes.repetition([*map(_told, passes)], _is_distributed(passes))) is not None
    }
    if not found:
        return None
    rank, (a, b) = next(iter(sorted(found.items())))
    passes = by_rank[rank]
    loader = passes[a].loader
    kind = loader.sampler if loader is not None else "sampler"
    distributed = _is_distributed(passes)
    cause, advice = causes.why(_told(passes[a]), _told(passes[b]), distributed)
    seeded = None if distributed else _seeded(passes[a], passes[b])
    if seeded is not None:
        cause += f": it is set at {seeded.file}:{seeded.line} before each of them"
    return Finding(
        rule="same-order-each-epoch",
        ranks=tuple(sorted(found)),
        subject=f"the {kind}",
        expected="another order of the samples in every epoch",
        found=f"passes {a + 1} and {b + 1} through the {kind} in the same order",
        cause=cause,
        advice=advice,
        where=passes[b].where,
        count=len(passes) - len({one.ended.order for one in passes if one.ended is not None}),
        proof=(*_made(passes[b]), *(((rank, seeded),) if seeded is not None else ())),
        links=(f"epochs of {link}",),
    )


def _never_shuffled(by_rank: dict[int, list[Pass]], link: str) -> Finding | None:
    """Training data that a distributed sampler gives in one order all the time, because it was told to."""
    for passes in by_rank.values():
        if len(passes) < 2 or not all(_told_not_to(one.loader) for one in passes):
            return None
        if len({(one.ended.order, one.ended.samples) for one in passes if one.ended is not None}) != 1:
            return None
        if passes[0].ended is None or passes[0].ended.samples < NO_CHANCE or _dataset_shuffles(passes):
            return None
    rank = min(by_rank)
    first = by_rank[rank][0]
    loader = first.loader
    if loader is None:
        return None
    made = first.rank.where(loader.sampler_site) or first.rank.where(loader.site)
    return Finding(
        rule="unshuffled-training-data",
        severity="warning",
        ranks=tuple(sorted(by_rank)),
        subject=f"the {loader.sampler}",
        expected="training data in another order in every epoch",
        found=f"a {loader.sampler} with shuffle=False, and {len(by_rank[rank])} training passes in the same order",
        advice="Give the sampler of the training data shuffle=True, and call its set_epoch(epoch) in every epoch, "
        "unless the order of the samples has a meaning.",
        where=made,
        count=len(by_rank[rank]) - 1,
        proof=first.rank.proof(first.begun.site),
        links=(f"epochs of {link}",),
    )


def _told_not_to(loader: ev.Loader | None) -> bool:
    return loader is not None and loader.distributed and loader.shuffle is False and loader.batch_size is not None


def _dataset_shuffles(passes: Sequence[Pass]) -> bool:
    """Whether the dataset has another sample at the same index in another epoch: it shuffles by itself."""
    known: dict[int, tuple[bytes | None, bytes | None]] = {}
    equal = changed = 0
    for one in passes:
        for sample in one.samples:
            if sample.place is None or sample.print_ is None:
                continue
            before = known.get(sample.place)
            if before is None:
                known[sample.place] = (sample.print_, sample.label)
                continue
            same = before[0] == sample.print_ or (before[1] is not None and before[1] == sample.label)
            equal += same
            changed += not same
    return changed > equal


def _seeded(first: Pass, second: Pass) -> CallSite | None:
    """The line that has set the random state of both passes, to the same: their orders are drawn from it."""
    lines = {one.rank.where(one.begun.seeded) for one in (first, second)}
    same = len(lines) == 1 and first.begun.seed == second.begun.seed
    return lines.pop() if same else None


def _made(one: Pass) -> tuple[tuple[int, CallSite], ...]:
    loader = one.loader
    return one.rank.proof(loader.sampler_site or loader.site) if loader is not None else ()
