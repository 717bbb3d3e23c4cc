"""Do the ranks of a script's run share the data of each training pass out among them? shard-partition."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence

from msgspec.structs import replace

from ddpcheck import evidence as ev
from ddpcheck.checks.sample_rows import read_samples
from ddpcheck.checks.shard_partition import causes, left_out_samples, one_copy, sequences
from ddpcheck.checks.shard_partition.data_grounds import NO_COPIES, share_out, why_ungrounded
from ddpcheck.checks.shard_partition.parts_of_batches import sharers
from ddpcheck.checks.shard_partition.rows import ROWS
from ddpcheck.checks.shard_partition.unintended_data import sampler_lost
from ddpcheck.facts import model_inputs, positions
from ddpcheck.facts.datasets import Identity, by_index, identity_of, single_prints
from ddpcheck.facts.passes import Line, Pass, Sample, beside, data_groups, every_pass, loops, no_loader, shared_passes
from ddpcheck.facts.readers import readers
from ddpcheck.judging.values_by_key import by_key
from ddpcheck.judging.world import Judged, World
from ddpcheck.relations import once
from ddpcheck.vocabulary.model import Finding, Struct
from ddpcheck.vocabulary.wording import ranks_text

SOME = 0.12
"""The part of the samples that may come twice where no sampler of torch's says how it evens the ranks out."""
NEARLY_ALL = 0.9
ROUNDS = 8
"""How many passes that every rank has been through are compared."""
AT_LEAST = 4
"""Samples; fewer that are equal may be so by chance."""

PARTS = "ranks read the same samples, and it was not seen whether what they gave their models makes up the whole"
UNRECOGNISED = "it was not seen which ranks read the same: samples may look different each time they are read"
REPLACED = "samples of one rank look alike or come several times, and it was not seen which ranks read the same"
OWN_OR_PARTS = "ranks had different content at the same index, and it was not seen whether it is parts of one sample"
UNSEEN_PARTS = "ranks read the same samples, and it was not seen on their devices which parts of them they used"
FEW = "ranks gave their models the same inputs in some of the forwards compared, and it was not seen whether on purpose"
INPUTS = "no DataLoader was seen, and different inputs of the ranks' models do not show how samples are shared out"
"""Why nothing was checked."""

Draw = dict[int, list[Hashable]]
"""By rank: what stands for each sample, in order."""


class Overlap(Struct, frozen=True, kw_only=True):
    """Samples that came on several ranks in one round of passes."""

    number: int
    """The round."""
    compared: int
    surplus: int
    padding: int
    ranks: tuple[int, ...]
    example: str
    on: tuple[int, ...]
    by_index: bool
    in_order: bool = False
    """The ranks had the same samples in the same order."""
    certain: bool = True
    """So many are not given twice on purpose."""


def judge(world: World) -> Judged:
    """Compare the passes of the ranks that train replicas of one model, loop by loop."""
    groups, wrapped = data_groups(world)
    if not wrapped:
        groups = [[rank.rank for rank in one.ranks] for one in readers(world)]
    training = [line for line in loops(world) if line.training]
    communicate = any(rank.of(ev.Call) for rank in world)
    checked = 0
    findings: list[Finding] = []
    reasons: list[str] = []
    for group in groups:
        for line in training:
            if wrapped and communicate and line.alone:
                continue
            times, found, because = _judge_line(world, line, group, wrapped)
            ungrounded = "" if found or not times else why_ungrounded(line, groups)
            checked += 0 if ungrounded else times
            findings += found
            reasons += [because, ungrounded]
    told = {link for finding in findings for link in finding.links}
    findings += [finding for finding in sampler_lost(every_pass(world)) if told.isdisjoint(finding.links)]
    findings += one_copy.judge(world, training)
    findings += sequences.judge(world)
    deviations = [*once.positions(positions.of(world)), *once.repetitions(beside(world))]
    deviations += once.empties(training, world.world_size)
    deviations += once.workers([line for line in training if line.link not in told])
    made = shared_passes(training, groups)
    if not training:
        given = model_inputs.of(world)
        deviations += once.shared(given)
        reasons.append(FEW if any(one.equal for one in given) else INPUTS if given else "")
    read = read_samples(deviations, ROWS)
    findings += read
    if checked and not findings and (because := positions.unknown(world)):
        checked, reasons = 0, [because]
    reasons += [NO_COPIES if training and not groups else "", no_loader(world)]
    because = next(filter(None, reasons), "no two ranks were seen to train with one loader")
    # What a finding counts has been compared.
    checked = max([checked, *(finding.count for finding in read)])
    because = "" if checked else because
    return Judged(checked=checked, of=max(made, checked), findings=tuple(findings), skipped_because=because)


def _judge_line(world: World, line: Line, ranks: Sequence[int], wrapped: bool) -> tuple[int, list[Finding], str]:
    """Judge the passes of one training loop, for the ranks that train replicas of one model.

    How many passes were compared, what was found, and why passes were not compared.
    """
    there = everyone = {rank: line.passes[rank] for rank in ranks if rank in line.passes}
    looked = [[one for one in passes if one.samples][:ROUNDS] for passes in there.values()]
    identity = identity_of([one for passes in looked for one in passes])
    # Ranks that take their parts of one batch count as one.
    apart = sharers(there, identity, wrapped).union(there.keys() & set(sequences.others(world)))
    there = {rank: passes for rank, passes in there.items() if rank not in apart}
    because = PARTS if apart else ""
    compared = {
        number
        for number, passes in line.rounds()
        if any(sequences.is_compared(world, one) for rank, one in passes.items() if rank in everyone)
    }
    single = single_prints(line)
    overlaps: list[Overlap] = []
    gap: Finding | None = None
    epochs: dict[int, left_out_samples.Epoch] = {}
    looked_at = 0
    for number, passes in line.rounds():
        shared = {rank: one for rank, one in passes.items() if rank in there and one.samples}
        if len(shared) < 2 or looked_at == ROUNDS:
            continue
        looked_at += 1
        found = _overlap(number, shared, identity, single)
        if isinstance(found, Overlap):
            overlaps.append(found)
        elif found:
            because = because or found
            continue
        elif world.complete and len(shared) + len(apart) == len(ranks):
            everyones = {rank: ones[number] for rank, ones in line.passes.items() if number < len(ones)}
            gap = gap or left_out_samples.left_out(line, everyones)
            epoch = left_out_samples.own_epoch(shared)
            epochs |= {number: epoch} if epoch is not None else {}
        compared.add(number)
    loaders = {rank: passes[0].loader for rank, passes in there.items()}
    if overlaps and not wrapped and sequences.unseen(world).intersection(there):
        return 0, [], UNSEEN_PARTS
    if overlaps:
        return len(compared), [_overlapping(world, line, overlaps, loaders, identity, wrapped)], because
    if gap is not None:
        return len(compared), [gap], because
    if identity.different:
        if share_out(loaders) and identity.stable:
            return len(compared), [_nothing_in_common(line, tuple(there))], because
        return 0, [], OWN_OR_PARTS
    # That no two ranks had the same samples is not all that there is to hold.
    partly = left_out_samples.in_part(line, epochs, identity)
    return len(compared - partly), [], because or (left_out_samples.IN_PART if partly else "")


# --- overlap


def _overlap(
    number: int, passes: Mapping[int, Pass], identity: Identity, single: Collection[Hashable]
) -> Overlap | str:
    """What several ranks had in one round; else why that was not seen, or nothing where they had nothing in common."""
    indexed = by_index(list(passes.values()), identity)
    stands: Callable[[Sample], Hashable | None] = (lambda s: s.place) if indexed else (lambda s: s.print_)
    draw: Draw = {
        rank: [key for s in one.samples if (key := stands(s)) is not None] for rank, one in sorted(passes.items())
    }
    if sum(1 for keys in draw.values() if keys) < 2:
        return UNRECOGNISED
    loaders = [one.loader for one in passes.values()]
    replaces = any(loader is not None and loader.repeats for loader in loaders)
    padding = _padding(passes)
    epoch = None if replaces else _one_epoch(draw, loaders[0], padding or 0)
    if epoch is None:
        return _same_sequence(number, passes, draw, indexed) or REPLACED
    again = sum(n - 1 for keys in epoch.values() for key, n in Counter(keys).items() if indexed or key not in single)
    seen = Counter(key for keys in epoch.values() for key in set(keys))
    surplus = sum(n - 1 for n in seen.values())
    possible = sum(len(set(keys)) for keys in epoch.values()) - max(len(set(keys)) for keys in epoch.values())
    # Data may hold a sample twice, and then there are such pairs within a rank as well as between ranks.
    chance = 0 if indexed else 4 * again * (len(epoch) - 1)
    read = sum(map(len, epoch.values()))
    allowed = padding if padding is not None else _allowed(passes, read)
    # Where data are few, what evens ranks out may be all of them.
    nearly_all = surplus >= max(NEARLY_ALL * possible, chance) and possible >= max(2 * AT_LEAST, read / 4)
    wrong = (surplus > allowed + chance or nearly_all) and (indexed or surplus >= AT_LEAST)
    doubted = not wrong and indexed and padding is None and surplus >= AT_LEAST
    own = left_out_samples.own_epoch(passes) if doubted else None
    doubtful = own is not None and left_out_samples.is_beyond_padding(own, surplus)
    if not wrong and not doubtful:
        return "" if identity.same or identity.stable else UNRECOGNISED
    explained = own.padding if own is not None else padding or 0
    told = _told(number, passes, epoch, {key for key, n in seen.items() if n > 1}, surplus, explained, indexed)
    return replace(told, certain=wrong)


def _told(
    number: int,
    passes: Mapping[int, Pass],
    draw: Draw,
    repeated: set[Hashable],
    surplus: int,
    padding: int,
    by_index: bool,
    in_order: bool = False,
) -> Overlap:
    owners = by_key((key, rank) for rank, keys in draw.items() for key in dict.fromkeys(keys) if key in repeated)
    example, on = next(iter(owners.items()))
    return Overlap(
        number=number,
        compared=sum(map(len, draw.values())),
        surplus=surplus,
        padding=padding,
        ranks=tuple(sorted({rank for ranks in owners.values() for rank in ranks})),
        example=_name(passes, example, by_index),
        on=tuple(on),
        by_index=by_index,
        in_order=in_order,
    )


def _name(passes: Mapping[int, Pass], key: Hashable, by_index: bool) -> str:
    """A sample for a person: its index on the first rank that has it."""
    if by_index:
        return f"sample {key}"
    for one in passes.values():
        for sample in one.samples:
            if sample.print_ == key and sample.place is not None:
                return f"sample {sample.place}"
    for one in passes.values():
        for number, sample in enumerate(one.samples):
            if sample.print_ == key:
                ordinal = {0: "first", 1: "second", 2: "third"}.get(number, f"{number + 1}th")
                return f"the {ordinal} sample of rank {one.rank.rank}"
    return "a sample"


def _padding(passes: Mapping[int, Pass]) -> int | None:
    """How many samples torch's own sampler gives twice, so that all ranks have equally many; None for another."""
    loaders = [one.loader for one in passes.values()]
    first = loaders[0]
    if first is None or any(
        one is None
        or one.sampler != "DistributedSampler"
        or one.batch_size is None
        or one.replicas != len(loaders)
        or one.size != first.size
        for one in loaders
    ):
        return None
    return 0 if first.sampler_drops or first.size is None else -first.size % len(loaders)


def _allowed(passes: Mapping[int, Pass], read: int) -> float:
    """How many samples may come twice where no sampler of torch's says how it evens the ranks out.

    A batch of each but one, or a part of all; and what they read beyond the size of their dataset, if that is little.
    """
    batch = max((b.samples for one in passes.values() for b in one.batches), default=0)
    sizes = {one.loader.size for one in passes.values() if one.loader is not None}
    size = sizes.pop() if len(sizes) == 1 else None
    beyond = read - size if size else 0
    is_little = size and 0 < beyond <= max(len(passes) * batch, 2 * SOME * size)
    return max((len(passes) - 1) * batch, SOME * read) + (beyond if is_little else 0)


def _one_epoch(draw: Draw, loader: ev.Loader | None, padding: int) -> Draw | None:
    """The part of the passes in which no rank comes to a sample again; None where samples are drawn over and over.

    A sampler that never ends goes through many epochs in one pass.
    """
    repeated = {rank: _first_repetition(keys) for rank, keys in draw.items()}
    again = sum(len(keys) - len(set(keys)) for keys in draw.values())
    if again <= max(padding, SOME * sum(map(len, draw.values()))):
        return draw
    cut = min(place for place in repeated.values() if place is not None)
    if loader is not None and loader.size:
        share = loader.size // len(draw)
        if cut < share // 2:
            return None
        cut = min(cut, share)
    return {rank: keys[:cut] for rank, keys in draw.items()} if cut >= 2 * AT_LEAST else None


def _first_repetition(keys: Sequence[Hashable]) -> int | None:
    seen: set[Hashable] = set()
    for number, key in enumerate(keys):
        if key in seen:
            return number
        seen.add(key)
    return None


def _same_sequence(number: int, passes: Mapping[int, Pass], draw: Draw, by_index: bool) -> Overlap | None:
    """Ranks that draw with replacement, and draw the same."""
    groups: dict[tuple[Hashable, ...], list[int]] = defaultdict(list)
    shortest = min(len(keys) for keys in draw.values() if keys)
    for rank, keys in draw.items():
        if len(set(keys[:shortest])) >= AT_LEAST:
            groups[tuple(keys[:shortest])].append(rank)
    equal = [(keys, ranks) for keys, ranks in groups.items() if len(ranks) > 1]
    if not equal:
        return None
    sequence, ranks = equal[0]
    part = {rank: list(sequence) for rank in ranks}
    return _told(number, passes, part, set(sequence), len(sequence) * (len(ranks) - 1), 0, by_index, in_order=True)


# --- findings


def _overlapping(
    world: World, line: Line, overlaps: Sequence[Overlap], loaders: causes.Loaders, identity: Identity, wrapped: bool
) -> Finding:
    certain = [one for one in overlaps if one.certain]
    overlaps = certain or overlaps
    worst = max(overlaps, key=lambda one: one.surplus / one.compared)
    first = next((one for one in loaders.values() if one is not None), None)
    kind = first.sampler if first is not None else ""
    share = f"{100 * worst.surplus / worst.compared:.0f} %"
    beyond = f", where padding explains {worst.padding}" if worst.padding else ""
    order = ", in the same order" if worst.in_order else ""
    in_pass = f" in pass {worst.number + 1}" if max(map(len, line.passes.values())) > 1 else ""
    found = (
        f"{worst.compared:,} samples compared{in_pass}; {worst.surplus:,} of them ({share}) repeat a sample of another "
        f"rank{order}{beyond}; for example {worst.example}, seen by {ranks_text(worst.on)}"
    )
    rounds = [
        {rank: line.passes[rank][one.number] for rank in loaders if one.number < len(line.passes[rank])}
        for one in overlaps
    ]
    same_samples = all(map(causes.is_one_set, rounds))
    unstable = worst.by_index and not identity.stable
    basis = " (by index: a sample may look different whenever it is read)" if unstable else ""
    passes = rounds[overlaps.index(worst)]
    return Finding(
        rule="repeated-samples",
        severity="error" if wrapped and certain else "warning",
        ranks=worst.ranks,
        subject=causes.subject(first),
        expected=f"each sample on one rank in one pass through the training data{basis}",
        found=found,
        cause=causes.cause(world, passes, loaders, identity, same_samples)
        if certain
        else f"{kind} gives the ranks shares that overlap",
        advice=causes.advice(world, passes, loaders, same_samples)
        if certain
        else f"If samples are not meant to count twice, let each share of the {kind} end where the next one begins.",
        where=causes.place(line, loaders, world),
        count=len(overlaps),
        proof=causes.loop_lines(line, worst.ranks),
        # Ranks at several epochs overlap, and those that are never told of theirs go through one order again and again.
        links=(line.link, f"epochs of {line.link}")
        if len({p.begun.epoch for p in passes.values()}) > 1
        else (line.link,),
    )


def _nothing_in_common(line: Line, ranks: tuple[int, ...]) -> Finding:
    loader = line.loader
    return Finding(
        rule="no-common-samples",
        severity="warning",
        ranks=ranks,
        subject=causes.subject(loader),
        expected="ranks that share one dataset out among them to have the same one",
        found="another sample at the same index on every rank: each reads its share of the indices of data of its own, "
        "and what it has at the others is read by no rank",
        cause="the data were shared out before the sampler shares them out once more, or were made by another seed on "
        "each rank",
        advice="Give data that are each rank's own a sampler that does not share them out (a RandomSampler, or "
        "num_replicas=1 and rank=0), and splits or generated data a generator with the same seed everywhere.",
        where=line.first.rank.where(loader.site) if loader is not None else line.first.where,
        proof=causes.loop_lines(line, ranks),
        links=(line.link,),
    )
