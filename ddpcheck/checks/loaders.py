"""What went through the DataLoaders of a run: shard-partition, epoch-reshuffle and batch-count."""

from __future__ import annotations

from collections.abc import Iterable

from ddpcheck import evidence as ev
from ddpcheck.checks.batch_count import run as counts
from ddpcheck.checks.epoch_reshuffle import run as orders
from ddpcheck.checks.shard_partition import run as sharing
from ddpcheck.checks.shard_partition import unintended_data
from ddpcheck.judging.loader_passes import data_groups, lines, passes_of
from ddpcheck.judging.world import Judged, World
from ddpcheck.judging.world_ending import stop
from ddpcheck.vocabulary.model import Finding


def judge(world: World) -> Iterable[Judged]:
    """Compare the passes of the ranks that train replicas of one model, loop by loop."""
    every = [passes_of(rank) for rank in world]
    groups, wrapped = data_groups(world)
    found = lines(world, every)
    training = [line for line in found if line.training]
    communicate = any(rank.of(ev.Call) for rank in world)
    # A rank that was through when the run was interrupted may have been about to begin again.
    cut_off = world.now is not None and stop(world).kind == "interrupted"
    shares, counted = 0, 0
    sharing_found: list[Finding] = []
    counts_found: list[Finding] = []
    uncounted = unshared = ""
    for group in groups:
        for line in found:
            n, findings, because = counts.judge_line(world, line, group)
            counted += n
            uncounted = uncounted or because
            counts_found += [] if cut_off else findings
        for line in training:
            if wrapped and communicate and line.alone:
                continue
            n, findings, because = sharing.judge_line(world, line, group, wrapped)
            shares += n
            unshared = unshared or because
            sharing_found += findings
    told = {link for finding in sharing_found for link in finding.links}
    sharing_found += [finding for finding in unintended_data.sampler_lost(every) if told.isdisjoint(finding.links)]
    if not training:
        n, findings = unintended_data.same_inputs(world, groups)
        shares += n
        sharing_found += findings
    reshuffled, orders_found = orders.judge_lines(found)
    nothing = "" if any(rank.of(ev.Loader) for rank in world) else "the program made no DataLoader"
    yield Judged(
        check="shard-partition",
        checked=shares,
        findings=tuple(sharing_found),
        skipped_because="" if shares else nothing or unshared or "no two ranks were seen to train with one loader",
    )
    yield Judged(
        check="epoch-reshuffle",
        checked=reshuffled,
        findings=tuple(orders_found),
        skipped_because="" if reshuffled else nothing or "no shuffled loader was gone through twice in training",
    )
    yield Judged(
        check="batch-count",
        checked=counted,
        findings=tuple(counts_found),
        skipped_because="" if counted else nothing or uncounted or "no two ranks were seen to end a pass of one loader",
    )
