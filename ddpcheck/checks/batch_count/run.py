"""Do the ranks of a script's run take equally many batches in each pass? batch-count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ddpcheck import evidence as ev
from ddpcheck.checks.batch_count import causes
from ddpcheck.checks.batch_count.agreed_end import came_through, in_step, was_stopped
from ddpcheck.checks.sample_rows import loader_text
from ddpcheck.facts.passes import Line, Pass, data_groups, loops, no_loader, shared_passes
from ddpcheck.judging import uneven_batches
from ddpcheck.judging.world import Judged, World
from ddpcheck.judging.world_ending import stop
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import ranks_text

_MET = (
    "All collectives were met in this run, but not by calls for the same batches: batches may be left out, or paired "
    "with those of another pass"
)


AGREED = "ranks took unequal numbers of batches in a pass, and none was seen to miss a collective for the others'"
APART = "no collective was seen between the batches of a loader that several ranks went through"
UNENDED = "no two ranks that train one model were seen to come to the end of a pass"
"""Why nothing was checked."""


def judge(world: World) -> Judged:
    """Compare the passes of the ranks that train replicas of one model, loop by loop."""
    groups, _ = data_groups(world)
    # A rank that was through when the run was interrupted may have been about to begin again.
    cut_off = world.now is not None and stop(world).kind == "interrupted"
    checked = 0
    findings: list[Finding] = []
    uncounted = ""
    for group in groups:
        for line in loops(world):
            times, found, because = _judge_line(world, line, group)
            checked += times
            findings += [] if cut_off else found
            uncounted = uncounted or because
    because = no_loader(world) or uncounted or UNENDED
    made = shared_passes(loops(world), groups)
    return Judged(checked=checked, of=made, findings=tuple(findings), skipped_because="" if checked else because)


def _judge_line(world: World, line: Line, ranks: Sequence[int]) -> tuple[int, list[Finding], str]:
    """Judge the passes of one loop over a loader, for the ranks that have to keep step with each other.

    How many passes were compared, what was found, and why others were not.
    """
    there = {rank: line.passes[rank] for rank in ranks if rank in line.passes}
    rounds = [
        {rank: one for rank, one in passes.items() if rank in there and not one.begun.joined}
        for _, passes in line.rounds()
    ]
    over = [passes for passes in rounds if sum(one.exhausted for one in passes.values()) > 1]
    if len(there) < 2 or not _keeps_step(world, line, there):
        return 0, [], APART if over else ""
    even = sum(not _uneven(passes) for passes in over)
    short = _ran_out(there)
    uneven = [(number, passes) for number, passes in enumerate(rounds) if _uneven(passes)]
    if not uneven:
        return even, [], ""
    if not short or in_step(world, there, [passes for _, passes in uneven]):
        return even, [], AGREED
    return even + len(uneven), [_finding(world, line, *uneven[0], short, len(uneven))], ""


def _keeps_step(world: World, line: Line, there: Mapping[int, Sequence[Pass]]) -> bool:
    """Whether the ranks meet between its batches."""
    if any(rank.of(ev.Call) for rank in world):
        return any(one.collectives for passes in there.values() for one in passes)
    return line.training


def _uneven(passes: Mapping[int, Pass]) -> bool:
    """Whether a rank had no more batches where another had."""
    fewest = min((one.taken for one in passes.values() if one.exhausted), default=None)
    return fewest is not None and any(one.taken > fewest for one in passes.values())


def _ran_out(there: Mapping[int, Sequence[Pass]]) -> list[int]:
    """The ranks that came to the end of their last pass with fewer batches in all than another rank.

    A rank that begins its loader again whenever it is through may have
    shorter passes than others, and still as many batches.
    """
    totals = {rank: sum(one.taken for one in passes) for rank, passes in there.items()}
    most = max(totals.values())
    return [rank for rank, passes in there.items() if passes[-1].exhausted and totals[rank] < most]


def _finding(
    world: World, line: Line, number: int, passes: Mapping[int, Pass], short: Sequence[int], times: int
) -> Finding:
    loaders = {rank: one.loader for rank, one in passes.items()}
    counts = {rank: one.taken for rank, one in passes.items()}
    expected = _implied(loaders)
    usual = expected if expected is not None else Counter(counts.values()).most_common(1)[0][0]
    odd = tuple(rank for rank, n in counts.items() if n != usual and passes[rank].exhausted)
    fewest = tuple(rank for rank, n in counts.items() if n == min(counts.values()))
    ranks = odd if odd and len(odd) < len(counts) and len(set(counts.values())) < len(counts) else fewest
    shown = ", ".join(
        f"{'' if passes[rank].exhausted else 'at least '}{n} on rank {rank}" for rank, n in counts.items()
    )
    # Who says that others wait for ever has to have seen it, or calls that nobody answers.
    through = came_through(world)
    first = next((one for one in loaders.values() if one is not None), None)
    places = [(rank, passes[rank].where) for rank in passes if rank != ranks[0]][:1]
    # The loop is right where a class of the program's own has dealt out too little.
    origin = uneven_batches.place(passes[ranks[0]].rank, loaders[ranks[0]]) if not _by_size(loaders) else None
    if origin is not None:
        places.insert(0, (ranks[0], passes[ranks[0]].where))
    return Finding(
        rule="unequal-batch-counts",
        severity="warning" if through else "error",
        ranks=ranks,
        subject=loader_text(first),
        expected=causes.wanted(expected, _loaded(first) if first is not None else None, len(loaders)),
        found=f"{shown} in pass {number + 1}{_went_on(line, number, passes)}",
        cause=_cause(loaders),
        advice=f"{_MET if through else causes.LEFT}: {uneven_batches.fix(loaders, line.training)}",
        where=origin or passes[ranks[0]].where,
        count=times,
        proof=tuple((rank, where) for rank, where in places if where is not None),
        links=(*(() if _by_size(loaders) else (line.link,)), *(("stop",) if was_stopped(world) else ())),
    )


def _went_on(line: Line, number: int, passes: Mapping[int, Pass]) -> str:
    """That a rank which had run out began the next pass, as a clause."""
    most = max(one.taken for one in passes.values())
    gone = [r for r, one in passes.items() if one.taken < most and len(line.passes[r]) > number + 1]
    behind = [r for r, one in passes.items() if one.taken == most]
    if not gone:
        return ""
    return f"; {ranks_text(gone)} then went on into pass {number + 2}, while {ranks_text(behind)} had a batch left"


def _implied(loaders: Mapping[int, ev.Loader | None]) -> int | None:
    """The number of batches that the sizes imply, where torch's own sampler and batches are at work."""
    facts = {
        (one.size, one.batch_size, one.drop_last, one.sampler_drops) if one is not None and one.distributed else None
        for one in loaders.values()
    }
    found = facts.pop() if len(facts) == 1 else None
    if found is None or found[0] is None or not found[1]:
        return None
    return causes.implied(found[0], len(loaders), found[1], found[2], found[3])


def _by_size(loaders: Mapping[int, ev.Loader | None]) -> bool:
    """Whether the sizes of batches account for it: whoever shares the samples out wrongly does nothing to these."""
    known = [one for one in loaders.values() if one is not None]
    return any(len(set(values)) > 1 for values in ([o.batch_size for o in known], [o.drop_last for o in known]))


def _loaded(one: ev.Loader) -> causes.Loaded:
    size = None if one.stream else one.size
    return causes.Loaded(
        size, one.batch_size, one.drop_last, one.sampler_drops, one.dataset, uneven_batches.decides(one),
        uneven_batches.batches_of_a_share(one),
    )  # fmt: skip


def _cause(loaders: Mapping[int, ev.Loader | None]) -> str:
    known = [one for one in loaders.values() if one is not None]
    return causes.why([*map(_loaded, known)]) if len(known) == len(loaders) else ""
