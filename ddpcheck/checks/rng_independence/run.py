"""Do random streams differ where they must? rng-independence: dropout and augmentation, rank by rank, pass by pass."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ddpcheck import evidence as ev
from ddpcheck.checks.rng_independence import after_batches, forwards, recomputed, states
from ddpcheck.checks.rng_independence.states import APART, Drawn, Hits
from ddpcheck.facts.passes import Line, Pass, data_groups, loops
from ddpcheck.facts.readers import readers
from ddpcheck.judging.values_by_key import by_key
from ddpcheck.judging.world import Judged, World
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import ranks_text

_NAMES = {"torch": "torch's", "cuda": "torch's (cuda)", "numpy": "numpy's", "python": "Python's"}
_NOTHING = "no random numbers were seen to be drawn in a forward, or while samples were fetched"
_UNCOMPARED = "no moment was seen at which all ranks that read different data drew random numbers"
_BY_SAMPLE = "no random numbers were seen but those of samples that set the state by seeds of their own"
"""Why nothing was checked."""


WORKERS = (
    "Seed the workers with torch.initial_seed() % 2**32, which torch gives each of them anew in every epoch, "
    "after torch.manual_seed(seed + rank) in the ranks; or add the rank and the epoch to the worker's seed."
)


def judge(world: World) -> Judged:
    """Compare the states that each rank drew from with the other ranks', and with those of its earlier passes."""
    groups, wrapped = data_groups(world)
    averaging = groups if wrapped else [[rank.rank for rank in one.ranks] for one in readers(world)]
    in_forwards = forwards.of_all(world)
    checked = sum(hits.complete for hits in in_forwards.values())
    by_sample = False
    fetches: dict[int, tuple[Line, Hits]] = {}
    for group in groups:
        for number, (line, hits) in enumerate(_fetches(world, group)):
            checked += hits.complete if any(set(group) <= set(ranks) for ranks in averaging) else 0
            by_sample |= hits.by_sample
            if hits.all:
                fetches.setdefault(number, (line, hits))
    findings = [*_findings(world, in_forwards, list(fetches.values())), *recomputed.judge(world)]
    again, of_batches = after_batches.judge(world)
    checked += again
    # Streams that are found alike elsewhere are told of by that.
    findings += of_batches if not findings else ()
    drew = any(one.consumed for rank in world for its in (rank.process, *rank.workers) for one in its.of(ev.Stream))
    checked = max(checked, *(one.count for one in findings)) if findings else checked
    because = _BY_SAMPLE if by_sample else _UNCOMPARED if drew else _NOTHING
    return Judged(checked=checked, findings=tuple(findings), skipped_because="" if checked else because)


# --- fetches


def _fetches(world: World, group: Sequence[int]) -> list[tuple[Line, Hits]]:
    """For each training loop: the fetches that drew from the same state on several ranks, or in several passes."""
    found = []
    for line in loops(world):
        hits = Hits()
        if line.training:
            _compare(line, {rank: passes for rank, passes in line.passes.items() if rank in group}, hits)
        found.append((line, hits))
    return found


def _compare(line: Line, passes: Mapping[int, Sequence[Pass]], hits: Hits) -> None:
    across: dict[tuple[str, int, int, int], list[Drawn]] = defaultdict(list)
    along: dict[tuple[int, str, int, int], list[Drawn]] = defaultdict(list)
    drawn_by = {rank: list(_drawn_by(ones)) for rank, ones in passes.items()}
    by_sample = _seeded_by_sample([drawn for ones in drawn_by.values() for drawn in ones])
    hits.by_sample = bool(by_sample)
    for rank in passes:
        for drawn in drawn_by[rank]:
            stream = drawn.stream
            if stream.inside and stream.kind in by_sample:
                continue
            worker = -1 if stream.worker is None else stream.worker
            # What a stream draws before its first sample may be the order of its files, which all ranks have to share.
            if line.loader is not None and line.loader.stream and stream.number == 0:
                continue
            across[stream.kind, drawn.place, worker, stream.number].append(drawn)
            along[rank, stream.kind, worker, stream.number].append(drawn)
    for _, drawn_there in sorted(across.items()):
        drew = len({drawn.rank for drawn in drawn_there})
        hits.compared += drew > 1
        hits.complete += drew == len(passes) > 1
        hits.equal += states.equal(drawn_there)
    for _, drawn_there in sorted(along.items()):
        if len(drawn_there) > 1:
            hits.repeated += states.equal(drawn_there)


def _seeded_by_sample(drawn: Iterable[Drawn]) -> set[str]:
    """The kinds of streams that are set within fetches, to another seed in each: as synthetic data are made.

    What a sample is made of does not depend on epochs then, and is no augmentation.
    """
    own = by_key(
        ((one.stream.kind, one.rank, one.place, one.stream.worker), one.seed) for one in drawn if one.stream.inside
    )
    found = {kind for (kind, *_), seeds in own.items() if len(set(seeds)) > 1}
    # Where a pass has one fetch, the other ranks have other samples.
    single: dict[tuple[str, int, int | None], set[str]] = defaultdict(set)
    for (kind, _, place, worker), seeds in own.items():
        if len(seeds) == 1:
            single[kind, place, worker].update(seeds)
    return found | {kind for (kind, *_), seeds in single.items() if len(seeds) > 1}


def _drawn_by(passes: Sequence[Pass]) -> Iterable[Drawn]:
    """What was drawn while the samples of these passes were fetched, by the rank itself or by its workers."""
    if not passes:
        return
    rank = passes[0].rank
    places = {(one.begun.loader, one.begun.number): place for place, one in enumerate(passes)}
    by_seed = {one.begun.base_seed: one for one in reversed(passes) if one.begun.base_seed is not None}
    for process in [rank.process, *rank.workers]:
        for stream in process.of(ev.Stream):
            if stream.where != "fetch" or not stream.consumed:
                continue
            key = (stream.loader, stream.pass_)
            if stream.loader is None and stream.base_seed in by_seed:
                begun = by_seed[stream.base_seed].begun
                key = (begun.loader, begun.number + (stream.pass_ or 0))
            place = places.get(key) if key[0] is not None else None  # type: ignore[arg-type]
            if place is not None:
                begun = passes[place].begun
                # Where torch has seeded a worker, that came from the stream of its rank.
                given = (rank.where(begun.seeded), begun.seed) if stream.worker is not None else None
                yield states.drawn(rank.rank, stream, process, place, given)


# --- findings


def _findings(world: World, in_forwards: Mapping[str, Hits], fetches: Sequence[tuple[Line, Hits]]) -> list[Finding]:
    """One finding for each cause: what one line has seeded goes together."""
    told: dict[str, list[tuple[str, Hits, Line | None]]] = defaultdict(list)
    for link, hits in in_forwards.items():
        if hits.equal:
            culprits = hits.culprits()
            told[str(culprits[0]) if culprits else "forward"].append((link, hits, None))
    for number, (line, hits) in enumerate(fetches):
        culprits = hits.culprits()
        told[str(culprits[0]) if culprits else f"fetch {number}"].append((line.link, hits, line))
    return [_finding(world, parts) for parts in told.values()]


def _finding(world: World, parts: Sequence[tuple[str, Hits, Line | None]]) -> Finding:
    culprits = list({str(site): site for _, hits, _ in parts for site in hits.culprits()}.values())
    ranks = tuple(sorted({rank for _, hits, _ in parts for rank in hits.ranks}))
    uses = [use for _, hits, line in parts if (use := _use(world, hits, line)) is not None]
    # The line that seeds, wherever it draws; of a function that seeds workers, the loader which it was given to.
    seeds = culprits[:1] if len(culprits) == 1 or not _by_workers(parts) else []
    where = next(iter([*seeds, *uses]), None)
    proof = [site for site in (*uses, *culprits) if site != where]
    only_repeats = not any(hits.equal for _, hits, _ in parts)
    stream = any(line is not None and line.loader is not None and line.loader.stream for _, _, line in parts)
    # Whose line was not seen, or is at work while samples are fetched, may be as it is meant to be.
    certain = bool(culprits) and not _inside(parts)
    return Finding(
        rule="same-draws-each-epoch" if only_repeats else "same-draws-on-ranks",
        # Many trainings do so by default, and learn all the same: more ranks draw no more than one would.
        severity="error" if only_repeats and certain and not stream else "warning",
        ranks=ranks,
        subject=_kinds([hit for _, hits, _ in parts for hit in hits.all]) + " random state",
        expected="random numbers that are others in every epoch"
        if only_repeats
        else "random numbers of its own on every rank",
        found="; ".join(_found(hits, line) for _, hits, line in parts),
        cause=_cause(parts, culprits),
        advice=_advice(parts, only_repeats),
        where=where,
        count=sum(hits.times for _, hits, _ in parts),
        proof=tuple((ranks[0], site) for site in dict.fromkeys(proof)),
        links=tuple(dict.fromkeys(link for link, _, _ in parts)),
    )


def _inside(parts: Sequence[tuple[str, Hits, Line | None]]) -> bool:
    """Whether some of it is seeded within the fetches themselves."""
    return any(drawn.stream.inside for _, hits, _ in parts for hit in hits.all for drawn in hit)


def _by_workers(parts: Sequence[tuple[str, Hits, Line | None]]) -> bool:
    """Whether it is a loader's workers alone that draw."""
    return all(drawn.stream.worker is not None for _, hits, _ in parts for hit in hits.all for drawn in hit)


def _use(world: World, hits: Hits, line: Line | None) -> CallSite | None:
    """The line that draws: of the forward, or of the loader for which samples are fetched."""
    if line is not None and line.loader is not None:
        return line.first.rank.where(line.loader.site) or line.first.where
    first = hits.all[0][0]
    rank = next((one for one in world if one.rank == first.rank), None)
    return rank.where(first.stream.site) if rank is not None else None


def _found(hits: Hits, line: Line | None) -> str:
    alike = hits.equal or hits.repeated
    ranks = " and on ".join(ranks_text(one) for one in dict.fromkeys(tuple(d.rank for d in hit) for hit in hits.equal))
    kinds = _kinds(alike)
    if line is None:
        return (
            f"the same state of {kinds} random numbers on {ranks} at the start of forwards that drew from it: "
            "dropout or noise is the same on them"
        )
    workers = {drawn.stream.worker for hit in alike for drawn in hit} - {None}
    by = " by the loader's workers" if workers else ""
    if hits.equal:
        again = ", and again in every epoch" if hits.repeated else ""
        return (
            f"the same state of {kinds} random numbers on {ranks} where samples were fetched{by}{again}: "
            "the same augmentation on them"
        )
    return (
        f"the same state of {kinds} random numbers on {ranks_text(hits.ranks)} in several epochs where samples were "
        f"fetched{by}: the augmentation of one epoch comes again in the next"
    )


def _kinds(hits: Sequence[Sequence[Drawn]]) -> str:
    names = list(dict.fromkeys(_NAMES[drawn.stream.kind] for hit in hits for drawn in hit))
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _cause(parts: Sequence[tuple[str, Hits, Line | None]], culprits: Sequence[CallSite]) -> str:
    if any(hits.restored for _, hits, _ in parts) and culprits:
        return "the random state of one rank was restored on all of them"
    equal = any(hits.equal for _, hits, _ in parts)
    if len(culprits) == 1 and _inside(parts):
        return f"the seed that is set at {culprits[0].file}:{culprits[0].line} is the same for every sample"
    if len(culprits) == 1:
        lacks = "does not depend on the rank" if equal else "is the same in every epoch"
        through = f" (in {culprits[0].through[0]})" if culprits[0].through else ""
        return f"the seed that is set at {culprits[0].file}:{culprits[0].line}{through} {lacks}"
    if culprits and _by_workers(parts):
        return "the workers are seeded without regard to the " + ("rank" if equal else "epoch")
    if culprits:
        lines = " and ".join(f"{site.file}:{site.line}" for site in culprits[:3])
        lack = "do not depend on the rank" if equal else "are the same in every epoch"
        return f"the seeds that are set at {lines} {lack}"
    if not equal:
        return "a line that was not seen sets them to the same in every epoch"
    return "their generators were synchronised, or never seeded apart"


def _advice(parts: Sequence[tuple[str, Hits, Line | None]], only_repeats: bool) -> str:
    if any(hits.restored for _, hits, _ in parts):
        return "Save the random state of every rank, and let each restore its own."
    if any(d.stream.worker is not None and d.stream.seeded for _, hits, _ in parts for hit in hits.all for d in hit):
        return WORKERS
    if only_repeats and _inside(parts):
        return "Let the seed depend on the sample, and on the epoch if it is augmented; or seed once, before the first."
    if only_repeats:
        return "Let the seed depend on the epoch, or seed once, before the first."
    return APART
