"""Do the ranks of a script's run share the data of each training pass out among them? shard-partition."""

from __future__ import annotations

from collections.abc import Sequence

from ddpcheck import evidence as ev
from ddpcheck.checks.sample_rows import loader_text, read_samples
from ddpcheck.checks.shard_partition import causes, one_copy, sequences
from ddpcheck.checks.shard_partition.data_grounds import NO_COPIES, share_out, why_ungrounded
from ddpcheck.checks.shard_partition.parts_of_batches import sharers
from ddpcheck.checks.shard_partition.rows import ROWS
from ddpcheck.checks.shard_partition.unintended_data import sampler_lost
from ddpcheck.facts import model_inputs, positions
from ddpcheck.facts.datasets import Identity, identity_of, single_prints
from ddpcheck.facts.passes import (
    Line,
    Pass,
    data_groups,
    every_pass,
    loops,
    no_loader,
    passes_in_one_epoch,
    shared_passes,
)
from ddpcheck.facts.readers import readers
from ddpcheck.judging.world import Judged, World
from ddpcheck.relations import once
from ddpcheck.relations.overlap import (
    IN_PART,
    Epoch,
    Gap,
    Overlap,
    gap_of,
    in_part,
    in_part_of_stream,
    overlap_of,
    own_epoch,
)
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, ranks_text

ROUNDS = 8
"""How many passes that every rank has been through are compared."""

PARTS = "ranks read the same samples, and it was not seen whether what they gave their models makes up the whole"
OWN_OR_PARTS = "ranks had different content at the same index, and it was not seen whether it is parts of one sample"
UNSEEN_PARTS = "ranks read the same samples, and it was not seen on their devices which parts of them they used"
FEW = "ranks gave their models the same inputs in some of the forwards compared, and it was not seen whether on purpose"
INPUTS = "no loop over a DataLoader was seen to train, and different inputs of models do not show what is shared"
"""Why nothing was checked."""


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
    deviations = [*once.positions(positions.of(world)), *once.repetitions(passes_in_one_epoch(world))]
    deviations += once.empty_passes(training, world.world_size)
    deviations += once.workers_alike([line for line in training if line.link not in told])
    made = shared_passes(training, groups)
    if not training:
        given = model_inputs.of(world)
        deviations += once.common_inputs(given)
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
    gap: Gap | None = None
    epochs: dict[int, Epoch] = {}
    rounds: dict[int, dict[int, Pass]] = {}
    for number, passes in line.rounds():
        shared = {rank: one for rank, one in passes.items() if rank in there and one.samples}
        if len(shared) < 2 or len(rounds) == ROUNDS:
            continue
        rounds[number] = shared
        found = overlap_of(number, shared, identity, single)
        if isinstance(found, Overlap):
            overlaps.append(found)
        elif found:
            because = because or found
            continue
        elif world.complete and len(shared) + len(apart) == len(ranks):
            everyones = {rank: ones[number] for rank, ones in line.passes.items() if number < len(ones)}
            gap = gap or gap_of(everyones)
            epoch = own_epoch(shared)
            epochs |= {number: epoch} if epoch is not None else {}
        compared.add(number)
    loaders = {rank: passes[0].loader for rank, passes in there.items()}
    if overlaps and not wrapped and sequences.unseen(world).intersection(there):
        return 0, [], UNSEEN_PARTS
    if overlaps:
        return len(compared), [_overlapping(world, line, overlaps, loaders, identity, wrapped)], because
    if gap is not None:
        return len(compared), [_left_out(line, gap)], because
    if identity.different:
        if share_out(loaders) and identity.stable:
            return len(compared), [_nothing_in_common(line, tuple(there))], because
        return 0, [], OWN_OR_PARTS
    # That no two ranks had the same samples is not all that there is to hold.
    partly = in_part(line, epochs, identity) | in_part_of_stream(rounds)
    return len(compared - partly), [], because or (IN_PART if partly else "")


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
        subject=loader_text(first),
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
        subject=loader_text(loader),
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


def _left_out(line: Line, gap: Gap) -> Finding:
    passes = {rank: ones[0] for rank, ones in sorted(line.passes.items())}
    loaders = {rank: one.loader for rank, one in passes.items()}
    known = [one for one in loaders.values() if one is not None]
    return Finding(
        rule="missing-samples",
        ranks=tuple(passes),
        subject=loader_text(known[0]),
        expected="each sample of the dataset in the epoch of some rank",
        found=f"{gap.number:,} of {count(gap.size, 'sample')} on no rank; the first is sample {gap.example}",
        cause=causes.sampler_cause(passes, loaders).cause if {one.replicas for one in known} != {len(passes)} else "",
        advice="Make the sampler for as many ranks as there are, each with its own rank from 0 to world_size - 1.",
        where=causes.place(line, loaders),
        proof=causes.loop_lines(line, tuple(passes)),
        links=(line.link,),
    )
