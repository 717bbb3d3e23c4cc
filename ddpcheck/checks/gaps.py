"""What to know of a run before trusting its verdict: steps passed over, full disks, ranks that left nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ddpcheck import evidence as ev
from ddpcheck.checks import ground
from ddpcheck.checks.stops import AT_EXIT
from ddpcheck.checks.world import Rank, World
from ddpcheck.wording import count, ranks_text


def steps(world: World) -> int:
    """Optimizer steps that the rank which came furthest has made, of all its optimizers."""
    return max((_steps(rank) for rank in world), default=0)


def gaps(worlds: Sequence[World]) -> tuple[str, ...]:
    """What a reader has to know before trusting that nothing was missed."""
    told = [note for world in worlds for note in _of_world(world)]
    return tuple(dict.fromkeys(told))


def aborted_at_exit(world: World) -> list[int]:
    """Ranks whose interpreter aborted after the script had ended, as torch's gloo makes it do now and then."""
    return [r.rank for r in world if r.signal == AT_EXIT and r.of(ev.Ended) and not r.of(ev.Raised)]


def _of_world(world: World) -> Iterator[str]:
    missing = set(range(world.world_size)) - {rank.rank for rank in world}
    if missing:
        verb = "has" if len(missing) == 1 else "have"
        yield f"{_upper(ranks_text(missing))} {verb} left no evidence: no process joined the group under that number."
    full = [rank.rank for rank in world if rank.process.full or any(w.full for w in rank.workers)]
    if full:
        yield f"The evidence of {ranks_text(full)} is incomplete: it could not be written any more (is the disk full?)."
    torn = [rank.rank for rank in world if rank.process.torn]
    if torn:
        yield f"The evidence of {ranks_text(torn)} ends in the middle of a record; all before it counts."
    aborted = aborted_at_exit(world)
    if aborted:
        on = ranks_text(aborted)
        yield f"The interpreter of {on} aborted as it shut down, as torch's gloo makes it do; the script had ended."
    yield from ground.told(world)
    yield from _sampled(world)


def _sampled(world: World) -> Iterator[str]:
    made = steps(world)
    if not made:
        return
    compared = [min(_compared(rank)[place] for rank in world) for place in (0, 1)]
    whole, looked = compared
    if whole >= made:
        return
    rest = f", and {looked - whole:,} more by a part of every tensor" if looked > whole else ""
    yield (
        f"Of {count(made, 'optimizer step')}, {whole:,} {'was' if whole == 1 else 'were'} compared in full{rest}, "
        "so that the training keeps its speed."
    )


def _compared(rank: Rank) -> tuple[int, int]:
    """Steps that were compared in full, and in full or in part."""
    looked = [step for step in rank.of(ev.Step) if step.gradients or step.parameters]
    return sum(step.whole for step in looked), len(looked)


def _steps(rank: Rank) -> int:
    last: dict[int, int] = {}
    for step in rank.of(ev.Step):
        last[step.optimizer] = max(last.get(step.optimizer, 0), step.number + 1)
    return sum(last.values())


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
