"""What ranks have kept, as far as it bears on what they hold at a line: what was made good since explains nothing."""

from __future__ import annotations

from msgspec.structs import replace

from ddpcheck import evidence as ev
from ddpcheck.judging import step_alignment
from ddpcheck.judging.world import Process, Rank, Stretch, World


def bearing_on(world: World, gradients: bool) -> World | None:
    """The world with those steps alone that may have made what differs at the line.

    Of gradients that is the line itself; of parameters, all that came after they were last the same on all ranks.
    None where the ranks have not made equally many steps: what they hold there is of different ones.
    """
    begins = {rank.rank: line.n for rank in world if (line := rank.last(ev.AtLine)) is not None}
    left_out: dict[int, set[int]] = {rank.rank: set() for rank in world}
    agreed = dict.fromkeys(left_out, -1)
    for optimizer in step_alignment.optimizers(world):
        at_line = [
            {s.n for s in steps.values() if s.n >= begins.get(rank.rank, 0)}
            for rank, steps in zip(optimizer.ranks, optimizer.steps, strict=True)
        ]
        both = [step for _, step in optimizer.common()]
        here = [step for step in both if all(s.n in own for s, own in zip(step, at_line, strict=True))]
        if any(len(own) != len(here) for own in at_line):
            return None
        for step in both:
            seen = [s.gradients if gradients else s.parameters for s in step]
            same = step not in here and all(seen) and len(set(seen)) == 1
            for rank, s in zip(optimizer.ranks, step, strict=True):
                if same:
                    agreed[rank.rank] = max(agreed[rank.rank], s.n)
                if gradients and step not in here:
                    left_out[rank.rank].add(s.n)
    return World([_without(rank, left_out[rank.rank], agreed[rank.rank]) for rank in world], world.world_size)


def _without(rank: Rank, left_out: set[int], agreed: int) -> Rank:
    """A rank as if these steps, and whatever led to one at which all agreed, had not been."""
    process = Process(rank.process.name)
    for record in rank.process.records:
        if isinstance(record, (ev.Step, ev.Moved)) and (record.n <= agreed or record.n in left_out):
            continue
        before = isinstance(record, ev.Optimizer) and record.n <= agreed
        process.add([replace(record, values=b"") if before else record])
    return Rank(Stretch(process, rank.joined, rank.start, rank.end))
