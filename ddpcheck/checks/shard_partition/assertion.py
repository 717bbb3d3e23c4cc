"""Do the ranks share the dataset out among them? Judge of shard-partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from ddpcheck.checks.shard_partition import sampler_causes
from ddpcheck.checks.shard_partition.causes import NEARLY_ALL
from ddpcheck.evidence.epochs import ShardFacts
from ddpcheck.relations.overlap import UNAWARE
from ddpcheck.vocabulary.model import Finding, Question
from ddpcheck.vocabulary.wording import count, ranks_text


def judge(said: Sequence[Any], rounds: Sequence[Sequence[Any]]) -> tuple[Finding, ...] | Question:
    """Compare the ranks' samples: none twice but for padding, none missing but for what drop_last drops.

    ``said`` holds a ShardFacts of every rank as plain data. Where a sample
    seems to come twice, or the ranks' datasets differ in places, every rank is
    asked how often its dataset holds the samples in question.
    """
    facts = _on_one_basis([msgspec.convert(one, ShardFacts) for one in said])
    if not any(len(f.prints) > (f.dropped or 0) for f in facts):
        return (
            _finding(
                facts,
                "the loader",
                "no sample on any rank: nothing was checked",
                _NOTHING,
                range(len(facts)),
                rule="no-samples-read",
            ),
        )
    sizes = {f.size for f in facts}
    if len(sizes) > 1:
        shown = ", ".join(f"{f.size} on rank {r}" for r, f in enumerate(facts))
        found = f"datasets of different sizes: {shown}"
        return (_finding(facts, "the dataset", found, _SAME_DATA, range(len(facts)), rule="different-dataset-sizes"),)
    seen = Counter(p for f in facts for p in f.prints)
    repeated = [p for p, n in seen.items() if n > 1]
    differ = _differ(facts)
    about = list(seen) if differ else repeated
    if about and not rounds:
        return Question(ask="occurrences", about=about)
    strange = _strange(about, rounds) if differ else {}
    # Where no two ranks have the same dataset, it may lie in the samples that they differ.
    if strange and (len(strange) < len(seen) or len({tuple(f.probes or ()) for f in facts}) < len(facts)):
        return (_different_data(facts, strange, len(seen)),)
    held = _held(about, rounds)
    excess = {p: seen[p] - held.get(p, 1) for p in repeated if seen[p] > held.get(p, 1)}
    surplus = sum(excess.values())
    padding = _padding(facts)
    if surplus > padding:
        return (_overlap(facts, excess, padding),)
    missing = 0 if facts[0].size is None else facts[0].size - (sum(seen.values()) - surplus)
    allowed = _may_be_dropped(facts)
    if missing > allowed:
        return (_gap(facts, missing, allowed),)
    return (_nothing_in_common(facts),) if strange else ()


_NOTHING = "Pass a loader that yields samples on some rank."
_SAME_DATA = "Let every rank build its dataset from the same data, in the same order."
_DIFFERENT_DATA = (
    "Let every rank build its dataset from the same data, in the same order: give random splits and generated data a "
    "generator with the same seed everywhere."
)
_NOTHING_IN_COMMON = (
    f"{_DIFFERENT_DATA} If the data are the same, and their samples carry something of the rank (a path, a cached "
    "augmentation), pass dataset= without it."
)


def _finding(
    facts: Sequence[ShardFacts],
    subject: str,
    found: str,
    advice: str,
    ranks: Sequence[int],
    cause: str = "",
    *,
    rule: str,
) -> Finding:
    basis = "" if all(f.by_content for f in facts) else " (by index: a sample is another each time it is read)"
    return Finding(
        rule=rule,
        ranks=tuple(ranks),
        subject=subject,
        expected=f"each sample of the dataset in the epoch of one rank{basis}",
        found=found,
        cause=cause,
        advice=advice,
    )


def _on_one_basis(facts: list[ShardFacts]) -> list[ShardFacts]:
    """Where a sample is another each time on some rank, let indices stand for samples on all."""
    if all(f.by_content for f in facts) or any(f.indices is None for f in facts):
        return facts
    return [replace(f, prints=[f"index {i}" for i in f.indices or ()], by_content=False) for f in facts]


def _held(about: Sequence[str], rounds: Sequence[Sequence[Any]]) -> dict[str, int]:
    """How often a dataset itself holds each of these samples: equal rows are no overlap."""
    answers = [msgspec.convert(answer, list[int]) for answer in rounds[0] if answer is not None] if about else []
    return {p: max(held) for p, *held in zip(about, *answers, strict=True)} if answers else {}


def _differ(facts: Sequence[ShardFacts]) -> bool:
    """Whether the ranks that share one dataset out are seen to have different ones, or different orders of one.

    That is in half of the places at least: now and then a sample may be another.
    """
    if not all(f.by_content and f.sampler.distributed and f.probes is not None for f in facts):
        return False
    places = list(zip(*(f.probes or () for f in facts), strict=True))
    differing = sum(all(place) and len(set(place)) > 1 for place in places)
    return differing > 0 and 2 * differing >= len(places)


def _strange(about: Sequence[str], rounds: Sequence[Sequence[Any]]) -> dict[str, list[int]]:
    """The samples that some rank's dataset lacks, each with these ranks; none where a dataset could not be read."""
    if any(answer is None for answer in rounds[0]):
        return {}
    answers = [msgspec.convert(answer, list[int]) for answer in rounds[0]]
    lacking = {p: [r for r, held in enumerate(answers) if not held[i]] for i, p in enumerate(about)}
    return {p: ranks for p, ranks in lacking.items() if ranks}


def _padding(facts: Sequence[ShardFacts]) -> int:
    """Samples that may come twice, so that all ranks have equally many."""
    size, world = facts[0].size, len(facts)
    if size is None or not facts[0].sampler.distributed or facts[0].sampler.drop_last:
        return 0
    return -size % world


def _may_be_dropped(facts: Sequence[ShardFacts]) -> int:
    """Samples that may be missing: the sampler's remainder, and each rank's incomplete batch."""
    size, world = facts[0].size or 0, len(facts)
    remainder = size % world if facts[0].sampler.drop_last else 0
    return remainder + sum(_dropped_batch(f) for f in facts if f.drops_batch and f.dropped is None)


def _dropped_batch(f: ShardFacts) -> int:
    """How many samples the loader's drop_last may have dropped on this rank."""
    most = (f.batch_size or 1) - 1
    if f.sampler.positions is None:
        return most
    dropped = max(0, f.sampler.positions - len(f.prints))
    return dropped if f.batch_size is None else min(dropped, most)


def _different_data(facts: Sequence[ShardFacts], strange: dict[str, list[int]], seen: int) -> Finding:
    example, lacking = next(iter(strange.items()))
    owners = [rank for rank, f in enumerate(facts) if example in f.prints]
    found = (
        f"datasets of one size that hold different samples: {len(strange):,} of the {count(seen, 'sample')} read "
        f"{'are' if len(strange) > 1 else 'is'} not in every rank's; for example {_name(facts, example)} of "
        f"{ranks_text(owners)}, which {ranks_text(lacking)} {'does' if len(lacking) == 1 else 'do'} not hold"
    )
    ranks = sorted({*owners, *(r for rs in strange.values() for r in rs)})
    return _finding(facts, "the dataset", found, _DIFFERENT_DATA, ranks, rule="different-datasets")


def _nothing_in_common(facts: Sequence[ShardFacts]) -> Finding:
    """A warning: each rank may have data of its own by mistake, or samples that carry something of their rank."""
    found = (
        "datasets of one size that have no sample in common: by index they are shared out, and the same index is "
        "another sample on each rank"
    )
    finding = _finding(facts, "the dataset", found, _NOTHING_IN_COMMON, range(len(facts)), rule="no-common-samples")
    return replace(finding, severity="warning")


def _overlap(facts: Sequence[ShardFacts], excess: dict[str, int], padding: int) -> Finding:
    owners: dict[str, set[int]] = {p: set() for p in excess}
    for rank, f in enumerate(facts):
        for p in f.prints:
            if p in owners:
                owners[p].add(rank)
    example = next((p for p, ranks in owners.items() if len(ranks) > 1), next(iter(excess)))
    ranks = sorted(set().union(*owners.values()))
    total = sum(len(f.prints) for f in facts)
    surplus = sum(excess.values())
    times = sum(f.prints.count(example) for f in facts)
    by = ranks_text(owners[example])
    where = f"seen by {by}" if len(owners[example]) > 1 else f"seen {times} times by {by}"
    share = f"{100 * surplus / total:.0f} %"
    beyond = f", where padding explains {padding}" if padding else ""
    found = (
        f"{surplus:,} of the {total:,} samples read ({share}) to be repetitions{beyond}; "
        f"for example {_name(facts, example)}, {where}"
    )
    return _finding(facts, _name(facts, example), found, _advice(facts), ranks, _cause(facts), rule="repeated-samples")


def _name(facts: Sequence[ShardFacts], print_: str) -> str:
    """A sample for a person: its index on the first rank that has it, or its fingerprint."""
    for f in facts:
        if f.indices is not None and print_ in f.prints:
            return f"sample {f.indices[f.prints.index(print_)]}"
    return f"the sample with fingerprint {print_}"


def _cause(facts: Sequence[ShardFacts]) -> str:
    blind = [f.sampler.kind for f in facts if not f.sampler.distributed]
    if not blind:
        return _why(facts).cause
    each = [set(f.prints) for f in facts]
    same = len(set.intersection(*each)) >= NEARLY_ALL * max(map(len, each))
    return sampler_causes.unaware(blind[0], same) if same or blind[0] in UNAWARE else ""


def _advice(facts: Sequence[ShardFacts]) -> str:
    aware = all(f.sampler.distributed for f in facts)
    return _why(facts).fix if aware else sampler_causes.UNAWARE_ADVICE


def _why(facts: Sequence[ShardFacts]) -> sampler_causes.Why:
    indices = [i for f in facts for i in f.indices or ()]
    known = all(f.indices is not None for f in facts)
    in_common = len(indices) - len(set(indices)) > _padding(facts) if known else None
    return sampler_causes.why([f.sampler for f in facts], (), in_common)


def _gap(facts: Sequence[ShardFacts], missing: int, allowed: int) -> Finding:
    size = facts[0].size or 0
    by_drop = f", where drop_last explains {allowed}" if allowed else ""
    found = f"{missing:,} of {count(size, 'sample')} in no rank's epoch{by_drop}"
    given = {f.sampler.num_replicas for f in facts}
    cause = _cause(facts) if facts[0].sampler.distributed and given != {len(facts)} else ""
    missing_index = _first_missing(facts)
    subject = f"sample {missing_index}" if missing_index is not None else "the dataset"
    if missing_index is not None:
        found += f"; the first is sample {missing_index}"
    advice = "Make the sampler for as many ranks as there are, each with its own rank from 0 to world_size - 1."
    if not cause:
        advice = "See why the sampler leaves samples out that neither its drop_last nor the loader's explains."
    return _finding(facts, subject, found, advice, range(len(facts)), cause, rule="missing-samples")


def _first_missing(facts: Sequence[ShardFacts]) -> int | None:
    if facts[0].size is None or any(f.indices is None for f in facts):
        return None
    there = {i for f in facts for i in f.indices or ()}
    return next((i for i in range(facts[0].size) if i not in there), None)
