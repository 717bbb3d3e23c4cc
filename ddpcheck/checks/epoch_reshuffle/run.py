"""Does the order of the training data change from epoch to epoch of a script's run? epoch-reshuffle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise

from ddpcheck.checks.epoch_reshuffle import causes
from ddpcheck.checks.epoch_reshuffle.rows import ROWS
from ddpcheck.checks.sample_rows import read_samples
from ddpcheck.evidence.epochs import SamplerPass
from ddpcheck.facts import model_inputs, worker_copies
from ddpcheck.facts.passes import Pass, loops, no_loader
from ddpcheck.judging.world import Judged, World
from ddpcheck.relations import once
from ddpcheck.vocabulary.model import CallSite, Finding

Course = dict[int, list[Pass]]
"""By rank: passes through one dataset, one after the other."""


def judge(world: World) -> Judged:
    """Compare the orders of each rank's training passes over one dataset with each other."""
    checked = repeated = 0
    findings = []
    for link, course in _courses(world):
        repeated += max(len(passes) - 1 for passes in course.values())
        checked += min(
            causes.compared([*map(_told, passes)], _is_distributed(passes)) if _shuffles(passes) else 0
            for passes in course.values()
        )
        if (finding := _repeated(course, link)) is not None:
            findings.append(finding)
    deviations = [*once.old_copies(worker_copies.of(world)), *once.replays(model_inputs.replays(world))]
    findings += read_samples(deviations, ROWS)
    because = no_loader(world) or "no shuffled loader was seen to go through equally many samples twice in training"
    # What a finding counts has been compared.
    checked = max([checked, *(finding.count for finding in findings)])
    because = "" if checked else because
    return Judged(checked=checked, of=max(repeated, checked), findings=tuple(findings), skipped_because=because)


def _courses(world: World) -> Iterator[tuple[str, Course]]:
    """With the link of a loader. Where every epoch has a loader of its own, they have in common the line that makes it.

    Loaders of one line that are gone through side by side have a course each.
    """
    found: dict[tuple[object, ...], Course] = defaultdict(lambda: defaultdict(list))
    links: dict[tuple[object, ...], str] = {}
    for line in (line for line in loops(world) if line.training):
        for rank, one in ((rank, one) for rank, passes in line.passes.items() for one in passes):
            if one.loader is not None and one.ended is not None and one.ended.order:
                made = one.rank.where(one.loader.site)
                key: tuple[object, ...] = str(made), str(one.where), one.loader.dataset_id, one.loader.sampler
                found[key][rank].append(one)
                links.setdefault(key, line.link)
    for its, course in found.items():
        for passes in course.values():
            passes.sort(key=lambda one: one.begun.n)
        if not any(one.is_beside(later) for passes in course.values() for one, later in pairwise(passes)):
            yield links[its], course
            continue
        for turn in range(max(len({one.begun.loader for one in passes}) for passes in course.values())):
            own = {rank: _of_loader(passes, turn) for rank, passes in course.items()}
            yield links[its], {rank: passes for rank, passes in own.items() if passes}


def _of_loader(passes: Sequence[Pass], turn: int) -> list[Pass]:
    """Those through the first loader, the second, and so on."""
    loader = next(islice(dict.fromkeys(one.begun.loader for one in passes), turn, None), None)
    return [one for one in passes if one.begun.loader == loader]


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


def _seeded(first: Pass, second: Pass) -> CallSite | None:
    """The line that has set the random state of both passes, to the same: their orders are drawn from it."""
    lines = {one.rank.where(one.begun.seeded) for one in (first, second)}
    same = len(lines) == 1 and first.begun.seed == second.begun.seed
    return lines.pop() if same else None


def _made(one: Pass) -> tuple[tuple[int, CallSite], ...]:
    loader = one.loader
    return one.rank.proof(loader.sampler_site or loader.site) if loader is not None else ()
