"""Is what several ranks go through one dataset? Read from the samples that they have met at the same index."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from ddpcheck import evidence as ev
from ddpcheck.facts.passes import Line, Pass
from ddpcheck.vocabulary.model import Struct

ENOUGH = 4
"""Places in common that tell something."""


class Identity(Struct, frozen=True, kw_only=True):
    """What the passes show of the datasets of their ranks."""

    same: bool
    """The same index is the same sample on every rank."""
    different: bool
    """It is another one on every rank."""
    random: bool
    """A sample is another each time it is read."""
    stable: bool
    """A sample looks the same whenever it is read, so that those that look different are different samples."""


def identity_of(passes: Iterable[Pass]) -> Identity:
    """Compare what the ranks have met at the same index, and each rank what it met there twice."""
    passes = list(passes)
    prints: dict[int, dict[int, set[bytes]]] = defaultdict(lambda: defaultdict(set))
    labels: dict[int, dict[int, set[bytes]]] = defaultdict(lambda: defaultdict(set))
    for one in passes:
        for sample in one.samples:
            if sample.place is not None and sample.print_ is not None:
                prints[sample.place][one.rank.rank].add(sample.print_)
                if sample.label is not None:
                    labels[sample.place][one.rank.rank].add(sample.label)
    common = [list(by_rank.values()) for by_rank in prints.values() if len(by_rank) > 1]
    agreeing = sum(bool(set.intersection(*found)) for found in common)
    changing = sum(len(found) > 1 for by_rank in prints.values() for found in by_rank.values())
    random = changing > 0 or any(_draws(one) for one in passes)
    same = bool(common) and 2 * agreeing >= len(common)
    stable = same or not random or _comes_again(passes)
    alike = not same and _labels_agree([list(by_rank.values()) for by_rank in labels.values() if len(by_rank) > 1])
    same = same or (random and alike)
    return Identity(
        same=same,
        different=not same and not random and not alike and len(common) >= ENOUGH and agreeing == 0,
        random=random,
        stable=stable,
    )


def single_prints(line: Line) -> set[bytes]:
    """What the data hold once: in some pass that all ranks have gone through to its end, it came once."""
    found: set[bytes] = set()
    for _, passes in line.rounds():
        if len(passes) == len(line.passes) and all(one.whole for one in passes.values()):
            times = Counter(s.print_ for one in passes.values() for s in one.samples if s.print_ is not None)
            found.update(print_ for print_, number in times.items() if number == 1)
    return found


def by_index(passes: Sequence[Pass], identity: Identity) -> bool:
    """Whether indices stand for samples: the datasets are seen to be one, or are taken for one by their samplers."""
    if not all(s.place is not None for one in passes for s in one.samples):
        return False
    if identity.same or identity.different:
        return identity.same
    blind = not identity.stable or not any(s.print_ for one in passes for s in one.samples)
    return blind and all(one.loader is not None and one.loader.distributed for one in passes)


def _comes_again(passes: Sequence[Pass]) -> bool:
    """Whether most of what was read in a pass looks like a sample of another one, on any rank."""
    each: dict[int, set[bytes]] = defaultdict(set)
    for one in passes:
        each[one.begun.number].update(sample.print_ for sample in one.samples if sample.print_ is not None)
    times = Counter(print_ for prints in each.values() for print_ in prints)
    again = sum(n for n in times.values() if n > 1)
    return again >= ENOUGH and 2 * again >= sum(times.values())


def _draws(one: Pass) -> bool:
    """Whether random numbers were used while its samples were fetched."""
    processes = [one.rank.process, *one.rank.workers]
    return any(
        stream.where == "fetch" and stream.consumed and stream.loader in (one.begun.loader, None)
        for process in processes
        for stream in process.of(ev.Stream)
    )


def _labels_agree(common: list[list[set[bytes]]]) -> bool:
    """Whether the labels are the same ones at the same places, and not by chance."""
    agreeing = [found for found in common if set.intersection(*found)]
    kinds = {label for found in agreeing for label in found[0]}
    return len(agreeing) >= max(ENOUGH, 0.9 * len(common)) and len(kinds) > 1
