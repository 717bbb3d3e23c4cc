"""What to know of a run before trusting its verdict: steps passed over, full disks, ranks that left nothing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from ddpcheck import evidence as ev
from ddpcheck.judging import step_alignment
from ddpcheck.judging.world import Process, Rank, World
from ddpcheck.judging.world_ending import AT_EXIT
from ddpcheck.vocabulary.wording import count, listing, ranks_text


def gaps(worlds: Sequence[World]) -> tuple[str, ...]:
    """What a reader has to know before trusting that nothing was missed."""
    told = [note for world in worlds for note in _of_world(world)]
    return tuple(dict.fromkeys(told))


def unseen(worlds: Sequence[World], processes: Iterable[Process]) -> tuple[str, ...]:
    """What of a run is not on record: the first thing to know of a verdict."""
    processes = list(processes)
    ranks = _numbers(worlds)
    stopped: dict[str, list[str]] = defaultdict(list)
    damaged: dict[str, int] = defaultdict(int)
    torn: list[str] = []
    for process in processes:
        whose = _whose(process, ranks.get(id(process)))
        if process.gap:
            stopped[process.gap].append(whose)
        if process.damaged:
            damaged[whose] += process.damaged
        if process.torn:
            torn.append(whose)
    told = [
        f"The evidence of {ranks_text(missing)} is missing: no process has recorded that it joined the group under "
        f"{'that number' if len(missing) == 1 else 'these numbers'}. What compares ranks was not checked."
        for missing in dict.fromkeys(world.missing for world in worlds if world.missing)
    ]
    told += [
        f"The evidence of {listing(sorted(set(whose)))} stopped early: {why}. What is said here covers the run up to "
        "there."
        for why, whose in stopped.items()
    ]
    told += [
        f"The evidence of {whose} is damaged: {count(size, 'byte')} of it could not be read, and what was written "
        "there is not judged."
        for whose, size in damaged.items()
    ]
    if torn:
        told.append(
            f"The evidence of {listing(sorted(set(torn)))} ends in the middle of a record; all before it counts."
        )
    silent = _silent(worlds, processes)
    if silent:
        verb = "has" if len(silent) == 1 else "have"
        told.append(
            f"{_upper(ranks_text(silent))} {verb} left no evidence: torch was not imported there, or nothing could be "
            "recorded."
        )
    return tuple(told)


def part(worlds: Sequence[World], processes: Iterable[Process]) -> str:
    """Why the evidence covers a part of the run, as a clause; empty where it covers all of it."""
    ranks = _numbers(worlds)
    for process in processes:
        if process.gap or process.damaged:
            how = "stopped early" if process.gap else "is damaged"
            return f"the evidence of {_whose(process, ranks.get(id(process)))} {how}"
    return ""


def _numbers(worlds: Sequence[World]) -> dict[int, int]:
    """The ranks that processes were, or load samples for, by the identity of the process."""
    ranks = {id(rank.process): rank.rank for world in worlds for rank in world}
    return ranks | {id(worker): rank.rank for world in worlds for rank in world for worker in rank.workers}


def _silent(worlds: Sequence[World], processes: Sequence[Process]) -> set[int]:
    """Ranks that torchrun has started, and that have written down nothing; what a world misses is reported with it."""
    launched = {one.rank for process in processes for one in process.of(ev.Launched) if one.rank is not None}
    heard = {process.began.rank for process in processes if process.began is not None}
    return launched - heard - {rank for world in worlds for rank in range(world.world_size)}


def _whose(process: Process, rank: int | None) -> str:
    began = process.began
    number = rank if rank is not None or began is None else began.rank
    if number is not None:
        return ranks_text([number])
    return f"process {began.pid}" if began is not None else f"a process ({process.name})"


def aborted_at_exit(world: World) -> list[int]:
    """Ranks whose interpreter aborted after the script had ended, as torch's gloo makes it do now and then."""
    return [r.rank for r in world if r.signal == AT_EXIT and r.of(ev.Ended) and not r.of(ev.Raised)]


def _of_world(world: World) -> Iterator[str]:
    blind = [rank.rank for rank in world if any(one.blind for one in rank.of(ev.Lingering))]
    if blind:
        yield f"Which processes {ranks_text(blind)} left behind could not be seen: /proc is hidden there."
    aborted = aborted_at_exit(world)
    if aborted:
        on = ranks_text(aborted)
        yield f"The interpreter of {on} aborted as it shut down, as torch's gloo makes it do; the script had ended."
    yield from _outlived(world)
    yield from _not_compared(world)
    yield from _overlooked(world)
    yield from _sampled(world)


def _outlived(world: World) -> Iterator[str]:
    """Works that were held when their NCCL group was destroyed: no fault by itself, and easily one."""
    held = [(rank, last) for rank in world if (last := rank.last(ev.Outlived)) is not None]
    if held:
        rank, first = held[0]
        at = f", {where}" if (where := rank.where(first.site)) is not None else ""
        yield (
            f"{_upper(ranks_text(rank.rank for rank, _ in held))} destroyed the NCCL group while holding "
            f"{count(max(last.number for _, last in held), 'asynchronous call')} that nobody had waited for (the "
            f"first: {first.op}{at}): a wait() afterwards may raise, and whether they were done is not known."
        )


def _sampled(world: World) -> Iterator[str]:
    made = step_alignment.steps_made(world)
    if not made:
        return
    compared = [min(_compared(rank)[place] for rank in world) for place in (0, 1)]
    whole, looked = compared
    if not looked or whole >= made:
        return
    rest = f", {looked - whole:,} more by a part of every tensor" if looked > whole else ""
    yield (
        f"Looked at on every rank: {whole:,} of {count(made, 'optimizer step')} in full{rest}, so that the training "
        "keeps its speed."
    )


def _not_compared(world: World) -> Iterator[str]:
    """The parameters that optimizers step and nobody compares, by what they are."""
    kinds = max((_unseen(rank) for rank in world), key=Counter.total, default=Counter[str]())
    if kinds:
        what = " and ".join(f"{count(number, 'parameter')} of {kind}" for kind, number in kinds.items())
        verb = "was" if kinds.total() == 1 else "were"
        yield f"{what} {verb} not compared: ddpcheck does not look into tensors without plain memory."


def _unseen(rank: Rank) -> Counter[str]:
    optimizers = {one.optimizer: one for one in rank.of(ev.Optimizer)}
    return Counter(p.unseen for one in optimizers.values() for p in one.parameters if p.unseen and p.layout is None)


def _overlooked(world: World) -> Iterator[str]:
    apart, captured, short, behind = (
        [r.rank for r in world if any(o.what == what for o in r.of(ev.Overlooked))]
        for what in ("calls", "capture", "memory", "device")
    )
    if apart:
        yield (
            f"{ranks_text(apart)[0].upper()}{ranks_text(apart)[1:]} exchanged something by symmetric memory or a group "
            "written in Python: such calls are not seen."
        )
    if captured:
        yield f"A CUDA graph was captured on {ranks_text(captured)}: what its replays do, steps among it, is not seen."
    if short:
        yield f"Memory did not suffice for every look at the tensors of {ranks_text(short)}: those are not compared."
    if behind:
        yield f"The last looks on {ranks_text(behind)} are not compared: its device had not come to them at the end."


def _compared(rank: Rank) -> tuple[int, int]:
    """Steps that were looked at in full, and in full or in part."""
    looked = [
        s for s in rank.of(ev.Step) if step_alignment.are_seen([s.gradients]) or step_alignment.are_seen([s.parameters])
    ]
    before = rank.process.compared_before
    return before[0] + sum(step.whole for step in looked), before[1] + len(looked)


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
